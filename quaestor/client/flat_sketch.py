"""The flat Bloom filter of a Cache Sketch, as a client reads it. Pure."""

from __future__ import annotations

import struct

from quaestor.cache_sketch.sizing import HEADER_BYTES, Geometry
from quaestor.cache_sketch.wire_format import digest
from quaestor.errors import ConfigurationError

_HEADER = struct.Struct("<dQQQQ")
_NUMBERS = struct.Struct("<8H")


class FlatSketch:
    """Resources that may have a stale copy somewhere. Never a false no; a false yes at the filter's rate of false positives."""

    __slots__ = ("_bits", "_slices", "_width")

    def __init__(self, geometry: Geometry, bits: bytes) -> None:
        self._slices, self._width = geometry.slices, geometry.bits_per_slice
        self._bits = bits

    @classmethod
    def read(cls, body: bytes) -> FlatSketch | None:
        """Return the sketch in these bytes; None if they are anything else: cut, of another format, a page of HTML."""
        if len(body) <= HEADER_BYTES:
            return None
        _, slices, width, _, _ = _HEADER.unpack_from(body)
        try:
            geometry = Geometry(slices=slices, bits_per_slice=width, capacity=1, error_rate=0.5)
        except ConfigurationError:
            return None
        return cls(geometry, body[HEADER_BYTES:]) if len(body) == HEADER_BYTES + geometry.size_bytes else None

    def __contains__(self, resource: str) -> bool:
        return self.holds(digest(resource))

    def holds(self, key_digest: bytes) -> bool:
        """Whether a resource with this digest (`wire_format.digest`) is in the sketch. Ends at the first bit that is not set."""
        bits, width, first = self._bits, self._width, 0
        for number in _NUMBERS.unpack(key_digest)[: self._slices]:
            place = first + number % width
            if not bits[place >> 3] >> (place & 7) & 1:
                return False
            first += width
        return True
