"""Sizes and false positive rates of Bloom filters: pure arithmetic, and the geometry that we fixed.

The classic formulas are in every text on Bloom filters; the one of our own accounts for the bias that comes from reducing a
16-bit hash modulo a slice that does not divide 65,536.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quaestor.errors import ConfigurationError
from quaestor.settings import SketchSettings

HEADER_BYTES = 40
"""`<dQQQQ`, in front of the bits (see `wire_format`)."""
BODY_BYTES = 14_600
"""Header and bits together fit ten TCP segments of 1,460 bytes: one initial congestion window (RFC 6928)."""
HASH_VALUES = 1 << 16
"""Of one position's number in a digest."""
_MAX_SLICES = 8
"""A 128-bit digest holds eight 16-bit numbers."""


def optimal_size_bits(entries: int, rate: float) -> int:
    """Bits for `entries` keys at this false positive rate with the best number of hashes: m = -n ln p / (ln 2)^2."""
    return math.ceil(-entries * math.log(rate) / math.log(2) ** 2)


def optimal_hashes(size_bits: int, entries: int) -> int:
    """Hashes that minimise false positives: k = m/n ln 2, at least 1."""
    return max(1, round(size_bits / entries * math.log(2)))


def false_positive_rate(entries: int, size_bits: int, hashes: int) -> float:
    """Probability that a key that was never added is found: (1 - e^(-kn/m))^k, with ideal hashes."""
    return float((1.0 - math.exp(-hashes * entries / size_bits)) ** hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Shape of a sliced filter: `slices` equal parts, one bit of each for every key.

    bits_per_slice: below 2^15, so that pybloom_live cuts its hash into 16-bit numbers and uses xxh128; slices *
        bits_per_slice is a multiple of 8, so that the bits are whole bytes.
    capacity: keys the filter is meant for; only told to readers.
    error_rate: its false positive rate with that many keys, in 0..1; only told to readers.

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
        """Bits of all slices."""
        return self.slices * self.bits_per_slice

    @property
    def size_bytes(self) -> int:
        """Bytes of the bits, without the header."""
        return self.size_bits // 8

    def false_positive_rate(self, entries: int) -> float:
        """Expected rate with `entries` keys, the modulo's bias included.

        The first 65536 mod b positions of a slice of b bits are hit by one hash value more than the others. Such positions
        fill faster and are asked for more often, by the same factor.
        """
        often, heavy = divmod(HASH_VALUES, self.bits_per_slice)
        found = 0.0
        for positions, values in ((heavy, often + 1), (self.bits_per_slice - heavy, often)):
            chance = values / HASH_VALUES
            found += positions * chance * (1.0 - (1.0 - chance) ** entries)
        return float(found**self.slices)


def fitting(entries: int, rate: float, *, budget_bytes: int) -> Geometry:
    """The smallest geometry that holds so many keys at this false positive rate; if the budget is too small, the one that
    holds most.

    budget_bytes: of the body, header included. Its `capacity` is how many keys it holds at that rate, at most `entries`.
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
            low, high = 1, widest // 8  # bits / 8 that are too few by one, or enough
            while low < high:
                middle = (low + high) // 2
                tried = Geometry(slices=slices, bits_per_slice=8 * middle, capacity=0, error_rate=0)
                if tried.false_positive_rate(entries) <= rate:
                    high = middle
                else:
                    low = middle + 1
            found = Geometry(slices=slices, bits_per_slice=8 * high, capacity=entries, error_rate=rate)
            better = best is None or best.capacity < entries or found.size_bits < best.size_bits
        else:
            held = _holds(slices, widest, rate, entries)
            found = Geometry(slices=slices, bits_per_slice=widest, capacity=held, error_rate=rate)
            better = best is None or best.capacity < held
        best = found if better else best
    if best is None:
        raise ConfigurationError(f"{budget_bytes} bytes are too few for a sketch: give at least {HEADER_BYTES + 1}")
    return best


def _holds(slices: int, bits_per_slice: int, rate: float, entries: int) -> int:
    """How many keys a geometry holds at this rate; fewer than `entries`."""
    geometry = Geometry(slices=slices, bits_per_slice=bits_per_slice, capacity=0, error_rate=0)
    low, high = 0, entries
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if geometry.false_positive_rate(middle) <= rate else (low, middle)
    return low


def geometry_of(settings: SketchSettings) -> Geometry:
    """The geometry of a deployment's filters."""
    wanted = (settings.sketch_entries, settings.sketch_false_positives, settings.sketch_bytes)
    if wanted == (DEFAULT.capacity, DEFAULT.error_rate, BODY_BYTES):
        return DEFAULT
    return fitting(wanted[0], wanted[1], budget_bytes=wanted[2])


DEFAULT = Geometry(slices=4, bits_per_slice=29_120, capacity=20_000, error_rate=0.065)
"""14,560 bytes of bits; with the header exactly one initial congestion window. 20,000 stale keys at 6.5 %, 10,000 below 1 %."""
