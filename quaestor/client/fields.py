"""Header fields for clients with the sketch: `Quaestor-TTL` and `Quaestor-Sketch`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import http_sf

_LIFETIME = re.compile(
    r"(?P<ttl>[0-9]{1,8});at=(?P<at>[0-9]{1,15})(?:;sketch=(?P<sketch>(?!\.{1,2}(?:;|$))[A-Za-z0-9._~-]{1,64}))?(?P<private>;private)?"
)
_MAX_MS = 10**15


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Lifetime of a copy of an answer, in ms since the epoch by the server's clock.

    at_ms: when it left the server, or up to a second before.
    until_ms: end of its lifetime.
    sketch: the partition of the Cache Sketch that covers it; empty: the whole.
    private: whether it was made for one user.
    """

    at_ms: int
    until_ms: int
    sketch: str = ""
    private: bool = False


def lifetime(headers: Mapping[str, str]) -> Lifetime | None:
    """Return the lifetime in an answer; None if there is none, or a malformed one."""
    match = _LIFETIME.fullmatch(headers.get("quaestor-ttl", ""))
    if match is None:
        return None
    at_ms = int(match["at"])
    return Lifetime(at_ms, at_ms + int(match["ttl"]) * 1000, match["sketch"] or "", match["private"] is not None)


@dataclass(frozen=True, slots=True)
class SketchField:
    """The field `Quaestor-Sketch` of a sketch.

    made_ms: the server's clock when it was made: every earlier write is included.
    delta_s: Δ that the server recommends; None if it does not.
    nonce: the number that was sent, repeated; 0 if none.
    off: whether clients must keep nothing.
    """

    made_ms: int
    delta_s: float | None
    nonce: int
    off: bool


def sketch_field(headers: Mapping[str, str]) -> SketchField | None:
    """Return the field of an answer; None if it is absent, or malformed."""
    try:
        said: Any = http_sf.parse(headers.get("quaestor-sketch", "").encode(), tltype="dictionary")
        values = {name: item[0] for name, item in said.items()}
        made_ms, nonce, delta_s = values["made"], values.get("nonce", 0), values.get("delta")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if type(made_ms) is not int or not 0 < made_ms < _MAX_MS:
        return None
    try:
        seconds = None if delta_s is None else float(delta_s)
    except (TypeError, ValueError):
        seconds = None
    if seconds is not None and seconds < 0:
        seconds = None
    off = values.get("off", False) is not False
    return SketchField(made_ms, seconds, nonce if type(nonce) is int else 0, off)


def date_ms(headers: Mapping[str, str]) -> int:
    """Return the `Date` of an answer in ms since the epoch, plus its `Age`; 0 without a readable `Date`."""
    try:
        date = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return 0
    age = headers.get("age", "")
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return int(date.timestamp() + (int(age) if re.fullmatch("[0-9]{1,9}", age) else 0)) * 1000


def forbidden(headers: Mapping[str, str], largest_bytes: int) -> bool:
    """Whether an answer must not be kept in spite of its lifetime."""
    length = headers.get("content-length", "0")
    return (
        "no-store" in headers.get("cache-control", "").lower()
        or "set-cookie" in headers
        or re.fullmatch("[0-9]{1,15}", length) is None
        or int(length) > largest_bytes
    )


def same_etag(said: str | None, known: str | None) -> bool:
    """Whether a 304 confirms a known answer: it repeats the validator, weakly, or has none."""
    return said is None or known is None or said.removeprefix("W/") == known.removeprefix("W/")


def varied_by(headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the request fields in `Vary`, in lower case and sorted; None for `*`."""
    names = {name for piece in headers.get("vary", "").lower().split(",") if (name := piece.strip())}
    return None if "*" in names else tuple(sorted(names))
