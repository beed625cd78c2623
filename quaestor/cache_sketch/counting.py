"""Counting Bloom filter whose flat bits are always ready to be sent. Pure."""

from __future__ import annotations

from array import array

from quaestor.cache_sketch.sizing import Geometry
from quaestor.cache_sketch.wire_format import positions

MAX_KEYS = 2**32 - 1
"""Counters have 32 bits: with fewer keys than this, none can overflow."""


class CountingFilter:
    """Counting Bloom filter: counts keys per position; a bit is set exactly while its counter is above zero.

    geometry: shape of the flat filter.
    bits: the flat filter, packed, least significant bit first, geometry.size_bytes long.
    keys: number of keys in the filter.

    add() and remove() take O(slices). The caller keeps track of the keys in the filter and adds no key twice. Removing a
    key that was not added is refused.
    """

    __slots__ = ("_counters", "bits", "geometry", "keys")

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.bits = bytearray(geometry.size_bytes)
        self.keys = 0
        self._counters = array("I", bytes(4 * geometry.size_bits))

    def add(self, key_digest: bytes) -> None:
        """Add a key that is not in the filter yet."""
        for position in positions(key_digest, self.geometry):
            self._counters[position] += 1
            self.bits[position >> 3] |= 1 << (position & 7)
        self.keys += 1

    def remove(self, key_digest: bytes) -> None:
        """Remove a key. Raises ValueError, and changes nothing, if the key cannot be in the filter."""
        where = positions(key_digest, self.geometry)
        if not all(self._counters[position] for position in where):
            raise ValueError("removing a key that was not added would make others disappear")
        for position in where:
            self._counters[position] -= 1
            if not self._counters[position]:
                self.bits[position >> 3] &= ~(1 << (position & 7))
        self.keys -= 1

    def __contains__(self, key_digest: bytes) -> bool:
        return all(self.bits[position >> 3] >> (position & 7) & 1 for position in positions(key_digest, self.geometry))
