"""Partial answers (206) as entries: which parts may be stored, selected and combined, and how a whole is completed. RFC 9110,
sections 14.4 and 15.3.7, RFC 9111, sections 3.3 and 3.4. Pure, except for looking into memory.

The parts of one variant are one *partial entry* with status 206. Each part has a Content-Range field, in the order of their
bytes, and the body holds their bytes one after the other. Its key is different, so that a request for the whole never finds it.
All parts belong to one representation: they have the same strong validator. A part that contradicts the stored ones replaces
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quaestor.model import CachedResponse
from quaestor.read_path import ranges, validation
from quaestor.read_path.freshness import Headers, values
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.ranges import Span
from quaestor.read_path.request import RequestFacts

MAX_PARTS = 16
"""Parts of one entry; beyond that, the smallest ones are dropped."""
SMALLEST_SHARE = 64
"""A part below one in this many of the stored bytes is not worth rewriting the entry."""
_SUFFIX = "#parts"
_CONTENT_RANGE = re.compile(rb"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", re.IGNORECASE)
_OF_ONE_PART = frozenset({b"content-length", b"content-range"})
_SINGLE = re.compile(rb"\s*bytes\s*=\s*(?:\d{1,18}-\d{0,18}|-\d{1,18})\s*", re.IGNORECASE)

Pieces = tuple[tuple[Span, bytes], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The place of a part in its whole.

    size: of the whole, in bytes.
    """

    span: Span
    size: int


def key_of_parts(key: str) -> str:
    """Return the key of the partial entry of a variant."""
    return key + _SUFFIX


def key_of_whole(key: str) -> str:
    """Return the key of the variant that a partial entry belongs to."""
    return key.removesuffix(_SUFFIX)


def wanted(facts: RequestFacts) -> bool:
    """Whether a request only asks for one range of bytes: then its answer may be stored, or come from a part."""
    return (
        facts.byte_range is not None
        and _SINGLE.fullmatch(facts.byte_range) is not None
        and facts.if_none_match is None
        and facts.if_modified_since is None
        and not (facts.no_store or facts.has_body or facts.barred)
    )


def received(status: int, headers: Headers, facts: RequestFacts) -> Part | None:
    """Return the part that an answer holds, if it is exactly the requested one; None: store nothing.

    Not stored: a part of an unknown whole (`/*`), several parts as multipart/byteranges, or another part than the requested one.
    """
    part = located(headers) if status == 206 else None
    if part is None or ranges.spans(facts.byte_range, part.size) != (part.span,):
        return None
    return part if facts.if_range is None or facts.if_range.strip() == strong_validator(headers) else None


def located(headers: Headers) -> Part | None:
    """Return the part that Content-Range describes; None if the field is missing, repeated or malformed."""
    fields = values(headers, b"content-range")
    match = _CONTENT_RANGE.fullmatch(fields[0].strip()) if len(fields) == 1 else None
    if match is None:
        return None
    first, last, size = (int(number) for number in match.groups())
    return Part(Span(first, last), size) if first <= last < size else None


def strong_validator(headers: Headers) -> bytes | None:
    """Return the entity tag if it is strong; without any tag, Last-Modified if it is strong (RFC 9110, section 8.8).

    None: nothing shows that two parts belong to one representation.
    """
    headers = list(headers)
    tags = values(headers, b"etag")
    if tags:
        strong = len(tags) == 1 and validation.valid_etag(tags[0]) and not tags[0].startswith(b"W/")
        return tags[0] if strong else None
    return validation.strong_last_modified(headers)


def tagged(headers: Headers) -> bool:
    """Whether an answer has a strong entity tag of its handler's own."""
    return (strong_validator(headers) or b"").startswith(b'"')


