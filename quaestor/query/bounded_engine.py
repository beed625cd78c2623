"""The bounded engine: `regex`, for patterns beyond a linear engine, within a time limit.

One limit holds for each record and query (`allowance`). A pattern that has used it up is not tried again for a while, however
many queries and registrations use it. All slow patterns together share a part of the process's time; otherwise a client that
registers many patterns would receive the limit for each of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quaestor.errors import UncertainMatchError, UnsupportedQueryError
from quaestor.first_use import FirstUse
from quaestor.query.allowance import seconds_left, spent

if TYPE_CHECKING:
    import regex
else:
    regex = FirstUse("regex")

_PAUSE: Final = 32
_LONGEST_PAUSE: Final = 65_536
"""Calls without a try after a pattern has run out of time again: doubled each time, up to this number."""
_SLOW_S: Final = 0.005
"""Runs that take less are not counted against the common share."""
_SHARE: Final = 0.1
_BURST_S: Final = 1.0


class SlowRuns:
    """Time for slow runs of all patterns of a process: a tenth of the elapsed time, at most a second at once.

    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_s = _BURST_S
        self._at_s = clock()

    def left(self) -> bool:
        """Whether another slow run is possible now."""
        if self._left_s < _BURST_S:
            now_s = self._clock()
            self._left_s = min(_BURST_S, self._left_s + _SHARE * (now_s - self._at_s))
            self._at_s = now_s
        return self._left_s > 0

    def took(self, seconds: float) -> None:
        """Count a run."""
        if seconds >= _SLOW_S:
            if self._left_s >= _BURST_S:
                self._at_s = self._clock()
            self._left_s -= seconds


SLOW_RUNS: Final = SlowRuns()
"""The slow runs of this process."""


class BoundedEngine:
    """One compiled pattern.

    runs: number of starts of the engine.
    """

    __slots__ = ("_compiled", "_pause", "_rest", "_slow_runs", "runs")

    def __init__(self, text: str, *, slow_runs: SlowRuns = SLOW_RUNS) -> None:
        """Raise UnsupportedQueryError for a pattern that the engine cannot express."""
        try:
            self._compiled = regex.compile(text, regex.VERSION0, cache_pattern=False)
        except (regex.error, re.error) as error:
            raise UnsupportedQueryError(f"a regular expression that no engine here can run ({error})") from error
        self._slow_runs = slow_runs
        self._pause = self._rest = 0
        self.runs = 0

    def search(self, text: str, position: int = 0) -> regex.Match[str] | None:
        """Return the first match from a position on. Raises UncertainMatchError if there is no time to find out."""
        limit_s = seconds_left()
        if self._rest > 0:
            self._rest -= 1
            raise self._uncertain("took too long before, and is not tried again yet")
        if limit_s <= 0 or not self._slow_runs.left():
            raise self._uncertain("has no time left after other patterns")
        self.runs += 1
        began_s = time.thread_time()  # leaves out the time of other threads
        try:
            match = self._compiled.search(text, position, timeout=limit_s)
        except TimeoutError as error:
            self._rest = min(2 * self._pause, _LONGEST_PAUSE)
            self._pause = max(self._rest, _PAUSE)
            raise self._uncertain(f"took longer than {limit_s:.2g} s") from error
        finally:
            took_s = time.thread_time() - began_s
            spent(took_s)
            self._slow_runs.took(took_s)
        if self._pause:
            self._pause -= 1
        return match

    def _uncertain(self, what: str) -> UncertainMatchError:
        return UncertainMatchError(f"regular expression {self._compiled.pattern[:100]!r} {what}; the record may match")
