"""The rules of a shared cache (RFC 9111) for answers that only their own header fields vouch for: storing and lifetimes. Pure.

Used in explicit mode, for answers that depend on no captured query. Heuristic freshness (section 4.2.2) is optional.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from quaestor.model import CachedResponse
from quaestor.read_path import structured, validation
from quaestor.read_path.entries import Answer
from quaestor.read_path.freshness import Headers, cache_control, delta_s, http_date_s, values

UNDERSTOOD = frozenset({200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501})
"""Status codes whose caching requirements are met here, for `must-understand` (section 5.2.2.3)."""
_DIGITS = re.compile(rb"\s*([0-9]{1,18})\s*")
_NEVER_STORED = frozenset({206, 304})
MAX_LIFETIME_S = 2**31
"""Upper bound of a lifetime (section 1.2.2)."""
HEURISTIC = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
"""Status codes with a heuristic lifetime without the origin's permission (RFC 9110, section 15.1); 206 is not stored."""
MAX_HEURISTIC_S = 86_400
"""The longest heuristic lifetime."""


@dataclass(frozen=True, slots=True)
class Directives:
    """The cache directives that apply to us.

    targeted: they come from CDN-Cache-Control, so Cache-Control and Expires do not count.
    """

    named: Mapping[str, str | None]
    targeted: bool

    def __contains__(self, name: str) -> bool:
        return name in self.named

    def lifetime_s(self, name: str) -> int | None:
        """Return the argument of a directive in seconds; None if it is absent."""
        return delta_s(self.named[name]) if name in self.named else None


_GOVERNING = frozenset({b"cache-control", b"cdn-cache-control"})
_NOTHING_SAID = Directives({}, targeted=False)


def governing(headers: Headers) -> Directives:
    """Return the directives of CDN-Cache-Control if it is there and well-formed (RFC 9213, section 2.1), else of Cache-Control.

    A lifetime that is no number makes the targeted field malformed.
    """
    headers = list(headers)
    if _GOVERNING.isdisjoint(dict(headers)):
        return _NOTHING_SAID
    fields = values(headers, b"cdn-cache-control")
    members = structured.dictionary(fields) if fields else None
    directives: dict[str, str | None] = {}
    for name, item in (members or {}).items():
        if name in _LIFETIMES and (isinstance(item, bool) or not isinstance(item, int)):
            members = None
            break
        if item is not False:
            directives[name] = str(item) if isinstance(item, int | str) and item is not True else None
    if members is None:
        return Directives(cache_control(headers), targeted=False)
    return Directives(directives, targeted=True)


_LIFETIMES = frozenset({"max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"})


def lifetime_s(headers: Headers, *, now_s: float) -> int | None:
    """Return the lifetime of an answer (section 4.2.1): s-maxage, max-age, or Expires minus Date; None if all are absent. Invalid
    values count as 0.

    now_s: when the answer came; it replaces a missing or malformed Date (RFC 9110, section 6.6.1), but not a repeated one.
    """
    headers = list(headers)
    directives = governing(headers)
    for name in ("s-maxage", "max-age"):
        if (said_s := directives.lifetime_s(name)) is not None:
            return said_s
    expires = values(headers, b"expires")
    if not expires or directives.targeted:
        return None
    dates = values(headers, b"date")
    made_s = None if len(dates) > 1 else next((said for said in map(http_date_s, dates) if said is not None), now_s)
    ends = [http_date_s(value) for value in expires]
    if made_s is None or any(end is None for end in ends):
        return 0
    return max(0, min(MAX_LIFETIME_S, int(min(end for end in ends if end is not None) - made_s)))


def heuristic_lifetime_s(status: int, headers: Headers, *, fraction: float, now_s: float) -> int | None:
    """Return the heuristic lifetime of an answer without an explicit one (section 4.2.2), in seconds; None if there is none.

    fraction: of the time between its last change and its making; 0: never.
    now_s: see lifetime_s().
    """
    headers = list(headers)
    changed = values(headers, b"last-modified")
    if fraction <= 0 or len(changed) != 1:
        return None
    if status not in HEURISTIC and "public" not in governing(headers):
        return None
    dates = values(headers, b"date")
    made_s = now_s if not dates else http_date_s(dates[0]) if len(dates) == 1 else None
    changed_s = http_date_s(changed[0])
    if made_s is None or changed_s is None or changed_s >= made_s:
        return None
    return min(MAX_HEURISTIC_S, int((made_s - changed_s) * fraction))


