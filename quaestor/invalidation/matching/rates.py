"""How often each record is written: a sliding window per record, in bounded memory.

Two counts a record, for the current period and the one before, which counts in proportion to how much of it the last
`period_ms` still cover. While the process is younger than a period, the rate is taken over its age.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_YOUNGEST_MS: Final = 1_000
"""No rate is taken over less than this: one write just after the start is not a thousand a second."""


class RecordRates:
    """Write rates by record. Forgets the records written longest ago when there are more than `max_records`."""

    def __init__(self, *, period_ms: int = 60_000, max_records: int = 100_000) -> None:
        self._period_ms = period_ms
        self._max_records = max_records
        self._started_ms: int | None = None
        self._counts: dict[int, tuple[int, int, int]] = {}

    def observe(self, record: int, *, now_ms: int) -> None:
        """One write to this record. O(1)."""
        if self._started_ms is None:
            self._started_ms = now_ms
        period = now_ms // self._period_ms
        counts = self._counts.pop(record, None)
        if counts is None:
            self._counts[record] = (period, 0, 1)
            if len(self._counts) > self._max_records:
                del self._counts[next(iter(self._counts))]
        else:
            previous, current = _as_of(counts, period)
            self._counts[record] = (period, previous, current + 1)

    def rate_hz(self, records: Iterable[int], *, now_ms: int) -> float:
        """The summed write rate of these records, in writes per second. O(their number)."""
        if self._started_ms is None:
            return 0.0
        period, into_ms = divmod(now_ms, self._period_ms)
        age_ms = now_ms - self._started_ms
        share = 1.0 if age_ms < self._period_ms else 1.0 - into_ms / self._period_ms
        writes = 0.0
        for record in records:
            counts = self._counts.get(record)
            if counts is not None:
                previous, current = _as_of(counts, period)
                writes += previous * share + current
        return writes * 1000 / max(min(age_ms, self._period_ms), _YOUNGEST_MS)


def _as_of(counts: tuple[int, int, int], period: int) -> tuple[int, int]:
    """(previous, current) counts as of this period."""
    then, previous, current = counts
    if then == period:
        return previous, current
    return (current, 0) if then == period - 1 else (0, 0)
