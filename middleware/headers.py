"""Outgoing header fields of an answer, for browsers, CDNs and people.

Answers from an entry carry `Cache-Control` for browsers, `CDN-Cache-Control` (RFC 9213) and tags for CDNs that we purge,
`ETag`, `Age` and `Cache-Status` (RFC 9211). Answers that must not be kept forbid it. The handler's own fields stay, in order,
with duplicates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from quaestor.clock import End
from quaestor.middleware.interface import RawHeaders
from quaestor.middleware.reticence import Reticence, reticence
from quaestor.model import CachedResponse
from quaestor.policy import DEFAULT, RoutePolicy
from quaestor.ports import BoundedCdn, CdnAdapter, LifetimeCdn
from quaestor.read_path import explaining
from quaestor.read_path.asked_fields import EVERYTHING
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.read_path.freshness import cache_control, client_lifetime_s, current_age_s
from quaestor.read_path.shared_cache_rules import governing, is_explicit
from quaestor.settings import Settings
from quaestor.store.memory import Resident

CACHE = b"Quaestor"
LIVE = (b"quaestor-live", b"accept")
"""For our configurations of caches: `Vary` names `Accept` only because the URL has a stream of events too."""
LIFETIME = b"quaestor-ttl"
"""The lifetime for clients that consult the Cache Sketch; see docs/sketch_clients.md."""
AT_STEP_MS = 100
"""How much later than its lifetime says an answer may leave, at most."""
_NO_STORE = (b"cache-control", b"no-store")
_IN_RANGES = (b"accept-ranges", b"bytes")
_NONE_YET: RawHeaders = []
_LIFETIMES = frozenset(
    {
        b"age", b"cache-control", b"cdn-cache-control", b"expires", b"pragma", b"souin-cache-control", b"surrogate-control",
        b"x-accel-expires", LIFETIME,
    }
)  # fmt: skip
_NOT_MODIFIED = frozenset(
    {
        b"age", b"cache-control", b"cache-status", b"cdn-cache-control", b"content-location", b"date", b"etag", b"expires",
        b"vary", b"x-quaestor-explain", LIFETIME,
    }
)  # fmt: skip
"""Fields that a 304 carries (RFC 9110, section 15.4.5), besides tags for CDNs."""
_OF_THE_CONTENT = frozenset(
    {
        b"accept-ranges", b"content-digest", b"content-disposition", b"content-encoding", b"content-language",
        b"content-length", b"content-md5", b"content-range", b"content-type", b"repr-digest", b"transfer-encoding",
    }
)  # fmt: skip
"""Fields about the content, which a 304 does not repeat."""
UNKEYED = (b"vary", EVERYTHING)
"""On an answer whose handler read all fields: caches outside cannot know which requests it fits."""
_ACCEPT = b"accept"
_UNSEEN = frozenset({b"cookie", EVERYTHING})
"""Names in `Vary` whose values a page cannot see."""
_MAX_AGE = re.compile(rb"\bmax-age=[0-9]+")


def varying(policy: RoutePolicy, given: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the names that `Vary` needs besides the handler's own: the declared fields, sorted.

    `*` where the deciding fields are unknown. A live route answers a stream of events or a plain answer, by `Accept`.
    """
    names = {*policy.headers, *(policy.reads or ())} if policy.vary_known else {EVERYTHING}
    if policy.cookies:
        names.add(b"cookie")
    if policy.live:
        names.add(_ACCEPT)
    if not names:
        return b""
    said = _varied_by(given)
    if EVERYTHING in said:
        return b""
    return EVERYTHING if EVERYTHING in names else b", ".join(sorted(names - said))


