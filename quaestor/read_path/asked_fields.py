"""Request fields that a handler asked for, found or not: they decide about its answer as if `Vary` named them.

Which of them count is decided here. What the handler is shown notices that it asked for them (`quaestor.middleware.asked_scope`).

Fields with a treatment of their own do not count: what is in the key anyway, what the cache evaluates itself, what belongs to one
connection, and what tells traces apart. Credentials do not count either, because a request that carries some is either passed by
or for a route that says whom its answers are for; unless nobody said so and the scope is only implied.

Keying is not enough for a field that opens a door: a key that is revoked in the memory of the process is still in the key of what
it was given, and no write to the database says so. An answer whose handler asked for one that was there is not stored, unless
its route says whom its answers are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from quaestor.policy import RoutePolicy, Sharing
from quaestor.read_path.forwarded_fields import CLAIMS
from quaestor.read_path.request import CONDITIONS, NOTABLE

EVERYTHING = b"*"
"""In place of a name: all the fields that count, because they were copied or iterated as a whole."""
WITH_CREDENTIALS = b"**"
"""The same, credentials among them: where nobody has said whom answers are for."""
WHOLES = frozenset({EVERYTHING, WITH_CREDENTIALS})
CLIENT_ADDRESS = "client-address"
"""In the setting `ignored_fields`, and as the reason why an answer is not stored: the address that the server saw."""
SCOPE_ENTRY = "scope-entry"
"""As the reason why an answer is not stored: something that a middleware around the cache has put into the scope."""
CREDENTIALS = "credentials"
"""As the reason why an answer is not stored: a field that looks like a credential, and was there."""
CONDITION = "condition"
"""As the reason why an answer is not stored: its handler has seen a condition of the client that asked."""

_SAY_WHO_ASKS = frozenset({"scope.user", "scope.auth", "scope.session"})

_EVALUATED_HERE = CONDITIONS | {
    b"host", b"cache-control", b"pragma", b"range", b"if-range", b"if-match", b"if-unmodified-since", b"content-length",
}  # fmt: skip
_OF_CONNECTION = frozenset(
    {
        b"connection", b"expect", b"http2-settings", b"keep-alive", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
CORRELATION = frozenset(
    {
        b"b3", b"baggage", b"request-id", b"sentry-trace", b"traceparent", b"tracestate", b"uber-trace-id",
        b"x-amzn-trace-id", b"x-b3-flags", b"x-b3-parentspanid", b"x-b3-sampled", b"x-b3-spanid", b"x-b3-traceid",
        b"x-cloud-trace-context", b"x-correlation-id", b"x-datadog-origin", b"x-datadog-parent-id",
        b"x-datadog-sampling-priority", b"x-datadog-trace-id", b"x-request-id", b"x-request-start",
    }
)  # fmt: skip
"""Different on every request and read by instrumentation on every request."""
_CODING = b"accept-encoding"
_OWN = _EVALUATED_HERE | _OF_CONNECTION | CORRELATION | CLAIMS | {_CODING}
_OF_BODY = frozenset({b"content-type", b"content-encoding", b"content-language"})
_SELECTS = re.compile(rb"tenant|account")
"""Names that tell credentials apart from what merely chooses among somebody's records."""
_OPENS = re.compile(
    rb"key(?:s|-?id)?(?:-|$)|(?:^|-)(?:sign|signed|signature|sig|hmac|dpop|otp|totp|pin|pass|passcode|licen[cs]e|ticket|bearer)(?:-|$)"
)
"""Names that look like something that opens a door, besides those that `request.NOTABLE` takes for credentials."""
_OPENS_NOTHING = frozenset({b"idempotency-key"})
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]{1,64}")


class Conditions:
    """The conditions of one request (If-None-Match, If-Modified-Since), as its handler may see them.

    Who answers without reading anything is no concern of the cache, and decides about conditions as without one. What is made of
    reads may be stored, so from the first read on it is asked for whole. Written from any thread.

    reading: whether the handler has read anything yet.
    shown: it has seen one: its answer may be for this client alone.
    withheld: it has asked for one, and was told that there is none.
    """

    __slots__ = ("_reading", "shown", "withheld")

    def __init__(self, reading: Callable[[], bool]) -> None:
        self._reading = reading
        self.shown = False
        self.withheld = False

    def visible(self) -> bool:
        """Whether the handler, who asks at this moment, is told."""
        if self.shown or not self._reading():
            self.shown = True
            return True
        self.withheld = True
        return False


