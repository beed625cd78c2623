"""Now: the present time as a datetime that declares how it follows the clock."""

from __future__ import annotations

from typing import Self

from quaestor.capture.context import current
from quaestor.clock import Clock, system_clock
from quaestor.planning.moments import DeclaredTime, Moment


class Now(DeclaredTime):
    """The present time, in UTC and whole milliseconds, for filters of queries whose results end by the clock.

    An ordinary datetime for drivers, and everywhere else. Quaestor recognises it in a filter. The answer then lives until
    the first record begins or ceases to match. `Now() + timedelta(hours=1)` and `Now().floor(timedelta(minutes=5))` are
    recognised too. Without a cache it is the time of the system clock.
    """

    def __new__(cls) -> Self:
        """Read the clock of the cache that answers the current request, or else of the last one that this process made."""
        recorder = current()
        return cls.of(Moment(), _clocks[-1]() if recorder is None else recorder.clock())


_clocks: list[Clock] = [system_clock]


def read_by(clock: Clock) -> None:
    """Let times outside of recorded requests be read by this clock from now on: tests move it."""
    _clocks[:] = [clock]
