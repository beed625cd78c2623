"""How often each record is written, from the writes alone: exponentially decayed counts, in bounded memory. Pure.

A count that halves every so often needs two numbers a record, has no edge that a window slides over, and follows a rate that
changes. What it is divided by is the weight that the time watched so far can have given it, so the rate is right from the
start: dividing by the time since the start, or by the whole memory before it is full, are the mistakes to avoid.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable


class WriteRates:
    """Rates by record, by default over about the last minute and a half (the time constant, half_life_ms / ln 2).

    since_ms: when watching began; by default at the first call, whichever it is. A record without a write since then has rate 0.
    half_life_ms: age at which a write counts half.
    max_records: beyond this the record written longest ago is forgotten.
    youngest_ms: no rate is taken over less than this: one write just after the start is not a thousand a second.
    Writes may be reported late (replays): they count as much as their age leaves of them. Not thread-safe.
    """

    __slots__ = ("_constant_ms", "_counts", "_max_records", "_since_ms", "_youngest_ms")

    def __init__(
        self,
        *,
        since_ms: int | None = None,
        half_life_ms: int = 60_000,
        max_records: int = 100_000,
        youngest_ms: int = 1_000,
    ) -> None:
        self._since_ms = since_ms
        self._constant_ms = half_life_ms / math.log(2)
        self._max_records = max_records
        self._youngest_ms = youngest_ms
        self._counts: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def observe(self, record: Hashable, *, now_ms: int) -> None:
        """One write to this record. O(1)."""
        if self._since_ms is None:
            self._since_ms = now_ms
        known = self._counts.get(record)
        if known is None:
            self._counts[record] = (1.0, now_ms)
            if len(self._counts) > self._max_records:
                self._counts.popitem(last=False)
            return
        count, at_ms = known
        if now_ms >= at_ms:
            self._counts[record] = (count * math.exp((at_ms - now_ms) / self._constant_ms) + 1.0, now_ms)
        else:
            self._counts[record] = (count + math.exp((now_ms - at_ms) / self._constant_ms), at_ms)
        self._counts.move_to_end(record)

    def rate_hz(self, records: Iterable[Hashable], *, now_ms: int) -> float:
        """The summed write rate of these records, in writes per second. O(their number)."""
        if self._since_ms is None:
            self._since_ms = now_ms
        writes = 0.0
        for record in records:
            known = self._counts.get(record)
            if known is not None:
                count, at_ms = known
                writes += count * math.exp(min(0, at_ms - now_ms) / self._constant_ms)
        watched_ms = max(now_ms - self._since_ms, self._youngest_ms)
        return writes * 1_000 / (self._constant_ms * -math.expm1(-watched_ms / self._constant_ms))
