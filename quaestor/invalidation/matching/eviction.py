"""Eviction from a full node: the query with the least benefit in a small random sample goes.

The benefit of a query is its saved reads (demand.py) over its cost. The cost is its share of the node's memory, of its
places and of the predicates that it can try a second (memory_estimates.py, trial_rates.py). The tenant with the largest
share gives up room. Within a tenant a newcomer displaces only queries of less benefit. A flood of queries read once
therefore cannot displace queries that are read often. A new query is spared for a while, because no client has had the time to
read it.

The worst of sixteen random queries is among the worst eighth in seven cases of eight, at any number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from quaestor.invalidation.matching.active import ActiveQueries
from quaestor.invalidation.matching.compact_set import elements, size
from quaestor.invalidation.matching.demand import Demand
from quaestor.invalidation.matching.entities import ActiveQuery, Filter, Tenant
from quaestor.invalidation.matching.namespace import Namespace
from quaestor.invalidation.matching.trial_rates import TrialRates

_SAMPLE: Final = 16
_MOST_TENANTS: Final = 64
_MOST_SHARING: Final = 64
_MOST_EVICTED: Final = 256
"""Largest number of queries that a newcomer may displace; beyond it the newcomer is refused."""
_MOST_SHED: Final = 1_000


class NoRoomError(Exception):
    """Error: the node has no place for a registration; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a node's content.

    registrations, bytes: largest number of registrations, and of bytes as memory_estimates.py estimates them.
    unindexed: largest number of filters that every write to one namespace tries.
    tried_per_s: predicates tried a second, in total.
    grace_s: seconds for which a new query is spared.
    """

    registrations: int
    bytes: int
    unindexed: int
    tried_per_s: int
    grace_s: int


class Eviction:
    """Choice of the queries to evict; its owner forgets them. O(1) for each. Not thread-safe.

    demand: for queries.
    """

    def __init__(
        self,
        active: ActiveQueries,
        demand: Demand,
        limits: Limits,
        trial_rates: TrialRates,
        *,
        taken: Callable[[], int],
    ) -> None:
        """Choose among these queries.

        active, demand, limits, trial_rates: parts of the node.
        taken: bytes taken by subscribed queries, which cannot be evicted.
        """
        self._active = active
        self._taken = taken
        self.demand = demand
        self._limits = limits
        self._trial_rates = trial_rates
        self._chance = Random(0)
        self._largest: Tenant | None = None

    def make_room(self, newcomer: ActiveQuery, *, now_ms: int) -> Iterator[ActiveQuery]:
        """Yield queries to evict so that the newcomer, already held, may stay. Forget each before the next is requested.

        Raises NoRoomError if the newcomer must go; queries yielded before stay evicted.
        """
        limits, tenants = self._limits, self._active.tenants
        if self._largest is None or self._share(newcomer.tenant) > self._share(self._largest):
            self._largest = newcomer.tenant
        own = self._active.namespaces[newcomer.rules.namespace]
        crowded = newcomer.filter is not None and newcomer.filter.broad
        room = limits.bytes - self._taken()
        full = tenants.registrations > limits.registrations or tenants.bytes > room
        if not full and not (crowded and own.unindexed_filters > limits.unindexed):
            return
        self.demand.add(newcomer.query_id, 1, now_ms=now_ms)
        chosen = 0
        while crowded and own.unindexed_filters > limits.unindexed:
            yield from list(elements(self._unindexed(own, newcomer, now_ms).queries))
        while tenants.registrations > limits.registrations or tenants.bytes > room:
            if chosen >= _MOST_EVICTED:
                raise NoRoomError(f"{_MOST_EVICTED} queries were evicted for its room, and the cell is still too full")
            chosen += 1
            yield self._worst(newcomer, now_ms)

    def shed_load(self, *, now_ms: int) -> Iterator[ActiveQuery]:
        """Yield queries to evict while cached results cause more predicate trials a second than the limit.

        Forget each query before the next is requested. The tenant with the most trials loses queries, first those without an
        index. At most 1,000 predicates a call.
        """
        for _ in range(_MOST_SHED):
            if self._trial_rates.tried_hz(self._trial_rates.tenants) <= self._limits.tried_per_s:
                return
            sample = self._active.tenants.sample(self._chance)
            tenant = max(sample, key=self._trial_rates.tried_hz, default=None)
            item = None if tenant is None else self._costly(tenant, now_ms)
            if item is None:
                return
            self._trial_rates.forget(item)
            yield from list(elements(item.queries))

    def benefit(self, query: ActiveQuery, *, now_ms: int) -> float:
        """Return the saved reads per share of the node."""
        return self.demand.of(query.query_id, now_ms=now_ms) / self._cost(query)

    def _cost(self, query: ActiveQuery) -> float:
        limits = self._limits
        cost = query.bytes / limits.bytes + size(query.registrations) / limits.registrations
        if query.filter is not None and (query.filter.tried or query.filter.broad):
            cost += self._tried_hz(query.filter) / size(query.filter.queries) / limits.tried_per_s
        return cost

    def _tried_hz(self, item: Filter) -> float:
        if item.access is None and item.tenant is not None:
            query = next(iter(elements(item.queries)))
            return self._trial_rates.tried_hz(self._active.namespaces[query.rules.namespace])
        return self._trial_rates.tried_hz(item)

    def _share(self, tenant: Tenant) -> float:
        limits = self._limits
        return max(tenant.registrations / limits.registrations, tenant.bytes / limits.bytes)

    def _worst(self, newcomer: ActiveQuery, now_ms: int) -> ActiveQuery:
        """Return the query with the least benefit, of the tenant with the largest share."""
        tenant = newcomer.tenant
        others = self._active.tenants.sample(self._chance)
        if self._largest is not None and self._largest.queries:
            others.append(self._largest)
        largest = max(others, key=self._share)
        if self._share(largest) > self._share(tenant):
            self._largest = largest
            candidates = largest.sampled.sample(_SAMPLE, self._chance)
            return min(candidates, key=lambda query: self.benefit(query, now_ms=now_ms))
        known_s = now_ms // 1_000 - self._limits.grace_s
        candidates = [
            query
            for query in tenant.sampled.sample(_SAMPLE, self._chance)
            if query.born_s <= known_s and query is not newcomer
        ]
        least, worst = self.benefit(newcomer, now_ms=now_ms), None
        for query in candidates:
            benefit = self.benefit(query, now_ms=now_ms)
            if benefit < least:
                least, worst = benefit, query
        if worst is not None:
            return worst
        limits = self._limits
        raise NoRoomError(
            f"this cell is full ({limits.registrations} registrations or {limits.bytes} bytes), "
            "and its queries are read more or are newer"
        )

    def _unindexed(self, own: Namespace, newcomer: ActiveQuery, now_ms: int) -> Filter:
        """Return the filter with the least benefit among the filters that every write to this namespace tries."""
        filters = dict(islice(own.unindexed.items(), _MOST_TENANTS))
        largest = max(filters, key=lambda tenant: len(filters[tenant]))
        fair = len(filters[largest]) > len(own.unindexed.get(newcomer.tenant, ()))
        known_s = now_ms // 1_000 - self._limits.grace_s
        least = self.benefit(newcomer, now_ms=now_ms)
        cheapest: Filter | None = None
        for item in own.unindexed[largest if fair else newcomer.tenant].sample(_SAMPLE, self._chance):
            if item is newcomer.filter or (not fair and any(query.born_s > known_s for query in _some(item))):
                continue
            benefit = self._shared_benefit(item, now_ms)
            if benefit < least or (fair and cheapest is None):
                cheapest, least = item, benefit
        if cheapest is None:
            raise NoRoomError(
                f"every write to {newcomer.rules.namespace} tries {self._limits.unindexed} queries without an index "
                "already, and those are read more or are newer"
            )
        return cheapest

    def _costly(self, tenant: Tenant, now_ms: int) -> Filter | None:
        """Return the filter of this tenant with the least benefit, among a sample of filters that cost trials."""
        rates = [
            (self._trial_rates.tried_hz(tried) * len(filters), filters)
            for tried, filters in islice(tenant.unindexed.items(), 16)
        ]
        tried_hz, most_tried = max(rates, key=lambda pair: pair[0], default=(0.0, None))
        if most_tried is not None and tried_hz > 0:
            items = most_tried.sample(_SAMPLE, self._chance)
        else:
            drawn = tenant.sampled.sample(4 * _SAMPLE, self._chance)
            items = [query.filter for query in drawn if query.filter is not None and self._tried_hz(query.filter) > 0]
        return min(items, key=lambda item: self._shared_benefit(item, now_ms), default=None)

    def _shared_benefit(self, item: Filter, now_ms: int) -> float:
        """Return the benefit of the queries that share a filter, estimated from some of them."""
        some = _some(item)
        wanted = sum(self.demand.of(query.query_id, now_ms=now_ms) for query in some)
        return wanted / sum(map(self._cost, some))


def _some(item: Filter) -> list[ActiveQuery]:
    return list(islice(elements(item.queries), _MOST_SHARING))
