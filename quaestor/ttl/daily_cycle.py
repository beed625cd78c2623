"""Daily cycle of changes: how much faster than on average time passes at each time of day, and what a lifetime is then. Pure.

Let the rate of a Poisson process follow the time of day: λ(t) = λ s(t). In the time Λ(t) = ∫ s the process is an ordinary one
(time-rescaling theorem). Lifetimes are measured, averaged and predicted in that time, and converted to clock time at the end. The
quantile keeps its meaning, at noon as at night.

s is learned for each part of the day: the observed changes over the expected ones. The watched queries with their average rates
give the expected number. Both numbers begin with the same pseudo-count, so parts with few observations stay near 1.
"""

from __future__ import annotations

from typing import Final

DAY_MS: Final = 86_400_000
PARTS: Final = 24
_IMAGINED = 10.0
"""Changes, and expected changes, that each part of the day begins with."""
_MOST = 4_096.0
"""Expected changes of one part with which the past is halved."""
_LEAST_FACTOR, _MOST_FACTOR = 0.02, 50.0


class DailyCycle:
    """Cycle of one kind of query. O(parts) a call at most. Not thread-safe.

    period_ms: length of the cycle.
    parts: it is divided into so many.
    """

    def __init__(self, *, period_ms: int = DAY_MS, parts: int = PARTS) -> None:
        self._period_ms = period_ms
        self._parts = parts
        self._length_ms = period_ms / parts
        self._changes = [_IMAGINED] * parts
        self._expected = [_IMAGINED] * parts
        self._factors = [1.0] * parts
        self._total_ms = float(period_ms)
        self._unsettled = 0

    @property
    def factors(self) -> tuple[float, ...]:
        """Rate of each part over the mean one."""
        return tuple(self._factors)

    def elapsed(self, from_ms: int, until_ms: int) -> float:
        """Time between two moments, as the changes count it; a negative time for moments in the wrong order."""
        return self._reached(until_ms) - self._reached(from_ms)

    def clock_ms(self, from_ms: int, elapsed: float) -> float:
        """Time by the clock, from a moment on, until so much has elapsed."""
        cycles, rest = divmod(elapsed, self._total_ms)
        at_ms = from_ms % self._period_ms
        part, into_ms, spent_ms = int(at_ms // self._length_ms), at_ms % self._length_ms, 0.0
        for _ in range(self._parts + 1):
            factor, left_ms = self._factors[part % self._parts], self._length_ms - into_ms
            if rest <= left_ms * factor:
                return cycles * self._period_ms + spent_ms + rest / factor
            rest -= left_ms * factor
            spent_ms += left_ms
            part, into_ms = part + 1, 0.0
        return cycles * self._period_ms + spent_ms

    def watched(self, from_ms: int, until_ms: int, mean_ms: float) -> None:
        """Note that a query with this mean lifetime was watched for so long (at most one cycle counts)."""
        at_ms = from_ms % self._period_ms
        left_ms = float(min(until_ms - from_ms, self._period_ms))
        part = int(at_ms // self._length_ms)
        into_ms = at_ms % self._length_ms
        while left_ms > 0:
            spell_ms = min(left_ms, self._length_ms - into_ms)
            self._expected[part % self._parts] += spell_ms / mean_ms
            left_ms -= spell_ms
            part, into_ms = part + 1, 0.0

    def changed(self, at_ms: int) -> None:
        """Note that a watched query's result has changed."""
        part = int(at_ms % self._period_ms // self._length_ms)
        self._changes[part] += 1
        self._unsettled += 1
        if self._unsettled >= self._parts:
            self._settle()

    def _settle(self) -> None:
        """Take the factors anew, with a mean of 1 over the cycle."""
        self._unsettled = 0
        if max(self._expected) > _MOST:
            self._changes = [(changes + _IMAGINED) / 2 for changes in self._changes]
            self._expected = [(expected + _IMAGINED) / 2 for expected in self._expected]
        raw = [
            min(max(changes / expected, _LEAST_FACTOR), _MOST_FACTOR)
            for changes, expected in zip(self._changes, self._expected, strict=True)
        ]
        mean = sum(raw) / self._parts
        self._factors = [factor / mean for factor in raw]
        self._total_ms = float(self._period_ms)

    def _reached(self, at_ms: int) -> float:
        cycles, into_ms = divmod(at_ms, self._period_ms)
        part, rest_ms = int(into_ms // self._length_ms), into_ms % self._length_ms
        return cycles * self._total_ms + sum(self._factors[:part]) * self._length_ms + self._factors[part] * rest_ms
