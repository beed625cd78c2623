"""The flat Bloom filter of a Cache Sketch, as a client reads it. Pure."""

from __future__ import annotations

import struct

from quaestor.cache_sketch.sizing import HEADER_BYTES, Geometry
from quaestor.cache_sketch.wire_format import digest, positions
from quaestor.errors import ConfigurationError

_HEADER = struct.Struct("<dQQQQ")


class FlatSketch:
    """Resources that may have a stale copy somewhere: never a false no, a false yes at the filter's rate of false positives."""

    __slots__ = ("_bits", "_geometry")

    def __init__(self, geometry: Geometry, bits: bytes) -> None:
        self._geometry = geometry
        self._bits = bits

    @classmethod
    def read(cls, body: bytes) -> FlatSketch | None:
        """The sketch in these bytes; None if they are anything else: cut, of another format, a page of HTML."""
        if len(body) <= HEADER_BYTES:
            return None
        _, slices, width, _, _ = _HEADER.unpack_from(body)
        try:
            geometry = Geometry(slices=slices, bits_per_slice=width, capacity=1, error_rate=0.5)
        except ConfigurationError:
            return None
        return cls(geometry, body[HEADER_BYTES:]) if len(body) == HEADER_BYTES + geometry.size_bytes else None

    def __contains__(self, resource: str) -> bool:
        bits = self._bits
        return all(bits[place >> 3] >> (place & 7) & 1 for place in positions(digest(resource), self._geometry))
