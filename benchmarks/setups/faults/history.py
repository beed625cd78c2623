"""The database's contents over time: every write with the moments of its begin and acknowledgement.

Each record is written by one writer, one write after the other, with growing numbers; number v is the record's state from some
moment between v's begin and acknowledgement. The state ends between the begin and the acknowledgement of the next write that
took place. A write whose acknowledgement never came may have taken place or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

FOREVER = float("inf")
Span = tuple[float, float]


class RecordHistory:
    """Of one record. Moments are seconds of `clock`. Number 0 was there before everything."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun = [-FOREVER]
        self._acknowledged: list[float | None] = [-FOREVER]
        self._versions: list[int | None] = [0]

    def begin(self) -> int:
        """The number to write next. Called before it is sent."""
        with self._lock:
            self._begun.append(self._clock())
            self._acknowledged.append(None)
            self._versions.append(None)
            return len(self._begun) - 1

    def acknowledge(self, number: int, version: int) -> None:
        """A majority has it. version: the database's version then; the write's own is not newer."""
        with self._lock:
            self._acknowledged[number] = self._clock()
            self._versions[number] = version

    @property
    def newest(self) -> int:
        return len(self._begun) - 1

    def states(self, *, since: float) -> Iterator[tuple[int, Span]]:
        """Each number with when the record may have been in that state: newest first, as far as that was after `since`."""
        with self._lock:
            number, end = len(self._begun) - 1, FOREVER
            while number >= 0 and end >= since:
                begun, acknowledged = self._begun[number], self._acknowledged[number]
                yield number, (begun, end)
                if acknowledged is not None:
                    end = min(end, acknowledged)
                number -= 1

    def spans(self, wanted: Callable[[int], bool], *, since: float) -> Iterator[Span]:
        """When the record may have been in a wanted state: newest first, as far as that was after `since`."""
        return (span for number, span in self.states(since=since) if wanted(number))

    def before(self, version: int) -> int:
        """The newest number that was acknowledged at an older version than this one; -1: none."""
        with self._lock:
            for number in range(len(self._versions) - 1, -1, -1):
                known = self._versions[number]
                if known is not None and known < version:
                    return number
        return -1


class History:
    """Of all records, and which of them a page shows: `group_of(key, number)` is where a record is in that state."""

    def __init__(
        self, records: int, group_of: Callable[[int, int], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.group_of = group_of
        self.records = [RecordHistory(clock) for _ in range(records)]

    @property
    def writes(self) -> int:
        return sum(record.newest for record in self.records)


def intersection(these: list[Span], those: list[Span]) -> list[Span]:
    """The moments in both."""
    overlaps = [(max(a, c), min(b, d)) for a, b in these for c, d in those]
    return [(begin, end) for begin, end in overlaps if begin <= end]
