"""Outgoing header fields of an answer, for browsers, CDNs and people.

Answers from an entry carry `Cache-Control` for browsers, `CDN-Cache-Control` (RFC 9213) and tags for CDNs that we purge,
`ETag`, `Age` and `Cache-Status` (RFC 9211). Answers that nobody may keep say so. What the handler sent stays, in order,
duplicates kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

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
LIFETIME = b"quaestor-ttl"
"""How long clients that consult the Cache Sketch may keep an answer; see docs/sketch_clients.md."""
AT_STEP_MS = 100
"""An answer may leave so much later than its lifetime says."""
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
"""What a 304 carries (RFC 9110, section 15.4.5), CDN tags besides."""
_OF_THE_CONTENT = frozenset(
    {
        b"accept-ranges", b"content-digest", b"content-disposition", b"content-encoding", b"content-language",
        b"content-length", b"content-md5", b"content-range", b"content-type", b"repr-digest", b"transfer-encoding",
    }
)  # fmt: skip
"""What a 304 does not repeat."""
UNKEYED = (b"vary", EVERYTHING)
"""On an answer whose handler read all fields: nobody outside can tell for which requests it is."""
_UNSEEN = frozenset({b"cookie", EVERYTHING})
"""What an answer may vary by that a page cannot see."""
_MAX_AGE = re.compile(rb"\bmax-age=[0-9]+")


def varying(policy: RoutePolicy, given: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The value of `Vary` beside what the handler said: the declared fields, in the order of their names.

    `*` where nobody knows what decides for whom an answer is.
    """
    names = {*policy.headers, *(policy.reads or ())} if policy.vary_known else {EVERYTHING}
    if policy.cookies:
        names.add(b"cookie")
    if not names:
        return b""
    said = _varied_by(given)
    if EVERYTHING in said:
        return b""
    return EVERYTHING if EVERYTHING in names else b", ".join(sorted(names - said))


