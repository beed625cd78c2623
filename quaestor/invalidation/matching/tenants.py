"""Who uses how much of a node. A tenant is an app (its deployment) with registrations here; without any it is forgotten.

Its share is that of the resource it uses most of ("Dominant Resource Fairness", NSDI 2011). Nobody is held to a fair
share while others do not want theirs; when the node is full, room is made at the expense of who has the largest share.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from quaestor.invalidation.matching.pool import Pool

if TYPE_CHECKING:
    from quaestor.invalidation.matching.entities import ActiveQuery, Filter
    from quaestor.invalidation.matching.namespace import Namespace

_DRAWN: Final = 16


class Tenant:
    """One tenant's account.

    queries: by query_id.
    drawn: the same, to draw from.
    unindexed: its filters without an index, by namespace.
    bytes: see memory_estimates.py.
    tried, epoch: see work.py.
    failed: predicates of its queries that raised.
    """

    __slots__ = (
        "bytes",
        "drawn",
        "epoch",
        "failed",
        "name",
        "place",
        "queries",
        "registrations",
        "tried",
        "unindexed",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.queries: dict[str, ActiveQuery] = {}
        self.drawn: Pool[ActiveQuery] = Pool()
        self.unindexed: dict[Namespace, Pool[Filter]] = {}
        self.registrations = 0
        self.bytes = 0
        self.tried = 0
        self.epoch = 0
        self.failed = 0
        self.place = 0


class Tenants:
    """The accounts of a node and what they come to. Not thread-safe."""

    def __init__(self) -> None:
        self.registrations = 0
        self.bytes = 0
        self.queries = 0
        self._by_name: dict[str, Tenant] = {}
        self._drawn: Pool[Tenant] = Pool()

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Tenant:
        """The account of this tenant; a new one counts from its first registration."""
        return self._by_name.get(name) or Tenant(name)

    def find(self, name: str) -> Tenant | None:
        return self._by_name.get(name)

    def sample(self, chance: Random, size: int = _DRAWN) -> list[Tenant]:
        """Some tenants at random; all, if there are no more than that."""
        return self._drawn.sample(size, chance)

    def all(self) -> list[Tenant]:
        return list(self._by_name.values())

    def opened(self, query: ActiveQuery) -> None:
        """A query has got its first registration."""
        tenant = query.tenant
        if not tenant.queries:
            self._by_name[tenant.name] = tenant
            self._drawn.add(tenant)
        tenant.queries[query.query_id] = query
        tenant.drawn.add(query)
        self.queries += 1

    def closed(self, query: ActiveQuery) -> None:
        """A query has lost its last one."""
        tenant = query.tenant
        del tenant.queries[query.query_id]
        tenant.drawn.remove(query)
        self.queries -= 1
        if not tenant.queries:
            del self._by_name[tenant.name]
            self._drawn.remove(tenant)

    def charge(self, query: ActiveQuery, size: int, registrations: int) -> None:
        """So much more (or, negative, less) is held for this query."""
        query.bytes += size
        query.tenant.bytes += size
        query.tenant.registrations += registrations
        self.bytes += size
        self.registrations += registrations
