"""Round-robin queue of the queries to be read: tenants take turns, so that many of one do not delay another's few."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

_AT_ONCE: Final = 64
"""Queries of a tenant that are taken from its queue at first. Usually some readers are free, and the first are due."""


class RoundRobinQueue:
    """Queue of queries that wait to be read, each once. O(1) for each call. Not thread-safe."""

    def __init__(self) -> None:
        self._by_tenant: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._tenant: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tenant)

    def add(self, query_id: str, tenant: str) -> None:
        """Put a query behind those of the same tenant. Does nothing if it waits already."""
        if query_id not in self._tenant:
            self._tenant[query_id] = tenant
            self._by_tenant.setdefault(tenant, OrderedDict())[query_id] = None

    def remove(self, query_id: str) -> None:
        """Take a query out; its tenant comes last then. Does nothing if it does not wait."""
        tenant = self._tenant.pop(query_id, None)
        if tenant is not None:
            queue = self._by_tenant[tenant]
            del queue[query_id]
            if queue:
                self._by_tenant.move_to_end(tenant)
            else:
                del self._by_tenant[tenant]

    def clear(self) -> None:
        """Take all queries out."""
        self._by_tenant.clear()
        self._tenant.clear()

    def __iter__(self) -> Iterator[str]:
        """All queries, one of each tenant in turn. Queries may be removed meanwhile, but not added.

        O(queries taken), and O(queries of a tenant) beyond the first 64 of each.
        """
        queues = [_unaffected(queue) for queue in self._by_tenant.values()]
        while queues:
            further = []
            for queue in queues:
                query_id = next(queue, None)
                if query_id is None:
                    continue
                further.append(queue)
                yield query_id
            queues = further


def _unaffected(queue: OrderedDict[str, None]) -> Iterator[str]:
    """Iterate over a queue from which any may be removed meanwhile."""
    first = list(islice(queue, _AT_ONCE))
    yield from first
    passed = set(first)
    yield from [query_id for query_id in queue if query_id not in passed]
