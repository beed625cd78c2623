"""Whose query is read next: tenants take turns, so that many queries of one do not delay another's few."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class FairOrder:
    """Queries that wait to be read, each once. O(1) for each call. Not thread-safe."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._tenant: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tenant)

    def add(self, query_id: str, tenant: str) -> None:
        """Behind those of the same tenant. Does nothing if it waits already."""
        if query_id not in self._tenant:
            self._tenant[query_id] = tenant
            self._lanes.setdefault(tenant, OrderedDict())[query_id] = None

    def remove(self, query_id: str) -> None:
        """Its tenant comes last then. Does nothing if it does not wait."""
        tenant = self._tenant.pop(query_id, None)
        if tenant is not None:
            lane = self._lanes[tenant]
            del lane[query_id]
            if lane:
                self._lanes.move_to_end(tenant)
            else:
                del self._lanes[tenant]

    def clear(self) -> None:
        self._lanes.clear()
        self._tenant.clear()

    def __iter__(self) -> Iterator[str]:
        """All of them, one of each tenant in turn. They may be removed meanwhile. O(their number)."""
        lanes = [(tenant, iter(list(lane))) for tenant, lane in self._lanes.items()]
        while lanes:
            further = []
            for tenant, lane in lanes:
                query_id = next(lane, None)
                if query_id is None:
                    continue
                further.append((tenant, lane))
                yield query_id
            lanes = further
