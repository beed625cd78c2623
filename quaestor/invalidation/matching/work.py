"""How much work predicates make: how often each is tried, lately, at a cost that does not show.

One write in 17 is looked at (a prime, so that no rhythm of the writes falls in with it), and counts for 17. Counts are
halved every half minute, each when it is next touched: two small integers a filter, and a shift.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

SAMPLED: Final = 17
"""One write in so many is looked at."""
_NEWEST: Final = 0.2
"""Weight of the last second in the pace."""
EPOCH_MS: Final = 30_000
"""Age at which a trial counts half."""


class Tried(Protocol):
    """Something that is tried. tried: decayed count as of `epoch`; both belong to this module."""

    tried: int
    epoch: int


class Epoch:
    """The node's clock for halving. now: number of the epoch; into: how much of it is over, 0..1."""

    __slots__ = ("into", "now")

    def __init__(self) -> None:
        self.now = 0
        self.into = 0.0

    def at(self, now_ms: int) -> None:
        """Time has passed. Never goes back."""
        now, into_ms = divmod(now_ms, EPOCH_MS)
        if now >= self.now:
            self.now, self.into = now, into_ms / EPOCH_MS

    def count(self, one: Tried, times: int) -> None:
        if one.epoch != self.now:
            one.tried >>= min(self.now - one.epoch, 60)
            one.epoch = self.now
        one.tried += times

    def tried_hz(self, one: Tried) -> float:
        """Trials per second. Too low during the first minute of something new; within sampling error later.

        A steady rate r leaves r x EPOCH at the beginning of an epoch, twice that at its end.
        """
        tried = one.tried >> min(self.now - one.epoch, 60)
        return tried * 1_000 / (EPOCH_MS * (1.0 + self.into))


def count_trials(asked: Iterable[Attributed], epoch: Epoch) -> None:
    """One sampled write has tried these filters: to their account and to their tenants'. O(their number)."""
    count = epoch.count
    for item in asked:
        count(item, SAMPLED)
        if item.tenant is not None:
            count(item.tenant, SAMPLED)


class Attributed(Tried, Protocol):
    """A filter with the tenant that brought it."""

    @property
    def tenant(self) -> Tried | None: ...


class Pace:
    """How many predicates are tried a second, smoothed over a few seconds, so that a burst is not taken for a habit."""

    __slots__ = ("_at_ms", "_hz", "_tried")

    def __init__(self) -> None:
        self._at_ms: int | None = None
        self._tried = 0
        self._hz = 0.0

    def tried_hz(self, tried: int, *, now_ms: int) -> float:
        """tried: in total, by now. Call it about once a second."""
        if self._at_ms is None or now_ms <= self._at_ms:
            self._at_ms, self._tried = now_ms, tried
            return self._hz
        seconds = (now_ms - self._at_ms) / 1_000
        weight = min(_NEWEST * seconds, 1.0)
        self._hz += weight * ((tried - self._tried) / seconds - self._hz)
        self._at_ms, self._tried = now_ms, tried
        return self._hz

    def less(self, hz: float) -> None:
        """So many fewer will be tried from now on."""
        self._hz = max(0.0, self._hz - hz)
