"""Compressed form of large entries, on the way to the shared store and in it (Zstandard, RFC 8878).

    "QZ" | version: u8 | guard, status and times of the entry inside, at the same places | a Zstandard frame with its size

Whoever can write to the server must not be able to make us run out of memory: what a frame says it unpacks to is looked at
before it is unpacked, and it never unpacks to more.
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
"""What compression does not bring below this share is kept as it is: pictures, and what the handler has compressed."""


def pack(entry: bytes, *, level: int) -> bytes:
    """The entry, compressed if that makes it smaller. May be called in any thread. O(size)."""
    frame = zstandard.ZstdCompressor(level=level).compress(entry)
    if len(frame) > _WORTH_IT * len(entry):
        return entry
    return _START + entry[len(_START) : _PREFIX_BYTES] + frame


def unpack(data: bytes, *, max_bytes: int) -> bytes | None:
    """The entry in any form in which it was stored; None if it is damaged or says that it is larger than max_bytes."""
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