def without_place(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the fields of a part without those about its place and length."""
    return [field for field in headers if field[0] not in _OF_ONE_PART]


def places(entry: CachedResponse) -> tuple[tuple[tuple[Span, int], ...], int]:
    """Return the places of the parts of a partial entry, in order, each with its offset in the body; and the size of the whole.
    Empty if the entry is not partial, or damaged. O(parts)."""
    matches = [_CONTENT_RANGE.fullmatch(value) for value in values(entry.headers, b"content-range")]
    spans_at: list[tuple[Span, int]] = []
    at, before, sizes = 0, -1, set()
    for match in matches:
        if match is None:
            return (), 0
        span = Span(int(match[1]), int(match[2]))
        sizes.add(int(match[3]))
        if not before < span.first <= span.last:
            return (), 0
        spans_at.append((span, at))
        at, before = at + span.size, span.last
    size = sizes.pop() if len(sizes) == 1 else 0
    if entry.status != 206 or at != len(entry.body) or not before < size:
        return (), 0
    return tuple(spans_at), size


def pieces(entry: CachedResponse) -> Pieces:
    """Return the parts of a partial entry, in order. O(bytes)."""
    return tuple((span, entry.body[at : at + span.size]) for span, at in places(entry)[0])


def selected(entry: CachedResponse, facts: RequestFacts) -> tuple[Part, bytes] | None:
    """Return place and bytes of the requested range, if a part of this entry contains it. None otherwise, also if If-Range does
    not name this very representation."""
    held, size = places(entry)
    spans = ranges.spans(facts.byte_range, size) if held else None
    if spans is None or len(spans) != 1:
        return None
    if facts.if_range is not None and facts.if_range.strip() != strong_validator(entry.headers):
        return None
    for span, at in held:
        if _covers(span, spans[0]):
            start = at + spans[0].first - span.first
            return Part(spans[0], size), entry.body[start : start + spans[0].size]
    return None


def beginning(entry: CachedResponse) -> tuple[Part, bytes, bytes] | None:
    """Return the missing part of an entry that one range up to the end completes, the bytes before it, and the strong validator.

    None if the first byte is missing, or if nothing would show that the rest belongs to the same representation.
    """
    held, size = places(entry)
    validator = strong_validator(entry.headers)
    if not held or held[0][0].first or validator is None:
        return None
    span, _ = held[0]
    return Part(Span(span.last + 1, size - 1), size), entry.body[: span.size], validator


def negligible(entry: CachedResponse, part: Part, headers: Headers) -> bool:
    """Whether a part adds too little to the stored parts of its representation to be worth rewriting the entry.

    headers: that came with the part.
    """
    little = part.span.size * SMALLEST_SHARE < len(entry.body)
    return little and strong_validator(headers) == strong_validator(entry.headers)


def combined_in(store: LocalStore, new: CachedResponse, part: Part, *, most_bytes: int) -> CachedResponse:
    """Combine a part with the parts in memory of the same representation: a partial entry, or the whole under its own key.
    O(bytes stored).

    new: the part as if it were the whole, under the key of the partial entry.
    most_bytes: of an entry.
    """
    resident = store.resident(new.key)
    whole = combined(None if resident is None else resident.response, new, part, most_bytes=most_bytes)
    if whole.status == 200:
        store.drop(new.key, "outdated")
    return whole


def combined(old: CachedResponse | None, new: CachedResponse, part: Part, *, most_bytes: int) -> CachedResponse:
    """Combine a part with an entry that was looked up already. Stored parts of another representation are left out.

    The fields are the new part's (RFC 9111, section 3.4). A guarded entry carries the registrations of all parts, and lives no
    longer than the shortest of them. An explicit entry's old parts are confirmed by the new part's fields, as by a 304.
    """
    held: Pieces = pieces(old) if old is not None and _of_one_representation(old, new, part.size) else ()
    joined = _joined(held, part.span, new.body)
    if joined is None:
        held, joined = (), [(part.span, new.body)]
    joined = [_within(most_bytes, piece, part.span) if _covers(piece[0], part.span) else piece for piece in joined]
    while len(joined) > 1 and (len(joined) > MAX_PARTS or sum(span.size for span, _ in joined) > most_bytes):
        joined.remove(
            min((piece for piece in joined if not _covers(piece[0], part.span)), key=lambda piece: piece[0].size)
        )
    fields = without_place(new.headers)
    body = b"".join(content for _, content in joined)
    if joined[0][0] == Span(0, part.size - 1):
        fields.append((b"content-length", b"%d" % part.size))
        made = replace(new, key=key_of_whole(new.key), headers=tuple(fields), body=body)
    else:
        fields += [(b"content-range", ranges.content_range(span, part.size)) for span, _ in joined]
        made = replace(new, status=206, headers=tuple(fields), body=body)
    if old is None or not held or not old.registrations:
        return made
    return replace(
        made,
        registrations=tuple(dict.fromkeys((*new.registrations, *old.registrations))),
        tags=tuple(dict.fromkeys((*new.tags, *old.tags))),
        stored_at_ms=min(new.stored_at_ms, old.stored_at_ms),
        fresh_until_ms=min(new.fresh_until_ms, old.fresh_until_ms),
        stale_until_ms=min(new.stale_until_ms, old.stale_until_ms),
        ends=new.ends | old.ends,
    )


def _of_one_representation(old: CachedResponse, new: CachedResponse, size: int) -> bool:
    validator = strong_validator(new.headers)
    return (
        validator is not None
        and validator == strong_validator(old.headers)
        and places(old)[1] == size
        and bool(old.registrations) == bool(new.registrations)
        and values(old.headers, b"content-encoding") == values(new.headers, b"content-encoding")
    )


def _covers(span: Span, other: Span) -> bool:
    return span.first <= other.first and other.last <= span.last


def _within(most_bytes: int, piece: tuple[Span, bytes], newest: Span) -> tuple[Span, bytes]:
    """Return as much of a piece as may be kept, always with its newest part: playing a film moves a window through it."""
    span, body = piece
    if span.size <= most_bytes:
        return piece
    first = max(span.first, min(newest.first, newest.last + 1 - most_bytes))
    last = min(span.last, max(newest.last, first + most_bytes - 1))
    return Span(first, last), body[first - span.first : last + 1 - span.first]


def _joined(held: Sequence[tuple[Span, bytes]], span: Span, body: bytes) -> list[tuple[Span, bytes]] | None:
    """Return the parts in order with one more; parts that overlap or touch it merge with it. None if they contradict it."""
    apart: list[tuple[Span, bytes]] = []
    for other, content in held:
        if other.last + 1 < span.first or span.last + 1 < other.first:
            apart.append((other, content))
            continue
        low, high = max(span.first, other.first), min(span.last, other.last)
        if content[low - other.first : high + 1 - other.first] != body[low - span.first : high + 1 - span.first]:
            return None
        before = content[: max(0, span.first - other.first)]
        after = content[span.last + 1 - other.first :] if other.last > span.last else b""
        span, body = Span(min(span.first, other.first), max(span.last, other.last)), before + body + after
    return sorted([*apart, (span, body)], key=lambda piece: piece[0].first)
