"""Counting Bloom filter whose flat bits are always ready to be sent. Pure."""

from __future__ import annotations

from typing import Final

from quaestor.cache_sketch.sizing import Geometry
from quaestor.cache_sketch.wire_format import positions

MAX_KEYS = 2**32 - 1
"""More keys than any filter is asked to hold."""
_FULL: Final = 255
"""Largest count of a position's byte."""


class CountingFilter:
    """Counting Bloom filter: counts keys per position; a bit is set exactly while its counter is above zero.

    geometry: shape of the flat filter.
    bits: the flat filter, packed, least significant bit first, geometry.size_bytes long.
    keys: number of keys in the filter.

    add() and remove() take O(slices). The caller keeps track of the keys in the filter and adds no key twice. Removing a
    key that was not added is refused.

    A counter is one byte, so a filter takes nine bits of memory for each bit that is sent. The few counters above 255 have
    their rest in a dictionary: none is ever lost, whatever the number of keys.
    """

    __slots__ = ("_counters", "_rests", "bits", "geometry", "keys")

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.bits = bytearray(geometry.size_bytes)
        self.keys = 0
        self._counters = bytearray(geometry.size_bits)
        self._rests: dict[int, int] = {}

    def add(self, key_digest: bytes) -> None:
        """Add a key that is not in the filter yet."""
        counters = self._counters
        for position in positions(key_digest, self.geometry):
            if counters[position] == _FULL:
                self._rests[position] = self._rests.get(position, 0) + 1
                continue
            counters[position] += 1
            self.bits[position >> 3] |= 1 << (position & 7)
        self.keys += 1

    def remove(self, key_digest: bytes) -> None:
        """Remove a key. Raises ValueError, and changes nothing, if the key cannot be in the filter."""
        where, counters = positions(key_digest, self.geometry), self._counters
        if not all(counters[position] for position in where):
            raise ValueError("removing a key that was not added would make others disappear")
        for position in where:
            if position in self._rests:
                self._rests[position] -= 1
                if not self._rests[position]:
                    del self._rests[position]
                continue
            counters[position] -= 1
            if not counters[position]:
                self.bits[position >> 3] &= ~(1 << (position & 7))
        self.keys -= 1

    def __contains__(self, key_digest: bytes) -> bool:
        return all(self.bits[position >> 3] >> (position & 7) & 1 for position in positions(key_digest, self.geometry))