class AskedFields:
    """Record of what one handler run asked for. Written from any thread.

    names: of fields, in lower case.
    everything: they were copied or iterated as a whole.
    client: the address that the server saw.
    entries: of the scope and its state, as only those around the cache can have put them there: "scope.org", "state.org".
    conditions: the request's, if the handler may see them; None: it is shown none, or they are fields like any other.
    forwards: a copy of all fields goes to an origin, unchanged.
    """

    __slots__ = ("client", "conditions", "entries", "everything", "forwards", "names")

    def __init__(self, *, forwards: bool = False) -> None:
        self.forwards = forwards
        self.names: set[bytes] = set()
        self.everything = False
        self.client = False
        self.entries: set[str] = set()
        self.conditions: Conditions | None = None

    def note(self, name: object) -> None:
        """Note a name that one of the request's was compared with."""
        if isinstance(name, str):
            name = name.encode("latin-1", "replace")
        if isinstance(name, bytes | bytearray):
            self.names.add(bytes(name).lower())

    def note_everything(self) -> None:
        """Note that somebody has all of the names now."""
        self.everything = True

    @property
    def conditional(self) -> bool:
        """Whether the handler would have decided about a condition, had it been shown one."""
        return self.everything or not CONDITIONS.isdisjoint(self.names)


def refusal(
    asked: AskedFields,
    policy: RoutePolicy,
    ignored: Collection[bytes],
    *,
    request_headers: Iterable[tuple[bytes, bytes]] = (),
) -> tuple[str, str] | None:
    """The reason why an answer that was made with this cannot be stored for anybody: a label, and a text for people; or None."""
    if asked.client and CLIENT_ADDRESS.encode() not in ignored:
        return (
            CLIENT_ADDRESS,
            "the handler asked for the client's address; for logs only: ignored_fields=['client-address']",
        )
    unsaid = policy.implied or policy.sharing is Sharing.UNDECLARED
    # Without a scope, requests of which these say something are passed by before the handler runs.
    entries = {one for one in asked.entries if one.encode("latin-1", "replace").lower() not in ignored}
    if not policy.implied:
        entries -= _SAY_WHO_ASKS
    if asked.conditions is not None and asked.conditions.shown:
        return CONDITION, "the handler has seen the client's conditions; it is asked for the whole next time"
    if unsaid and entries:
        named = ", ".join(sorted(entries))
        return SCOPE_ENTRY, f"the handler asked for {named}; say whom its answers are for, or name it in ignored_fields"
    if unsaid:
        for name, _ in request_headers:
            asked_for = asked.everything or name in asked.names or name in policy.headers
            if asked_for and name not in ignored and _opens(name):
                return CREDENTIALS, (
                    f"the handler asked for {name.decode('latin-1')}, which looks like a credential that may be revoked without"
                    " a write to the database; say whom its answers are for (scope=per_user(by=...), scope=public())"
                )
    return None


def deciding(
    asked: AskedFields,
    policy: RoutePolicy,
    response_headers: Iterable[tuple[bytes, bytes]],
    *,
    ignored: Collection[bytes],
    with_body: bool = False,
    of_origin: bool = False,
) -> tuple[bytes, ...]:
    """The names of the fields that decide about an answer because its handler asked for them, sorted.

    with_body: the request is keyed by its body, and by the fields that describe it.
    of_origin: its handler read nothing, so a forwarded answer is the origin's. The `Vary` of the answer names the deciding fields
        then, and the copy of all fields does not. A field that the handler reads by name decides in any case.
    """
    found = {
        name
        for name in asked.names
        if name not in policy.headers
        and (counts(name, ignored) or (policy.implied and name not in ignored and _credential(name)))
    }
    if with_body:
        found -= _OF_BODY
    if asked.everything and not (asked.forwards and of_origin):
        found = {whole(policy)}
    # Which coding is all that this one may decide, and an answer without one is good for everybody.
    coded = any(name == b"content-encoding" for name, _ in response_headers)
    if coded and (_CODING in asked.names or asked.everything) and _CODING not in ignored:
        found.add(_CODING)
    return tuple(sorted(found))


def counts(name: bytes, ignored: Collection[bytes]) -> bool:
    """Whether a field that was asked for decides about an answer on every route."""
    if name in _OWN or name in ignored or _TOKEN.fullmatch(name) is None:
        return False
    return not NOTABLE[name] or _SELECTS.search(name) is not None


def whole(policy: RoutePolicy) -> bytes:
    """The name that stands for all fields on a route."""
    return WITH_CREDENTIALS if policy.implied else EVERYTHING


def all_that_count(
    headers: Sequence[tuple[bytes, bytes]], ignored: Collection[bytes], *, credentials: bool
) -> list[tuple[bytes, bytes]]:
    """The fields of a request that EVERYTHING or, with credentials, WITH_CREDENTIALS stands for.

    By name; repeated ones keep their order.
    """
    found = [
        field
        for field in headers
        if counts(field[0], ignored) or (credentials and field[0] not in ignored and _credential(field[0]))
    ]
    return sorted(found, key=lambda field: field[0])


@lru_cache(maxsize=2048)
def _opens(name: bytes) -> bool:
    plain = name.replace(b"_", b"-")
    return plain not in _OPENS_NOTHING and not plain.startswith(b"sec-") and _OPENS.search(plain) is not None


def _credential(name: bytes) -> bool:
    return bool(NOTABLE[name]) and name not in _OWN and _TOKEN.fullmatch(name) is not None
