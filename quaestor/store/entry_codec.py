"""Wire format of a stored response, version 8. Big-endian. Nothing in it is code, so a writer to the server cannot run code here.

The version stands for the format *and* for the rules of keys and admission. Any change of these raises it. No release
therefore serves an entry that another release keyed by less. Each release reads only its own version.

    1-3  before the fields that a handler reads were part of the key, and the clock ended an entry
    4    before copies outside had a lifetime of their own
    5    before answers belonged to a partition of the Cache Sketch
    6    before an entry said whether its route was on probation
    7    before an entry said whether the clock may change it at its end
    8    since then

    - "QE" | version: u8 | guard: 8 bytes, XXH3-64 of the registrations, so that eviction can tell an entry from its successor
    - status: u16 | stored_at_ms: u64 | fresh_until_ms: u64 | stale_until_ms: u64 | cost_ms: u32
    - copies_until_ms: u64 | ends: u8, the reasons for its end
    - key, resource, partition, etag: each a u32 length and the bytes (text is UTF-8)
    - registrations, tags: each a u16 count, then that many of (u32 length, bytes)
    - headers: a u16 count, then that many of (u32 length, name, u32 length, value)
    - body: the rest
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

import xxhash

from quaestor.cache_sketch.partitions import TOKEN
from quaestor.clock import End
from quaestor.model import CachedResponse

_START = struct.Struct(">2sB8sHQQQIQB")
GUARD_RANGE = (3, 10)
"""First and last byte of the guard."""
IDENTITY_RANGE = (3, _START.size - 1)
"""First and last byte of guard, status and times: they tell an entry from its successor even without registrations."""
_LENGTH = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_MAGIC = b"QE"
_VERSION = 8
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_CONTROLS = re.compile(rb"[\r\n\0]")
"""Control characters. Some servers pass them on, and the text behind them would become another field, or another answer."""


def encode(response: CachedResponse) -> bytes:
    """Return a response as bytes. O(size)."""
    parts = [_start(response)]
    for value in (response.key.encode(), response.resource.encode(), response.partition.encode(), response.etag):
        parts += (_LENGTH.pack(len(value)), value)
    for texts in (response.registrations, response.tags):
        _append_all(parts, len(texts), (text.encode() for text in texts))
    _append_all(parts, len(response.headers), (part for pair in response.headers for part in pair))
    parts.append(response.body)
    return b"".join(parts)


def _start(response: CachedResponse) -> bytes:
    return _START.pack(
        _MAGIC,
        _VERSION,
        guard(response.registrations),
        response.status,
        response.stored_at_ms,
        response.fresh_until_ms,
        response.stale_until_ms,
        min(response.cost_ms, 0xFFFFFFFF),
        response.copies_until_ms,
        response.ends,
    )


def identity(response: CachedResponse) -> bytes:
    """Return the bytes at IDENTITY_RANGE of this response's entry."""
    return _start(response)[IDENTITY_RANGE[0] :]


def guard(registrations: Iterable[str]) -> bytes:
    """Return the 8 bytes that stand for the registrations of an entry."""
    return xxhash.xxh3_64_digest("\n".join(registrations).encode())


def decode(data: bytes) -> CachedResponse | None:
    """Return the response.

    None for bytes that are no whole entry of this version, or an answer that no handler can have given.
    """
    try:
        return _decode(data)
    except (struct.error, ValueError):
        return None


def _append_all(parts: list[bytes], count: int, values: Iterable[bytes]) -> None:
    parts.append(_COUNT.pack(count))
    for value in values:
        parts += (_LENGTH.pack(len(value)), value)


def _decode(data: bytes) -> CachedResponse:
    start = _START.unpack_from(data)
    magic, version, _, status, stored_at_ms, fresh_until_ms, stale_until_ms, cost_ms, copies_until_ms, ends = start
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"not an entry of version {_VERSION}")
    cursor = _Cursor(data, _START.size)
    key, resource, partition, etag = cursor.text(), cursor.text(), cursor.text(), cursor.field()
    registrations = tuple(cursor.text() for _ in range(cursor.count()))
    tags = tuple(cursor.text() for _ in range(cursor.count()))
    headers = tuple((cursor.field(), cursor.field()) for _ in range(cursor.count()))
    if not 200 <= status <= 599 or _CONTROLS.search(etag) or not all(map(_is_field, headers)):
        raise ValueError("not an answer")
    if partition and not TOKEN.fullmatch(partition):
        raise ValueError("not a partition")  # the partition becomes part of a header field
    return CachedResponse(
        key=key,
        status=status,
        headers=headers,
        body=data[cursor.at :],
        etag=etag,
        stored_at_ms=stored_at_ms,
        fresh_until_ms=fresh_until_ms,
        stale_until_ms=stale_until_ms,
        cost_ms=cost_ms,
        copies_until_ms=copies_until_ms,
        registrations=registrations,
        tags=tags,
        resource=resource,
        partition=partition,
        ends=End(ends),
    )


def _is_field(field: tuple[bytes, bytes]) -> bool:
    return _NAME.fullmatch(field[0]) is not None and _CONTROLS.search(field[1]) is None


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def count(self) -> int:
        (count,) = _COUNT.unpack_from(self._data, self.at)
        self.at += _COUNT.size
        return int(count)

    def field(self) -> bytes:
        (length,) = _LENGTH.unpack_from(self._data, self.at)
        start = self.at + _LENGTH.size
        self.at = start + length
        if self.at > len(self._data):
            raise ValueError("a field ends after the data")
        return self._data[start : self.at]

    def text(self) -> str:
        return self.field().decode()