def refusal(
    status: int,
    headers: Headers,
    *,
    credentials: bool,
    now_s: float,
    authorization_only: bool = False,
    unlisted: Collection[bytes] = (),
    heuristic: float = 0.0,
) -> str | None:
    """Return the reason why a shared cache must not store this answer to a GET (section 3), or gains nothing; None: it may.

    Stricter than the RFC: `Set-Cookie` is personal, and the qualified forms of `private` and `no-cache` count as the plain
    ones. A Content-Range on anything but a 206 means nothing (RFC 9110, section 14.4).

    credentials: the request carried some, in whichever field; then section 3.5 applies.
    authorization_only: `Authorization` was the only one.
    unlisted: see shared().
    heuristic: see heuristic_lifetime_s().
    """
    headers = list(headers)
    directives = governing(headers)
    if status < 200 or status in _NEVER_STORED:
        return "status"
    if "must-understand" in directives:
        if status not in UNDERSTOOD:
            return "status"
    elif "no-store" in directives:
        return "no-store"
    if "private" in directives:
        return "private"
    names = {name for name, _ in headers}
    if b"set-cookie" in names or b"set-cookie2" in names:
        return "set-cookie"
    if any(b"*" in value for value in values(headers, b"vary")):
        return "vary"
    if credentials and not shared(headers, authorization_only=authorization_only, unlisted=unlisted):
        return "credentials"
    lifetime = lifetime_s(headers, now_s=now_s)
    if lifetime is None:
        lifetime = heuristic_lifetime_s(status, headers, fraction=heuristic, now_s=now_s)
    if lifetime is None and not ("no-cache" in directives and has_validator(headers)):
        return "unspecified"
    return None


def shared(headers: Headers, *, authorization_only: bool = False, unlisted: Collection[bytes] = ()) -> bool:
    """Whether the origin allows answers to requests with credentials to be shared: `public` and `s-maxage` concern all clients
    and shared caches.

    unlisted: fields that are the only credentials (`RequestFacts.unlisted`). A `Vary` that names them all is enough: requests
        with other values receive another answer.

    For `Authorization` alone `must-revalidate` is enough as well (section 3.5). The RFC does not mention cookies and keys, and
    frameworks add that directive to personal pages. With cookies or keys neither it nor `max-age` is enough.
    """
    headers = list(headers)
    directives = governing(headers)
    if "public" in directives or "s-maxage" in directives or (authorization_only and "must-revalidate" in directives):
        return True
    named = {name.strip() for value in values(headers, b"vary") for name in value.lower().split(b",")}
    return bool(unlisted) and named.issuperset(unlisted)


def has_validator(headers: Headers) -> bool:
    """Whether an answer can be validated with its origin."""
    return any(name in (b"etag", b"last-modified") for name, _ in headers)


def initial_age_ms(headers: Headers, *, asked_ms: int, answered_ms: int) -> int:
    """Return the corrected_initial_age of section 4.2.3. A non-numeric Age is ignored; of a list the first member counts."""
    headers = list(headers)
    dates = values(headers, b"date")
    made_s = http_date_s(dates[0]) if len(dates) == 1 else None
    apparent_ms = 0 if made_s is None else max(0, answered_ms // 1000 - int(made_s)) * 1000
    said = _DIGITS.fullmatch((values(headers, b"age") or [b""])[0].partition(b",")[0])
    age_s = 0 if said is None else min(int(said[1]), MAX_LIFETIME_S)
    return max(apparent_ms, age_s * 1000 + max(0, answered_ms - asked_ms))


KEPT_MS = (60_000, 86_400_000)
"""Bounds of how long an answer is kept for validation after its lifetime; within them, once more its lifetime."""


def entry(
    answer: Answer,
    *,
    key: str,
    resource: str,
    asked_ms: int,
    answered_ms: int,
    at_most_ms: int | None,
    stale_ms: int,
    heuristic: float = 0.0,
) -> CachedResponse:
    """Return the entry of an answer that refusal() allows. The stored time is earlier by the answer's age on arrival, and never
    later than the request. Anything that has outdated the answer since is newer.

    at_most_ms: the longest lifetime that its route allows.
    stale_ms: how long it may be used stale.
    heuristic: see heuristic_lifetime_s().
    """
    status, headers = answer.status, tuple(answer.headers)
    said_s = lifetime_s(headers, now_s=answered_ms / 1000)
    if said_s is None:
        said_s = heuristic_lifetime_s(status, headers, fraction=heuristic, now_s=answered_ms / 1000)
    lifetime_ms = (said_s or 0) * 1000
    if at_most_ms is not None:
        lifetime_ms = min(lifetime_ms, at_most_ms)
    if "no-cache" in governing(headers):
        lifetime_ms = 0
    stored_at_ms = max(0, answered_ms - initial_age_ms(headers, asked_ms=asked_ms, answered_ms=answered_ms))
    fresh_until_ms = stored_at_ms + lifetime_ms
    kept_ms = max(stale_ms, min(max(lifetime_ms, KEPT_MS[0]), KEPT_MS[1]))
    given = values(headers, b"etag")
    return CachedResponse(
        key=key,
        status=status,
        headers=headers,
        body=answer.body,
        etag=given[0] if len(given) == 1 else validation.strong_etag(answer.body),
        stored_at_ms=stored_at_ms,
        fresh_until_ms=fresh_until_ms,
        registrations=(),
        tags=(),
        resource=resource,
        stale_until_ms=fresh_until_ms + kept_ms,
    )


def is_explicit(response: CachedResponse) -> bool:
    """Whether only its own lifetime guards an entry, and no registration."""
    return not response.registrations
