"""Time as an argument: wall-clock milliseconds, injected so that tests own the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntFlag
from typing import NamedTuple

Clock = Callable[[], int]
"""A clock: returns milliseconds since the epoch."""


def system_clock() -> int:
    """Wall-clock milliseconds. Hosts of one deployment are expected to agree within the staleness bound (NTP)."""
    return time.time_ns() // 1_000_000


class End(IntFlag):
    """Reasons for the time at which an entry ends. The values are part of the entry's wire format."""

    NEITHER = 0
    PROBATION = 1
    """Its life is short because its route is on probation."""
    CLOCK = 2
    """The clock may change the answer then, without a write. No copy outside may live longer."""


class ReadClock(NamedTuple):
    """Time for which a read was made whose query follows the clock.

    from_ms, to_ms: it was between these, in ms since the epoch.
    of_database: the database's clock was read, otherwise the application's.
    until_ms: no record as it was read changes its truth before this instant; 0: not known yet, or never.
    """

    from_ms: int
    to_ms: int
    of_database: bool = False
    until_ms: int = 0


class ClockWatch(NamedTuple):
    """Watch for the first instant at which a record begins or ceases to match, without any write.

    from_ms: the query's moments have the values of this time.
    until_ms: no record as it was read changes its truth before this instant; 0: never.
    since: version up to which the records as they were read contain every write.
    """

    from_ms: int
    until_ms: int
    since: int
