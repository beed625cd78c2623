"""One query that a process follows, and whose stage it is."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import NamedTuple

from quaestor.event_layer.partitioning import query_partition
from quaestor.model import GridShape
from quaestor.realtime.live import LiveResult, Shared
from quaestor.realtime.messages import Unsubscription


class Place(NamedTuple):
    """Whose stage a query is."""

    partition: int
    generation: int

    @classmethod
    def of(cls, query_id: str, shape: GridShape) -> Place:
        return cls(query_partition(query_id, shape.query_partitions), shape.generation)


@dataclass(slots=True, kw_only=True, eq=False)
class Interest:
    """id: names it in the grid.
    live: who follows the query here.
    asked_ms: when its stage was last told; 0: not yet.
    """

    id: str
    query_id: str
    place: Place
    shared: Shared
    live: weakref.WeakSet[LiveResult] = field(default_factory=weakref.WeakSet)
    asked_ms: int = 0

    def end(self) -> Unsubscription:
        """What the stage is told when nobody follows it here any more."""
        return Unsubscription(query_id=self.query_id, subscription_ids=(self.id,))
