"""Recent trial rates of predicates, of each one and in total, at negligible cost.

One write in 17 is sampled, and counts for 17. The prime avoids a common rhythm with the writes. Counts are halved every half
minute, each when it is next touched: two small integers a filter, and a shift. A filter's part of the trials is its count
over the total count, because both decay alike. The total number of trials is counted exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

SAMPLED: Final = 17
"""Writes per sampled write."""
EPOCH_MS: Final = 30_000
"""Time between two halvings of the counts."""
_NEWEST: Final = 0.2
"""Weight of the last second in the total rate: a burst does not count as a lasting rate."""


class Tried(Protocol):
    """Object with a trial count: a filter, or a group of filters.

    tried: decayed count as of `epoch`; only this module changes both.
    """

    tried: int
    epoch: int


class Attributed(Tried, Protocol):
    """Filter with the tenant that brought it."""

    @property
    def tenant(self) -> Tried | None:
        """Tenant whose account pays for the filter."""


class Trials:
    """Decayed count of several filters together."""

    __slots__ = ("epoch", "tried")

    def __init__(self) -> None:
        self.tried = 0
        self.epoch = 0


class TrialRates:
    """Trial rates of the predicates of one node.

    all_hz: predicates tried a second.
    tenants: count of the trials that tenants' cached results need.
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
        """Bring the rates up to date, about once a second.

        tried: total number of predicates tried so far.
        """
        self._now = max(self._now, now_ms // EPOCH_MS)
        if self._at_ms is not None and now_ms > self._at_ms:
            seconds = (now_ms - self._at_ms) / 1_000
            part = min(_NEWEST * seconds, 1.0)
            self.all_hz += part * ((tried - self._seen) / seconds - self.all_hz)
        if self._at_ms is None or now_ms > self._at_ms:
            self._at_ms, self._seen = now_ms, tried

    def count(self, tried: Tried, times: int) -> None:
        """Count this many trials. O(1)."""
        if tried.epoch != self._now:
            tried.tried >>= min(self._now - tried.epoch, 60)
            tried.epoch = self._now
        tried.tried += times

    def count_trials(self, filters: Iterable[Attributed]) -> None:
        """Count the filters that one sampled write has tried: for themselves, their tenants and the total. O(filters)."""
        count, number, owned = self.count, 0, 0
        for item in filters:
            number += 1
            count(item, SAMPLED)
            if item.tenant is not None:
                owned += 1
                count(item.tenant, SAMPLED)
        count(self._all, SAMPLED * number)
        count(self.tenants, SAMPLED * owned)

    def tried_hz(self, tried: Tried) -> float:
        """Return the trials per second of one object, by its part in the counts."""
        if not tried.tried:
            return 0.0
        mine, all_ = self._by_now(tried), self._by_now(self._all)
        return self.all_hz * min(mine / all_, 1.0) if all_ else 0.0

    def forget(self, item: Attributed) -> None:
        """Remove a filter that will not be tried any more; the others' parts in the remaining total grow."""
        tried, saved_hz = self._by_now(item), self.tried_hz(item)
        self.all_hz -= saved_hz
        for account in (self._all, self.tenants, item.tenant):
            if account is not None:
                self.count(account, 0)
                account.tried = max(0, account.tried - tried)

    def _by_now(self, tried: Tried) -> int:
        return tried.tried >> min(self._now - tried.epoch, 60)
