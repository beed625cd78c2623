"""Request fields that a handler looked up, present or absent: they decide about its answer as if `Vary` named them.

This module decides which fields count. The handler's scope notes the look-ups (`quaestor.middleware.asked_scope`).

Fields with a treatment of their own do not count: parts of the key, conditions and ranges, fields of one connection, and ids of
traces. Credentials do not count either: a request with credentials bypasses the cache, unless its route declares with whom its
answers are shared. Credentials count where that scope is only implied.

For a field that grants access a place in the key is not enough. When the process revokes an access key in memory, no write to the
database shows it, and the entries under that key stay. Therefore an answer is not stored if its handler looked up such a field
that was present, unless its route declares a scope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from quaestor.policy import RoutePolicy, Sharing
from quaestor.read_path.forwarded_fields import CLAIMS
from quaestor.read_path.request import CONDITIONS, NOTABLE

EVERYTHING = b"*"
"""In place of a name: all counting fields, because the handler copied or iterated over the whole."""
WITH_CREDENTIALS = b"**"
"""The same with credentials, where no scope is declared."""
WHOLES = frozenset({EVERYTHING, WITH_CREDENTIALS})
CLIENT_ADDRESS = "client-address"
"""The address that the server saw: in the setting `ignored_fields`, and as reason why an answer is not stored."""
SCOPE_ENTRY = "scope-entry"
"""Reason why an answer is not stored: its handler read a scope entry that a middleware around the cache has added."""
CREDENTIALS = "credentials"
"""Reason why an answer is not stored: its handler read a field that looks like a credential and was present."""
CONDITION = "condition"
"""Reason why an answer is not stored: its handler has seen a condition of the client."""

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
"""Fields that differ on every request, and that instrumentation reads on every request."""
_CODING = b"accept-encoding"
_OWN = _EVALUATED_HERE | _OF_CONNECTION | CORRELATION | CLAIMS | {_CODING}
_OF_BODY = frozenset({b"content-type", b"content-encoding", b"content-language"})
_SELECTS = re.compile(rb"tenant|account")
"""Names of fields that only select among a client's records, unlike credentials."""
_OPENS = re.compile(
    rb"key(?:s|-?id)?(?:-|$)|(?:^|-)(?:sign|signed|signature|sig|hmac|dpop|otp|totp|pin|pass|passcode|licen[cs]e|ticket|bearer)(?:-|$)"
)
"""Names that may grant access, besides the credentials in `request.NOTABLE`."""
_OPENS_NOTHING = frozenset({b"idempotency-key"})
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]{1,64}")


class Conditions:
    """The conditions of one request (If-None-Match, If-Modified-Since), as its handler may see them.

    A handler that reads nothing is not cached, so it decides about conditions as without a cache. An answer made of reads may be
    stored, so conditions are hidden from the first read on, and the handler returns the whole. Written from any thread.

    reading: whether the handler has read anything yet.
    shown: the handler has seen a condition: its answer may be for this client alone.
    withheld: the handler looked up a condition, and it was hidden.
    """

    __slots__ = ("_reading", "shown", "withheld")

    def __init__(self, reading: Callable[[], bool]) -> None:
        self._reading = reading
        self.shown = False
        self.withheld = False

    def visible(self) -> bool:
        """Whether a handler that looks up a condition at this moment may see it."""
        if self.shown or not self._reading():
            self.shown = True
            return True
        self.withheld = True
        return False


class AskedFields:
    """Record of everything that one handler run looked up. Written from any thread.

    names: of fields, in lower case.
    everything: the fields were copied or iterated over as a whole.
    client: the address that the server saw was read.
    entries: of the scope and its state that only middlewares around the cache can add: "scope.org", "state.org".
    conditions: the request's, if the handler may see them; None: it sees none, or they are fields like any other.
    forwards: a copy of all fields goes to an origin, unchanged.
    examined: the handler of a forwarding app used the names in a way that may decide unseen, so the copy counts as its own.
    """

    __slots__ = ("client", "conditions", "entries", "everything", "examined", "forwards", "names")

    def __init__(self, *, forwards: bool = False) -> None:
        self.forwards = forwards
        self.names: set[bytes] = set()
        self.everything = False
        self.examined = False
        self.client = False
        self.entries: set[str] = set()
        self.conditions: Conditions | None = None

    def note(self, name: object) -> None:
        """Note a name that a name of the request was compared with."""
        if isinstance(name, str):
            name = name.encode("latin-1", "replace")
        if isinstance(name, bytes | bytearray):
            self.names.add(bytes(name).lower())

    def note_everything(self) -> None:
        """Note that the handler holds a copy of all names."""
        self.everything = True

    @property
    def conditional(self) -> bool:
        """Whether the handler would have decided about a condition, had it seen one."""
        return self.everything or not CONDITIONS.isdisjoint(self.names)


