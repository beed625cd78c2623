"""Byte ranges out of a whole answer: RFC 9110, section 14, and If-Range, section 13.1.5. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from quaestor.read_path import validation
from quaestor.read_path.freshness import Headers

MAX_RANGES = 16
"""Requests with more ranges receive the whole (section 17.15)."""
_MAX_FIELD_BYTES = 512
_UNIT = re.compile(rb"\s*bytes\s*=(.*)", re.IGNORECASE | re.DOTALL)
_SPEC = re.compile(rb"(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a body: bytes first to last, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.last - self.first + 1


def spans(field: bytes | None, size: int) -> tuple[Span, ...] | None:
    """Return the parts of a body that a Range field selects. None: ignore the field and send the whole; (): no part exists (416).

    Ignored are other units, malformed fields, more than MAX_RANGES ranges, and ranges that add up to more than the whole.
    Ranges that overlap or touch are joined (section 15.3.7.2); otherwise the order is the client's. O(field).
    """
    if field is None or len(field) > _MAX_FIELD_BYTES or (match := _UNIT.fullmatch(field)) is None:
        return None
    satisfiable: list[Span] = []
    requested = 0
    for piece in match[1].split(b","):
        piece = piece.strip()
        if not piece:
            continue
        requested += 1
        spec = _SPEC.fullmatch(piece)
        if spec is None or requested > MAX_RANGES:
            return None
        first, last = spec[1], spec[2]
        if first:
            if last and int(last) < int(first):
                return None
            span = Span(int(first), min(int(last), size - 1) if last else size - 1)
        elif last:
            span = Span(max(0, size - int(last)), size - 1)
        else:
            return None
        if span.first < size and span.size > 0:
            satisfiable.append(span)
    if not requested or sum(span.size for span in satisfiable) > size:
        return None
    return _joined(satisfiable)


def _joined(parts: Sequence[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for span in parts:
        for at, other in enumerate(joined):
            if span.first <= other.last + 1 and other.first <= span.last + 1:
                joined[at] = Span(min(span.first, other.first), max(span.last, other.last))
                break
        else:
            joined.append(span)
    return tuple(joined) if len(joined) == len(parts) else _joined(joined)


def if_range_holds(field: bytes | None, headers: Headers, etag: bytes, *, stored_at_s: float) -> bool:
    """Whether the range may be sent: there is no If-Range, or it names this very answer by strong comparison.

    A date counts only if it equals Last-Modified, and Last-Modified is a strong validator.
    """
    if field is None:
        return True
    field = field.strip()
    if validation.valid_etag(field):
        return field == etag and not field.startswith(b"W/")
    return validation.strong_last_modified(headers, made_s=stored_at_s) == field


def content_range(span: Span, size: int) -> bytes:
    """Return the value of Content-Range for one part of a body of this size."""
    return b"bytes %d-%d/%d" % (span.first, span.last, size)


def multipart(body: bytes, parts: Sequence[Span], *, content_type: bytes | None, boundary: bytes) -> bytes:
    """Return a multipart/byteranges body (section 14.6).

    boundary: random, so that it does not occur in the body.
    """
    pieces: list[bytes] = []
    kind = b"" if content_type is None else b"Content-Type: %s\r\n" % content_type
    for span in parts:
        pieces.append(b"--%s\r\n%sContent-Range: %s\r\n\r\n" % (boundary, kind, content_range(span, len(body))))
        pieces += (body[span.first : span.last + 1], b"\r\n")
    pieces.append(b"--%s--\r\n" % boundary)
    return b"".join(pieces)
