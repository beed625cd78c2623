"""Write rates of records, from the writes alone: exponentially decayed counts, in bounded memory. Pure.

A count that halves every so often has no edge that a window slides over, and follows a rate that changes. The
rate is the count over the largest weight that the watched time can have given it, so it is right from the start. Dividing by the
time since the start, or by the whole memory before it is full, would be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

from quaestor.ttl.decay import DecayedCounts


class WriteRates(DecayedCounts):
    """Write rates by record, by default over about the last minute and a half (the time constant, half_life_ms / ln 2).

    Not thread-safe.

    Writes may be reported late (replays): they count as much as their age leaves of them.

    since_ms: when watching began; by default at the first call, whichever it is. A record without a write since then
        has rate 0.
    half_life_ms: age at which a write counts half.
    max_records: beyond this the record written longest ago is forgotten.
    youngest_ms: no rate is taken over less than this: one write just after the start is not a thousand a second.
    """

    __slots__ = ("_youngest_ms",)

    def __init__(
        self,
        *,
        since_ms: int | None = None,
        half_life_ms: int = 60_000,
        max_records: int = 100_000,
        youngest_ms: int = 1_000,
    ) -> None:
        super().__init__(half_life_ms=half_life_ms, max_keys=max_records, since_ms=since_ms)
        self._youngest_ms = youngest_ms

    observe = DecayedCounts.add
    """Count one write to this record. O(1). Every write to the database comes by here: no layer in between."""

    def rate_hz(self, records: Iterable[Hashable], *, now_ms: int) -> float:
        """The summed write rate of these records, in writes per second. O(their number)."""
        writes = self.total(records, now_ms=now_ms)
        watched_ms = max(now_ms - (self.since_ms or 0), self._youngest_ms)
        return writes * 1_000 / (self.constant_ms * -math.expm1(-watched_ms / self.constant_ms))
