"""Sizes and false positive rates of Bloom filters: pure arithmetic, and the geometry that Quaestor uses.

The classic formulas are in every text on Bloom filters. Quaestor's own formula accounts for the bias of reducing a 16-bit hash
modulo a slice that does not divide 65,536.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quaestor.errors import ConfigurationError
from quaestor.settings import SketchSettings

HEADER_BYTES = 40
"""Bytes of the header `<dQQQQ` in front of the bits (see `wire_format`)."""
BODY_BYTES = 14_600
"""Bytes of header and bits together: ten TCP segments of 1,460 bytes, one initial congestion window (RFC 6928)."""
HASH_VALUES = 1 << 16
"""Number of values of the 16-bit hash that becomes one position."""
_MAX_SLICES = 8
"""Most slices, because a 128-bit digest holds eight 16-bit numbers."""


def optimal_size_bits(entries: int, rate: float) -> int:
    """Bits for `entries` keys at this false positive rate, with the best number of hashes: m = -n ln p / (ln 2)^2."""
    return math.ceil(-entries * math.log(rate) / math.log(2) ** 2)


def optimal_hashes(size_bits: int, entries: int) -> int:
    """Number of hashes that minimises false positives: k = m/n ln 2, at least 1."""
    return max(1, round(size_bits / entries * math.log(2)))


def false_positive_rate(entries: int, size_bits: int, hashes: int) -> float:
    """Probability that the filter finds a key that was never added: (1 - e^(-kn/m))^k, with ideal hashes."""
    return float((1.0 - math.exp(-hashes * entries / size_bits)) ** hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Shape of a sliced filter: `slices` equal parts, one bit of each for every key.

    bits_per_slice: below 2^15, so that pybloom_live cuts its hash into 16-bit numbers and uses xxh128. The product of slices
        and bits_per_slice is a multiple of 8, so that the bits are whole bytes.
    capacity: number of keys that the filter is meant for. Only information for readers.
    error_rate: false positive rate with that many keys, in 0..1. Only information for readers.

    Raises ConfigurationError for a geometry that cannot be sent.
    """

    slices: int
    bits_per_slice: int
    capacity: int
    error_rate: float

    def __post_init__(self) -> None:
        if not 1 <= self.slices <= _MAX_SLICES:
            raise ConfigurationError(f"slices must lie between 1 and {_MAX_SLICES}, not {self.slices}")
        if not 1 <= self.bits_per_slice < 1 << 15:
            raise ConfigurationError(f"bits_per_slice must lie between 1 and 32767, not {self.bits_per_slice}")
        if self.size_bits % 8:
            raise ConfigurationError(
                f"{self.slices} slices of {self.bits_per_slice} bits are not whole bytes; choose a multiple of 8 in all"
            )

    @property
    def size_bits(self) -> int:
        """Number of bits of all slices."""
        return self.slices * self.bits_per_slice

    @property
    def size_bytes(self) -> int:
        """Number of bytes of the bits, without the header."""
        return self.size_bits // 8

    def false_positive_rate(self, entries: int) -> float:
        """Expected rate with `entries` keys, including the bias of the modulo.

        The first 65536 mod b positions of a slice of b bits belong to one hash value more than the others. Such positions
        fill faster and are looked up more often, by the same factor.
        """
        often, heavy = divmod(HASH_VALUES, self.bits_per_slice)
        rate = 0.0
        for positions, values in ((heavy, often + 1), (self.bits_per_slice - heavy, often)):
            chance = values / HASH_VALUES
            rate += positions * chance * (1.0 - (1.0 - chance) ** entries)
        return float(rate**self.slices)


def fitting(entries: int, rate: float, *, budget_bytes: int) -> Geometry:
    """Smallest geometry that holds so many keys at this rate. If the budget is too small, the geometry that holds most keys.

    budget_bytes: budget of the body, including the header. The `capacity` of the result is the number of keys that it holds at
        that rate, at most `entries`.
    """
    best: Geometry | None = None
    for slices in range(1, _MAX_SLICES + 1):
        widest = min((budget_bytes - HEADER_BYTES) * 8 // slices, (1 << 15) - 1) // 8 * 8
        if widest < 8:
            continue
        if (
            Geometry(slices=slices, bits_per_slice=widest, capacity=0, error_rate=0).false_positive_rate(entries)
            <= rate
        ):
            low, high = 1, widest // 8  # bits / 8: one bound too low by one at least, the other high enough
            while low < high:
                middle = (low + high) // 2
                tried = Geometry(slices=slices, bits_per_slice=8 * middle, capacity=0, error_rate=0)
                if tried.false_positive_rate(entries) <= rate:
                    high = middle
                else:
                    low = middle + 1
            geometry = Geometry(slices=slices, bits_per_slice=8 * high, capacity=entries, error_rate=rate)
            better = best is None or best.capacity < entries or geometry.size_bits < best.size_bits
        else:
            held = _holds(slices, widest, rate, entries)
            geometry = Geometry(slices=slices, bits_per_slice=widest, capacity=held, error_rate=rate)
            better = best is None or best.capacity < held
        best = geometry if better else best
    if best is None:
        raise ConfigurationError(f"{budget_bytes} bytes are too few for a sketch: give at least {HEADER_BYTES + 1}")
    return best


def _holds(slices: int, bits_per_slice: int, rate: float, entries: int) -> int:
    """Number of keys that a geometry holds at this rate; fewer than `entries`."""
    geometry = Geometry(slices=slices, bits_per_slice=bits_per_slice, capacity=0, error_rate=0)
    low, high = 0, entries
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if geometry.false_positive_rate(middle) <= rate else (low, middle)
    return low


def geometry_of(settings: SketchSettings) -> Geometry:
    """Geometry of a deployment's filters."""
    wanted = (settings.sketch_entries, settings.sketch_false_positives, settings.sketch_bytes)
    if wanted == (DEFAULT.capacity, DEFAULT.error_rate, BODY_BYTES):
        return DEFAULT
    return fitting(wanted[0], wanted[1], budget_bytes=wanted[2])


DEFAULT = Geometry(slices=4, bits_per_slice=29_120, capacity=20_000, error_rate=0.065)
"""14,560 bytes of bits; with the header exactly one initial congestion window. 20,000 stale keys give a rate of 6.5 %, 10,000
keys a rate below 1 %."""