def refusal(
    asked_fields: AskedFields,
    policy: RoutePolicy,
    ignored: Collection[bytes],
    *,
    request_headers: Iterable[tuple[bytes, bytes]] = (),
) -> tuple[str, str] | None:
    """Return the reason why an answer made with these look-ups cannot be stored, as a label and a text for people; or None."""
    if asked_fields.client and CLIENT_ADDRESS.encode() not in ignored:
        return (
            CLIENT_ADDRESS,
            "the handler asked for the client's address; for logs only: ignored_fields=['client-address']",
        )
    unsaid = policy.implied or policy.sharing is Sharing.UNDECLARED
    # Without a declared scope, a request with such an entry has bypassed the cache before the handler ran.
    entries = {entry for entry in asked_fields.entries if entry.encode("latin-1", "replace").lower() not in ignored}
    if not policy.implied:
        entries -= _SAY_WHO_ASKS
    if asked_fields.conditions is not None and asked_fields.conditions.shown:
        return CONDITION, "the handler has seen the client's conditions; it returns the whole next time"
    if unsaid and entries:
        named = ", ".join(sorted(entries))
        return SCOPE_ENTRY, (
            f"the handler asked for {named}; declare with whom its answers are shared, or name it in ignored_fields"
        )
    if unsaid:
        for name, _ in request_headers:
            asked_for = asked_fields.everything or name in asked_fields.names or name in policy.headers
            if asked_for and name not in ignored and opens(name):
                return CREDENTIALS, (
                    f"the handler asked for {name.decode('latin-1')}, which looks like a credential that may be revoked without"
                    " a write to the database; declare with whom its answers are shared"
                    " (scope=per_user(by=...), scope=public())"
                )
    return None


def deciding(
    asked_fields: AskedFields,
    policy: RoutePolicy,
    response_headers: Iterable[tuple[bytes, bytes]],
    *,
    ignored: Collection[bytes],
    with_body: bool = False,
    of_origin: bool = False,
) -> tuple[bytes, ...]:
    """Return the names of the fields that decide about an answer because its handler looked them up, sorted.

    with_body: the request is keyed by its body, and by the fields that describe it.
    of_origin: its handler read nothing, so a forwarded answer is the origin's. The `Vary` of the answer then names the deciding
        fields; the copy of all fields does not, unless the handler examined it. A field that the handler looks up by name
        decides in any case.
    """
    names = {
        name
        for name in asked_fields.names
        if name not in policy.headers
        and (counts(name, ignored) or (policy.implied and name not in ignored and _credential(name)))
    }
    if with_body:
        names -= _OF_BODY
    passed_on = asked_fields.forwards and of_origin and not asked_fields.examined
    if asked_fields.everything and not passed_on:
        names = {whole(policy)}
    # Accept-Encoding only chooses the coding, and an answer without a coding is good for every client.
    coded = any(name == b"content-encoding" for name, _ in response_headers)
    if coded and (_CODING in asked_fields.names or asked_fields.everything) and _CODING not in ignored:
        names.add(_CODING)
    return tuple(sorted(names))


def counts(name: bytes, ignored: Collection[bytes]) -> bool:
    """Whether a looked-up field decides about an answer on every route."""
    if name in _OWN or name in ignored or _TOKEN.fullmatch(name) is None:
        return False
    return not NOTABLE[name] or _SELECTS.search(name) is not None


def whole(policy: RoutePolicy) -> bytes:
    """Return the name that stands for all fields on a route."""
    return WITH_CREDENTIALS if policy.implied else EVERYTHING


def all_that_count(
    headers: Sequence[tuple[bytes, bytes]], ignored: Collection[bytes], *, credentials: bool
) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request that EVERYTHING or, with credentials, WITH_CREDENTIALS stands for.

    Sorted by name; repeated fields keep their order.
    """
    fields = [
        field
        for field in headers
        if counts(field[0], ignored) or (credentials and field[0] not in ignored and _credential(field[0]))
    ]
    return sorted(fields, key=lambda field: field[0])


@lru_cache(maxsize=2048)
def opens(name: bytes) -> bool:
    """Whether a field's name looks like a key, although `request.NOTABLE` does not contain it."""
    plain = name.replace(b"_", b"-")
    return plain not in _OPENS_NOTHING and not plain.startswith(b"sec-") and _OPENS.search(plain) is not None


def _credential(name: bytes) -> bool:
    return bool(NOTABLE[name]) and name not in _OWN and _TOKEN.fullmatch(name) is not None
