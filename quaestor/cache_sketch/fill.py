"""Fill of a filter, and the factor by which it shortens lifetimes. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from quaestor.cache_sketch.sizing import HASH_VALUES, HEADER_BYTES, Geometry

_LEAST_FACTOR = 0.01
_SLOWEST, _FASTEST = 0.5, 1.1
"""Least and greatest change of a factor in one step. A factor falls fast, because lifetimes that are handed out end late."""
_KEYS = struct.Struct("<Q")
_KEYS_AT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Fill of one filter.

    keys: number of keys in the filter.
    bits_set: share of the bits that are set, in 0..1.
    estimated: false positive rate to expect with that many keys, in 0..1.
    measured: false positive rate computed from the bits themselves, in 0..1.
    """

    keys: int
    bits_set: float
    estimated: float
    measured: float


def fill_of(body: bytes, geometry: Geometry) -> Fill:
    """Fill of a filter that was taken as a snapshot. O(size of the filter)."""
    (keys,) = _KEYS.unpack_from(body, _KEYS_AT)
    bits = int.from_bytes(body[HEADER_BYTES:], "little")
    mask = (1 << geometry.bits_per_slice) - 1
    often, heavy = divmod(
        HASH_VALUES, geometry.bits_per_slice
    )  # so many positions are asked for once more often than the others
    measured, total = 1.0, 0
    for i in range(geometry.slices):
        slice_bits = bits >> i * geometry.bits_per_slice & mask
        count = slice_bits.bit_count()
        measured *= (often * count + (slice_bits & (1 << heavy) - 1).bit_count()) / HASH_VALUES
        total += count
    return Fill(
        keys=keys,
        bits_set=total / geometry.size_bits,
        estimated=geometry.false_positive_rate(keys),
        measured=measured,
    )


class LifetimeFactors:
    """Factors that shorten the lifetimes of copies, by partition, when a filter holds more keys than its capacity.

    An overfull filter names more and more resources that have not changed. Keys stay as long as copies live: shorter lifetimes
    therefore mean fewer keys. Correctness does not depend on the factors. Any thread may read them; one thread writes.
    """

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def of(self, partition: str) -> float:
        """Factor for the answers of a partition, in 0..1."""
        return self._factors.get(partition, 1.0) if self._factors else 1.0

    def adjust(self, partition: str, *, keys: int, capacity: int) -> float:
        """Take one step towards as many keys as the filter's capacity. Returns the factor."""
        step = min(_FASTEST, max(_SLOWEST, capacity / keys)) if keys else _FASTEST
        factor = min(1.0, max(_LEAST_FACTOR, self.of(partition) * step))
        if factor < 1.0:
            self._factors[partition] = factor
        else:
            self._factors.pop(partition, None)
        return factor
