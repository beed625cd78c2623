"""Accounts of a node's tenants: the use that each makes of it. A tenant without registrations is forgotten.

A tenant's share is its share of the resource that it uses most ("Dominant Resource Fairness", NSDI 2011). A tenant may exceed a
fair share while other tenants leave theirs unused. When the node is full, the tenant with the largest share gives up room.
"""

from __future__ import annotations

from random import Random
from typing import Final

from quaestor.invalidation.matching.entities import ActiveQuery, Tenant
from quaestor.invalidation.matching.sampling_set import SamplingSet

_SAMPLE: Final = 16


class Tenants:
    """Accounts of one node and their totals. Not thread-safe.

    registrations, queries: total numbers.
    bytes: estimated memory.
    """

    def __init__(self) -> None:
        self.registrations = 0
        self.bytes = 0
        self.queries = 0
        self._by_name: dict[str, Tenant] = {}
        self._sampled: SamplingSet[Tenant] = SamplingSet()

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Tenant:
        """Return the account of this tenant; a new one counts from its first registration."""
        return self._by_name.get(name) or Tenant(name)

    def find(self, name: str) -> Tenant | None:
        """Return the account of this tenant, or None if it has no registrations."""
        return self._by_name.get(name)

    def sample(self, chance: Random, size: int = _SAMPLE) -> list[Tenant]:
        """Return some random tenants; all tenants if there are no more than that."""
        return self._sampled.sample(size, chance)

    def all(self) -> list[Tenant]:
        """Return every tenant with registrations."""
        return list(self._by_name.values())

    def opened(self, query: ActiveQuery) -> None:
        """Enter a query with its first registration."""
        tenant = query.tenant
        if not tenant.queries:
            self._by_name[tenant.name] = tenant
            self._sampled.add(tenant)
        tenant.queries[query.query_id] = query
        tenant.sampled.add(query)
        self.queries += 1

    def closed(self, query: ActiveQuery) -> None:
        """Take out a query that has lost its last registration."""
        tenant = query.tenant
        del tenant.queries[query.query_id]
        tenant.sampled.remove(query)
        self.queries -= 1
        if not tenant.queries:
            del self._by_name[tenant.name]
            self._sampled.remove(tenant)

    def charge(self, query: ActiveQuery, size: int, registrations: int) -> None:
        """Add bytes and registrations to the accounts of this query; negative numbers take them off."""
        query.bytes += size
        query.tenant.bytes += size
        query.tenant.registrations += registrations
        self.bytes += size
        self.registrations += registrations
