"""Rates at which predicates are tried lately, of each and of all together, at a cost that does not show.

One write in 17 is looked at (a prime, so that no rhythm of the writes falls in with it), and counts for 17. Counts are
halved every half minute, each when it is next touched: two small integers a filter, and a shift. A filter's part of
the trials is its count over that of all, which fade alike; how many trials there are altogether is counted exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

SAMPLED: Final = 17
"""One write in so many is looked at."""
EPOCH_MS: Final = 30_000
"""How often counts are halved."""
_NEWEST: Final = 0.2
"""Part that the last second has in the rate of all: a burst is not taken for a habit."""


class Tried(Protocol):
    """Object that is tried: a filter, or what several of them belong to.

    tried: decayed count as of `epoch`; both belong to this module.
    """

    tried: int
    epoch: int


class Attributed(Tried, Protocol):
    """Filter with the tenant that brought it."""

    @property
    def tenant(self) -> Tried | None:
        """On whose account it is."""


class Trials:
    """Decayed count of several filters together."""

    __slots__ = ("epoch", "tried")

    def __init__(self) -> None:
        self.tried = 0
        self.epoch = 0


class TrialRates:
    """Trial rates of the predicates of one node.

    all_hz: predicates tried a second.
    tenants: count of those that some tenant's cached results need.
    """

    __slots__ = ("_all", "_at_ms", "_now", "_seen", "all_hz", "tenants")

    def __init__(self) -> None:
        self._all = Trials()
        self.tenants = Trials()
        self.all_hz = 0.0
        self._now = 0
        self._at_ms: int | None = None
        self._seen = 0

    def advance(self, now_ms: int, *, tried: int) -> None:
        """Bring the rates up to date, once a second or so.

        tried: how many predicates have been tried so far.
        """
        self._now = max(self._now, now_ms // EPOCH_MS)
        if self._at_ms is not None and now_ms > self._at_ms:
            seconds = (now_ms - self._at_ms) / 1_000
            part = min(_NEWEST * seconds, 1.0)
            self.all_hz += part * ((tried - self._seen) / seconds - self.all_hz)
        if self._at_ms is None or now_ms > self._at_ms:
            self._at_ms, self._seen = now_ms, tried

    def count(self, one: Tried, times: int) -> None:
        """Count so many trials. O(1)."""
        if one.epoch != self._now:
            one.tried >>= min(self._now - one.epoch, 60)
            one.epoch = self._now
        one.tried += times

    def count_trials(self, filters: Iterable[Attributed]) -> None:
        """Count the filters that one sampled write has tried: for them, their tenants and all. O(their number)."""
        count, number, owned = self.count, 0, 0
        for item in filters:
            number += 1
            count(item, SAMPLED)
            if item.tenant is not None:
                owned += 1
                count(item.tenant, SAMPLED)
        count(self._all, SAMPLED * number)
        count(self.tenants, SAMPLED * owned)

    def tried_hz(self, one: Tried) -> float:
        """Trials per second that are its own, by its part in the counts."""
        if not one.tried:
            return 0.0
        mine, all_ = self._by_now(one), self._by_now(self._all)
        return self.all_hz * min(mine / all_, 1.0) if all_ else 0.0

    def forget(self, item: Attributed) -> None:
        """Take out a filter that will not be tried any more: the others have a larger part in what is left."""
        tried, saved_hz = self._by_now(item), self.tried_hz(item)
        self.all_hz -= saved_hz
        for account in (self._all, self.tenants, item.tenant):
            if account is not None:
                self.count(account, 0)
                account.tried = max(0, account.tried - tried)

    def _by_now(self, one: Tried) -> int:
        return one.tried >> min(self._now - one.epoch, 60)
