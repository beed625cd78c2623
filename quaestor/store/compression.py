"""Compressed form of large entries, on the way to the shared store and in it (Zstandard, RFC 8878).

    "QZ" | version: u8 | guard, status and times of the entry inside, at the same places | a Zstandard frame with its size

A client that can write to the server must not exhaust our memory. The unpacked size in a frame is checked before it is
unpacked, and unpacking never exceeds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quaestor.first_use import FirstUse
from quaestor.store.entry_codec import IDENTITY_RANGE

if TYPE_CHECKING:
    import zstandard
else:
    zstandard = FirstUse("zstandard")

_START = b"QZ\x01"
_PREFIX_BYTES = IDENTITY_RANGE[1] + 1
_WORTH_IT = 0.9
"""Share of the size above which compression is not worth it: pictures, and answers that the handler has compressed."""


def pack(entry: bytes, *, level: int) -> bytes:
    """Return the entry, compressed if that makes it smaller. May be called in any thread. O(size)."""
    frame = zstandard.ZstdCompressor(level=level).compress(entry)
    if len(frame) > _WORTH_IT * len(entry):
        return entry
    return _START + entry[len(_START) : _PREFIX_BYTES] + frame


def unpack(data: bytes, *, max_bytes: int) -> bytes | None:
    """Return the entry from any stored form; None if it is damaged or claims to be larger than max_bytes."""
    if not data.startswith(_START):
        return data if len(data) <= max_bytes else None
    frame = data[_PREFIX_BYTES:]
    try:
        size_bytes = zstandard.frame_content_size(frame)
        if not 0 < size_bytes <= max_bytes:
            return None
        entry = zstandard.ZstdDecompressor().decompress(frame, max_output_size=max_bytes)
    except zstandard.ZstdError:
        return None
    return entry if len(entry) == size_bytes else None