def _varied_by(fields: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """The names in the `Vary` of an answer."""
    return {piece.strip() for name, value in fields if name == b"vary" for piece in value.lower().split(b",")}


def lives_s(
    resident: Resident, policy: RoutePolicy, *, estimated: bool, sketch: bool = False, cdn_at_most_s: int | None = None
) -> tuple[int, int]:
    """The lifetimes of an entry's copies in browsers and in purged CDNs, in seconds: never longer than in our own store.

    Browsers: what the route says; else, if they consult the Cache Sketch (`estimated`), as long as is estimated, or the handler
    lets them; else 0: they ask with the ETag every time. An answer for some only is kept for as long as the route says or not at
    all: whoever shares the browser may log in next. Where our own field carries its lifetime (`sketch`), or where nobody knows
    what decides for whom it is, that is 0. CDNs: what is estimated, or what the route or the handler's own
    CDN-Cache-Control shorten it to, or what is safe while a CDN is behind with its purges (`cdn_at_most_s`).
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
    """The parameters of Cache-Status for an answer from an entry.

    left_s: rest of its life. A short one would look like a fault where the reason is the probation of its route.
    """
    return b"hit; ttl=%d%s" % (left_s, b"; detail=probation" if response.provisional else b"")


def kept_until_ms(resident: Resident, policy: RoutePolicy, fields: RawHeaders) -> int:
    """The end of the lifetime that clients with the Cache Sketch may be told of an entry; 0: none.

    At most what the sketch was told, what the route says for browsers, and what the handler lets them. None if it varies by what
    a page cannot see: copies of one cookie's answer would be used for another's. An answer for one user may vary by cookies all
    the same: its client forgets it when the user changes.
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


@lru_cache(maxsize=256)
def _must_revalidate(whose: bytes, lives_s: int, further: bytes) -> tuple[bytes, bytes]:
    """Cache-Control of an answer that browsers keep for so long: one field for all entries that are told the same."""
    return (b"cache-control", b"%s, max-age=%d, must-revalidate%s" % (whose, lives_s, further))


class _Rendered:
    """What is kept beside a resident entry: the fields that never change, and the whole list for one step.

    cdn_at_most_s: the bound of what CDNs are handed, when the fixed fields were made; None: there is none.
    kept_until_ms: when the lifetime ends that clients with the Cache Sketch are told; 0: they are told none.
    further: what else they are told of it: partition of the sketch, whose it is.
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
    leaves_copies: whether anybody outside is allowed to keep an answer without asking, and without looking into the sketch.
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
        """Whether anybody outside may keep an answer of this route without asking, be it after a look into the sketch."""
        return self.leaves_to_all(policy) or (self._sketch and policy.browser_ttl_ms != 0 and policy.vary_known)

    def leaves_to_all(self, policy: RoutePolicy) -> bool:
        """Whether others than clients with the sketch may keep an answer of this route without asking."""
        if policy.personal:
            return bool(policy.browser_ttl_ms) and policy.vary_known and not self._sketch
        return bool(policy.browser_ttl_ms) or self.leaves_copies

    def hides_use(self, resident: Resident, policy: RoutePolicy) -> bool:
        """Whether a CDN may answer the next requests for this entry, so that nobody here sees how often it is asked for."""
        response = resident.response
        if not self._cdn or policy.personal or is_explicit(response) or UNKEYED in response.headers:
            return False
        return self._lives_s(resident, policy, self._cdn_at_most_s())[1] > 0

    def hit(self, resident: Resident, now_ms: int, policy: RoutePolicy = DEFAULT) -> RawHeaders:
        """The fields of a hit. The caller must not change the list; it is made anew once a step at most."""
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
        """The fields of an answer from an entry.

        how: the parameters of Cache-Status.
        received: the entry was made of the very answer that is sent; then an origin's own word of its age stands.
        layer: where it comes from, for people.
        """
        response = resident.response
        rendered = resident.rendered
        at_most_s = self._cdn_at_most_s()
        if rendered is None or rendered.cdn_at_most_s != at_most_s:
            fixed = self._fixed(resident, policy, at_most_s)
            until_ms = kept_until_ms(resident, policy, fixed) if self._sketch else 0
            told = (b";sketch=" + response.partition.encode()) if response.partition else b""
            told += b";private" if policy.personal else b""
            rendered = resident.rendered = _Rendered(fixed, at_most_s, until_ms, told)
        age = [(b"age", b"%d" % current_age_s(resident.copies_from_ms, now_ms))]
        if received and is_explicit(response):
            age = [field for field in response.headers if field[0] == b"age"]
        headers = [*rendered.fixed, *age, (b"cache-status", b"%s; %s" % (CACHE, how))]
        at_ms = now_ms - now_ms % AT_STEP_MS  # this list goes out for as long as the step lasts
        # Of a time that has not come yet, because the clock was set back, nobody is told a lifetime: it could be days.
        begun = resident.copies_from_ms <= now_ms + COPY_SLACK_MS
        if begun and (left_ms := rendered.kept_until_ms - at_ms) > 0:
            # 0 is told as well: an answer without the field is taken for one that nobody guards, and asked for again.
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
        """The fields of an answer that its 304 carries."""
        return [(name, value) for name, value in headers if name in self._not_modified]

    def handler_has_it(self, headers: RawHeaders) -> RawHeaders:
        """The fields of a handler's own 200 for a client that has it already: what speaks of the content it holds is left out."""
        tagged = any(name.lower() == b"etag" for name, _ in headers)
        return [
            (name, value)
            for name, value in headers
            if name.lower() not in _OF_THE_CONTENT and not (tagged and name.lower() == b"last-modified")
        ]

    def to_be_revalidated(self, headers: RawHeaders) -> RawHeaders:
        """The fields of an answer for a browser that no sketch would tell that its copy has changed (`Target.own`)."""
        return [
            (name, _MAX_AGE.sub(b"max-age=0", value) if name == b"cache-control" else value)
            for name, value in headers
            if name != LIFETIME
        ]

    def without_leave(self, headers: RawHeaders) -> RawHeaders:
        """The fields of an answer for somebody who must not keep it."""
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
        """The fields of a handler's own answer that was not stored."""
        # A lifetime is for the clients of one sketch: if the handler has handed one on, it is another sketch's.
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
        because = f"; detail={reasons[0]}".encode("ascii", "replace") if reasons else b""
        fields.append((b"cache-status", b"%s; %s%s" % (CACHE, how, because)))
        if self._debug:
            text = explaining.withheld(reasons, detail, policy)
            fields.append((b"x-quaestor-explain", explaining.field(text)))
        return fields

    def _cdn_at_most_s(self) -> int | None:
        """How long copies in CDNs may live now, because one of them is behind with its purges; None: as long as otherwise."""
        at_most_ms = min((ms for one in self._bounded if (ms := one.copies_live_ms()) is not None), default=None)
        return None if at_most_ms is None else at_most_ms // 1000

    def _lives_s(self, resident: Resident, policy: RoutePolicy, cdn_at_most_s: int | None) -> tuple[int, int]:
        return lives_s(resident, policy, estimated=self._estimated, sketch=self._sketch, cdn_at_most_s=cdn_at_most_s)

    def _lifetime_headers(self, *, lives_s: int, until_s: int) -> RawHeaders:
        """What CDNs are told of a lifetime that do not know CDN-Cache-Control."""
        told = (one.lifetime_headers(lives_s=lives_s, until_s=until_s) for one in self._lifetimes)
        return list(dict.fromkeys(header for headers in told for header in headers))

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
            for adapter in self._cdn:
                fixed += adapter.response_headers(response.tags)
        return fixed
