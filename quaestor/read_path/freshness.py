"""The rules of RFC 9111 for storing and for lifetimes, as pure functions. Headers are raw lower-case (name, value) pairs.

Heuristic freshness (section 4.2.2) is never used here: the estimator gives the lifetimes, and the handler's explicit ones only
shorten them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

Headers = Iterable[tuple[bytes, bytes]]

STORABLE_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 410})
"""The heuristically cacheable status codes (RFC 9110, section 15.1) that depend on records. Left out: 206 (parts), 405, 414, 501
(they depend on the code), and all 5xx errors."""

MAX_FIELD_BYTES = 8192
_LIFETIME_FIELDS = frozenset({b"cache-control", b"expires"})
_MAX_DELTA_S = 2**31
_TIME = rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_FIXED_DATE = re.compile(
    rb"(?:mon|tue|wed|thu|fri|sat|sun), (?P<day>\d\d) (?P<month>[a-z]{3}) (?P<year>\d{4}) " + _TIME + rb" gmt"
)
_RFC_850_DATE = re.compile(
    rb"(?:mon|tues|wednes|thurs|fri|satur|sun)day, (?P<day>\d\d)-(?P<month>[a-z]{3})-(?P<year>\d\d) " + _TIME + rb" gmt"
)
_ASCTIME_DATE = re.compile(
    rb"(?:mon|tue|wed|thu|fri|sat|sun) (?P<month>[a-z]{3}) (?P<day>[ \d]\d) " + _TIME + rb" (?P<year>\d{4})"
)
_MONTHS = {
    name: number for number, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)
}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return every value of a field, in order."""
    return [value for field, value in headers if field == name]


def cache_control(headers: Headers) -> Mapping[str, str | None]:
    """Return the directives of every Cache-Control field (section 5.2), names in lower case.

    Garbage between commas is skipped, and space around a `=` spoils the argument; O(size). Of a repeated directive the first
    value counts, of a repeated lifetime the smallest (section 4.2.1). A field longer than MAX_FIELD_BYTES counts as `no-store`.
    """
    headers = tuple(headers)
    if b"cache-control" not in dict(headers):
        return {}
    text = b",".join([value for field, value in headers if field == b"cache-control"])
    if not text:
        return {}
    if len(text) > MAX_FIELD_BYTES:
        return {"no-store": None}
    directives: dict[str, str | None] = {}
    for piece in _pieces(text.decode("latin-1")):
        name, assigned, argument = piece.partition("=")
        name = name.lstrip().lower()
        if assigned and name != (name := name.rstrip()):
            argument = ""  # space before the "=": malformed
        name = name.rstrip()
        if _TOKEN.fullmatch(name) is None:
            continue
        value = argument.rstrip().strip('"') if assigned else None
        if name in directives and name in ("max-age", "s-maxage"):
            value = str(min(delta_s(value), delta_s(directives[name])))
        elif name in directives:
            continue
        directives[name] = value
    return directives


def delta_s(value: str | None) -> int:
    """Return a lifetime in seconds (section 1.2.2). Anything but a number counts as 0: stale (section 4.2.1)."""
    if value is None or not value.isascii() or not value.isdigit():
        return 0
    return _MAX_DELTA_S if len(value) > 10 else min(int(value), _MAX_DELTA_S)


def refusal(status: int, headers: Headers, *, personal: bool = False) -> str | None:
    """Return the reason why a shared cache must not or should not store this answer (section 3), or None.

    personal: only clients of one audience receive it, so it may be `private`.

    Stricter than the RFC where it leaves a choice. `Set-Cookie` is personal, `no-cache` is not worth keeping, and the
    qualified forms (`private="x"`) count as the plain ones.
    """
    headers = list(headers)
    if status not in STORABLE_STATUSES:
        return "status"
    names = dict(headers)
    if b"set-cookie" in names:
        return "set-cookie"
    directives = cache_control(headers) if b"cache-control" in names else {}
    for directive in ("no-store", "private", "no-cache"):
        if directive in directives and not (personal and directive == "private"):
            return directive
    if b"content-range" in names:
        return "partial"
    if b"vary" in names and any(b"*" in value for value in values(headers, b"vary")):
        return "vary"
    return None


def shared_lifetime_s(headers: Headers, *, now_s: float) -> int | None:
    """Return for how long the handler allows a shared cache to use this answer (section 4.2.1); None: unspecified."""
    headers = list(headers)
    if _LIFETIME_FIELDS.isdisjoint(dict(headers)):
        return None
    directives = cache_control(headers)
    for directive in ("s-maxage", "max-age"):
        if directive in directives:
            return delta_s(directives[directive])
    return _expires_in_s(headers, now_s=now_s)


def client_lifetime_s(headers: Headers, *, now_s: float) -> int | None:
    """Return for how long the handler allows a browser to use this answer; None: unspecified."""
    headers = list(headers)
    if _LIFETIME_FIELDS.isdisjoint(dict(headers)):
        return None
    directives = cache_control(headers)
    if "max-age" in directives:
        return delta_s(directives["max-age"])
    return _expires_in_s(headers, now_s=now_s)


def current_age_s(stored_at_ms: int, now_ms: int) -> int:
    """Return the age of an answer made here (section 4.2.3): resident time in seconds, rounded down, never negative."""
    return max(0, now_ms - stored_at_ms) // 1000


def http_date_s(value: bytes) -> float | None:
    """Return an HTTP date (RFC 9110, section 5.6.7) in seconds since the epoch; None if the value is none.

    The value must have exactly one of the three forms, in any letter case. Two-digit years before 70 belong to this century.
    """
    if len(value) > 64:
        return None
    text = value.strip().lower()
    match = _FIXED_DATE.fullmatch(text) or _RFC_850_DATE.fullmatch(text) or _ASCTIME_DATE.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    year = int(part["year"])
    if len(part["year"]) == 2:
        year += 2000 if year < 70 else 1900
    hour, minute, second = (int(part[name]) for name in ("hour", "minute", "second"))
    try:
        # A leap second counts as the one before it.
        moment = datetime(year, _MONTHS[part["month"]], int(part["day"]), hour, minute, min(second, 59), tzinfo=UTC)
    except (ValueError, KeyError):
        return None
    return moment.timestamp() if second <= 60 else None


def _pieces(text: str) -> list[str]:
    """Return the pieces between commas outside quoted strings; an unterminated string quotes nothing."""
    if '"' not in text:
        return text.split(",")
    pieces: list[str] = []
    start = 0
    quoted = escaped = False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            pieces.append(text[start:at])
            start = at + 1
    rest = text[start:]
    return pieces + (rest.split(",") if quoted else [rest])


def _expires_in_s(headers: list[tuple[bytes, bytes]], *, now_s: float) -> int | None:
    fields = values(headers, b"expires")
    if not fields:
        return None
    moments = [http_date_s(value) for value in fields]
    return min(0 if moment is None else max(0, int(moment - now_s)) for moment in moments)