def _varied_by(fields: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """Return the names in the `Vary` of an answer."""
    return {piece.strip() for name, value in fields if name == b"vary" for piece in value.lower().split(b",")}


def lives_s(
    resident: Resident, policy: RoutePolicy, *, estimated: bool, sketch: bool = False, cdn_at_most_s: int | None = None
) -> tuple[int, int]:
    """Return the lifetimes of an entry's copies in browsers and in purged CDNs, in seconds. Never longer than in our own store.

    Browsers: the route's lifetime, if it declares one. Otherwise, if clients use estimated lifetimes (`estimated`), the estimate
    or the handler's shorter bound. Otherwise 0: browsers revalidate with the ETag every time. A personal answer is kept only for
    as long as the route declares, because another user of the same browser may log in next. A personal answer's
    lifetime is 0 where our own field carries it (`sketch`), and where the deciding fields are unknown.
    CDNs: the estimate. The route, the handler's own CDN-Cache-Control, and a CDN that is behind with its purges
    (`cdn_at_most_s`) may shorten it.
    """
    response = resident.response
    longest_s = cdn_s = (resident.copies_until_ms - resident.copies_from_ms) // 1000
    client_s = 0
    if policy.personal and (sketch or not policy.vary_known):
        client_s = 0
    elif policy.browser_ttl_ms is not None or policy.personal:
        client_s = min(longest_s, (policy.browser_ttl_ms or 0) // 1000)
    elif estimated:
        allowed_s = client_lifetime_s(response.headers, now_s=response.stored_at_ms / 1000)
        client_s = longest_s if allowed_s is None else min(longest_s, allowed_s)
    if cdn_at_most_s is not None:
        cdn_s = min(cdn_s, cdn_at_most_s)
    if policy.cdn_ttl_ms is not None:
        cdn_s = min(cdn_s, policy.cdn_ttl_ms // 1000)
    said = governing(response.headers)
    if said.targeted:
        forbidden = any(name in said for name in ("no-store", "private", "no-cache"))
        said_s = said.lifetime_s("max-age")
        cdn_s = 0 if forbidden else cdn_s if said_s is None else min(cdn_s, said_s)
    return client_s, cdn_s


def hit(response: CachedResponse, left_s: int) -> bytes:
    """Return the parameters of Cache-Status for an answer from an entry.

    left_s: rest of its life. During its route's probation an entry's life is short; `detail=probation` gives that reason.
    """
    return b"hit; ttl=%d%s" % (left_s, b"; detail=probation" if End.PROBATION in response.ends else b"")


def kept_until_ms(resident: Resident, policy: RoutePolicy, fields: RawHeaders) -> int:
    """Return the end of an entry's lifetime for clients with the Cache Sketch; 0: they may not keep it.

    The bounds are the lifetime that the sketch knows, the route's for browsers, and the handler's. Clients may not keep an entry
    that varies by fields that a page cannot see: a copy for one cookie would be used for another. A personal answer may vary by
    cookies all the same, because its client forgets it when the user changes.
    """
    if not resident.reported_until_ms or policy.browser_ttl_ms == 0:
        return 0
    unseen = _UNSEEN - {b"cookie"} if policy.personal else _UNSEEN
    if not unseen.isdisjoint(_varied_by(fields)):
        return 0
    response = resident.response
    bounds_ms = [resident.reported_until_ms]
    if policy.browser_ttl_ms is not None:
        bounds_ms.append(resident.copies_from_ms + policy.browser_ttl_ms)
    elif (allowed_s := client_lifetime_s(response.headers, now_s=response.stored_at_ms / 1000)) is not None:
        bounds_ms.append(resident.copies_from_ms + allowed_s * 1000)
    return min(bounds_ms)


def _age_s(resident: Resident, now_ms: int) -> int:
    """Return the age of a copy in whole seconds. Of an answer that ends by the clock, lifetime less age never exceeds the rest of
    its life."""
    if End.CLOCK not in resident.response.ends:
        return current_age_s(resident.copies_from_ms, now_ms)
    latest_ms = now_ms - now_ms % AT_STEP_MS + AT_STEP_MS - 1 - resident.copies_from_ms
    lost_ms = (resident.copies_until_ms - resident.copies_from_ms) % 1000  # max-age has whole seconds
    return max(0, latest_ms - lost_ms + 999) // 1000


@lru_cache(maxsize=256)
def _must_revalidate(whose: bytes, lives_s: int, further: bytes) -> tuple[bytes, bytes]:
    """Return Cache-Control for copies in browsers. The cache makes entries with equal lifetimes share one field."""
    return (b"cache-control", b"%s, max-age=%d, must-revalidate%s" % (whose, lives_s, further))


class _Rendered:
    """The rendered fields of a resident entry: the fixed ones, and the whole list for one step.

    cdn_at_most_s: the bound on copies in CDNs when the fixed fields were made; None: there was none.
    kept_until_ms: end of the lifetime for clients with the Cache Sketch; 0: they may not keep it.
    further: further parameters for such clients: the sketch's partition, and `private`.
    """

    __slots__ = ("cdn_at_most_s", "fixed", "further", "headers", "kept_until_ms", "step")

    def __init__(self, fixed: RawHeaders, cdn_at_most_s: int | None, kept_until_ms: int, further: bytes) -> None:
        self.fixed = tuple(fixed)
        self.cdn_at_most_s = cdn_at_most_s
        self.kept_until_ms = kept_until_ms
        self.further = further
        self.step = -1
        self.headers: RawHeaders = _NONE_YET


class HeaderPolicy:
    """The maker of outgoing header fields; one per middleware.

    cdn: the adapters whose CDNs may keep copies.
    purges: whether there is any.
    leaves_copies: whether any cache outside may keep an answer without revalidation and without the sketch.
    """

    def __init__(self, settings: Settings, cdn: Sequence[CdnAdapter]) -> None:
        self._cdn = tuple(cdn)
        self._bounded = tuple(adapter for adapter in cdn if isinstance(adapter, BoundedCdn))
        self._lifetimes = tuple(adapter for adapter in cdn if isinstance(adapter, LifetimeCdn))
        self._estimated = settings.lifetimes.client_ttl == "estimated"
        self._sketch = settings.lifetimes.client_ttl == "sketch"
        self._debug = settings.observability.debug_header
        self._explicit = settings.lifetimes.explicit
        self._not_modified = _NOT_MODIFIED | {
            name for adapter in self._cdn for name, _ in adapter.response_headers(("t",))
        }
        self._not_modified |= {name for name, _ in self._lifetime_headers(lives_s=0, until_s=0)}
        self.purges = bool(cdn)
        self.leaves_copies = self.purges or self._estimated

    def leaves(self, policy: RoutePolicy) -> bool:
        """Whether any cache outside may keep an answer of this route without revalidation, with the sketch or without."""
        return self.leaves_to_all(policy) or (self._sketch and policy.browser_ttl_ms != 0 and policy.vary_known)

    def leaves_to_all(self, policy: RoutePolicy) -> bool:
        """Whether caches outside that do not use the sketch may keep an answer of this route without revalidation."""
        if policy.personal:
            return bool(policy.browser_ttl_ms) and policy.vary_known and not self._sketch
        return bool(policy.browser_ttl_ms) or self.leaves_copies

    def hides_use(self, resident: Resident, policy: RoutePolicy) -> bool:
        """Whether a CDN may answer the next requests for this entry, so that this process does not see how often it is used."""
        response = resident.response
        if not self._cdn or policy.personal or is_explicit(response) or UNKEYED in response.headers:
            return False
        return self._lives_s(resident, policy, self._cdn_at_most_s())[1] > 0

    def hit(self, resident: Resident, now_ms: int, policy: RoutePolicy = DEFAULT) -> RawHeaders:
        """Return the fields of a hit. The caller must not change the list: it is shared until the step ends."""
        rendered = resident.rendered
        step = now_ms // AT_STEP_MS
        if rendered is not None and rendered.step == step:
            headers: RawHeaders = rendered.headers
            return headers
        response = resident.response
        left_s = max(0, response.fresh_until_ms - now_ms) // 1000
        headers = self.stored(resident, now_ms, hit(response, left_s), policy)
        rendered = resident.rendered
        rendered.headers, rendered.step = headers, step
        return headers

    def stored(
        self,
        resident: Resident,
        now_ms: int,
        how: bytes,
        policy: RoutePolicy = DEFAULT,
        *,
        received: bool = False,
        layer: str = "memory",
    ) -> RawHeaders:
        """Return the fields of an answer from an entry.

        how: the parameters of Cache-Status.
        received: the entry was made of the very answer that is sent; then an origin's own `Age` stays.
        layer: the entry's store, for people.
        """
        response = resident.response
        rendered = resident.rendered
        at_most_s = self._cdn_at_most_s()
        if rendered is None or rendered.cdn_at_most_s != at_most_s:
            fixed = self._fixed(resident, policy, at_most_s)
            until_ms = kept_until_ms(resident, policy, fixed) if self._sketch else 0
            parameters = (b";sketch=" + response.partition.encode()) if response.partition else b""
            parameters += b";private" if policy.personal else b""
            rendered = resident.rendered = _Rendered(fixed, at_most_s, until_ms, parameters)
        age = [(b"age", b"%d" % _age_s(resident, now_ms))]
        if received and is_explicit(response):
            age = [field for field in response.headers if field[0] == b"age"]
        headers = [*rendered.fixed, *age, (b"cache-status", b"%s; %s" % (CACHE, how))]
        at_ms = now_ms - now_ms % AT_STEP_MS  # the list is reused for as long as the step lasts
        # After the clock was set back, copies may begin in the future. Their lifetime could be days, so none is sent.
        begun = resident.copies_from_ms <= now_ms + COPY_SLACK_MS
        if begun and (left_ms := rendered.kept_until_ms - at_ms) > 0:
            # 0 is sent as well: clients take an answer without the field for an unguarded one, and request it again.
            headers.append((LIFETIME, b"%d;at=%d%s" % (left_ms // 1000, at_ms, rendered.further)))
        if self._debug:
            browser_s, cdn_s = self._lives_s(resident, policy, at_most_s)
            text = explaining.entry(
                response, policy,
                known=resident.explain, layer=layer, browser_s=browser_s, cdn_s=cdn_s if self._cdn else 0, now_ms=now_ms,
            )  # fmt: skip
            headers.append((b"x-quaestor-explain", explaining.field(text)))
        return headers

    def not_modified(self, headers: RawHeaders) -> RawHeaders:
        """Return the fields that the 304 of an answer carries."""
        return [(name, value) for name, value in headers if name in self._not_modified]

    def handler_has_it(self, headers: RawHeaders) -> RawHeaders:
        """Return the fields of a handler's own 200 for a client that has it already, without those about the content."""
        tagged = any(name.lower() == b"etag" for name, _ in headers)
        return [
            (name, value)
            for name, value in headers
            if name.lower() not in _OF_THE_CONTENT and not (tagged and name.lower() == b"last-modified")
        ]

    def to_be_revalidated(self, headers: RawHeaders) -> RawHeaders:
        """Return the fields of an answer for a browser whose sketch does not cover the copy (`Target.own`)."""
        return [
            (name, _MAX_AGE.sub(b"max-age=0", value) if name == b"cache-control" else value)
            for name, value in headers
            if name != LIFETIME
        ]

    def without_leave(self, headers: RawHeaders) -> RawHeaders:
        """Return the fields of an answer that its receiver must not keep."""
        return [*((name, value) for name, value in headers if name not in _LIFETIMES), _NO_STORE]

    def withheld(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        reasons: Sequence[str],
        how: bytes,
        detail: str = "",
        policy: RoutePolicy | None = None,
    ) -> RawHeaders:
        """Return the fields of a handler's own answer that was not stored."""
        # A lifetime is valid with one sketch only: a lifetime in the handler's answer belongs to another sketch.
        fields = [field for field in headers if field[0].lower() != LIFETIME]
        match reticence(status, reasons, explicit=self._explicit):
            case Reticence.FORBIDDEN:
                fields = self.without_leave([(name.lower(), value) for name, value in fields])
            case Reticence.UNSTORED:
                fields = [(name.lower(), value) for name, value in fields]
                transform = b", no-transform" if "no-transform" in cache_control(fields) else b""
                kept = [field for field in fields if field[0] not in _LIFETIMES]
                fields = [*kept, (b"cache-control", b"private, no-cache" + transform)]
            case Reticence.PERSONAL | Reticence.UNKNOWN as reserve:
                if not any(name.lower() == b"cache-control" for name, _ in fields):
                    whose = b"private, " if reserve is Reticence.PERSONAL else b""
                    fields.append((b"cache-control", whose + b"no-cache"))
            case _:
                pass
        if policy is not None and policy.live and _varied_by(fields).isdisjoint((_ACCEPT, EVERYTHING)):
            fields.append((b"vary", _ACCEPT))
        because = f"; detail={reasons[0]}".encode("ascii", "replace") if reasons else b""
        fields.append((b"cache-status", b"%s; %s%s" % (CACHE, how, because)))
        if self._debug:
            text = explaining.withheld(reasons, detail, policy)
            fields.append((b"x-quaestor-explain", explaining.field(text)))
        return fields

    def _cdn_at_most_s(self) -> int | None:
        """Return the bound on copies in CDNs while one of them is behind with its purges, in seconds; None: no bound."""
        at_most_ms = min((ms for cdn in self._bounded if (ms := cdn.copies_live_ms()) is not None), default=None)
        return None if at_most_ms is None else at_most_ms // 1000

    def _lives_s(self, resident: Resident, policy: RoutePolicy, cdn_at_most_s: int | None) -> tuple[int, int]:
        return lives_s(resident, policy, estimated=self._estimated, sketch=self._sketch, cdn_at_most_s=cdn_at_most_s)

    def _lifetime_headers(self, *, lives_s: int, until_s: int) -> RawHeaders:
        """Return the lifetime fields for CDNs that do not know CDN-Cache-Control."""
        header_lists = (cdn.lifetime_headers(lives_s=lives_s, until_s=until_s) for cdn in self._lifetimes)
        return list(dict.fromkeys(header for headers in header_lists for header in headers))

    def _fixed(self, resident: Resident, policy: RoutePolicy, cdn_at_most_s: int | None) -> RawHeaders:
        response = resident.response
        given = response.headers
        if is_explicit(response) and not policy.personal:
            names = varying(policy, given)
            return [
                *(field for field in given if field[0] not in (b"age", LIFETIME)),
                *([(b"vary", names)] if names else []),
            ]
        client_s, cdn_s = self._lives_s(resident, policy, cdn_at_most_s)
        transform = b", no-transform" if "no-transform" in cache_control(given) else b""
        fixed = [field for field in given if field[0] not in _LIFETIMES and field[0] != b"etag"]
        fixed.append((b"etag", response.etag))
        if response.status == 200 and not any(name == b"accept-ranges" for name, _ in given):
            fixed.append(_IN_RANGES)
        unkeyed = UNKEYED in given
        whose = b"private" if policy.personal or unkeyed else b"public"
        fixed.append(_must_revalidate(whose, client_s, transform))
        if names := varying(policy, given):
            fixed.append((b"vary", names))
        if self._cdn and not policy.personal and not unkeyed:
            fixed.append((b"cdn-cache-control", b"max-age=%d%s" % (cdn_s, transform)))
            fixed += self._lifetime_headers(lives_s=cdn_s, until_s=resident.copies_from_ms // 1000 + cdn_s)
            if policy.live and _ACCEPT not in _varied_by(given):
                fixed.append(LIVE)
            for adapter in self._cdn:
                fixed += adapter.response_headers(response.tags)
        return fixed
