"""Intake of query events: arrived and waiting ones, tenants in turn.

Resize messages keep their place among all events. While the cell refuses waiting events, none is queued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from quaestor.event_layer import offsets
from quaestor.invalidation.grid.fair_queue import FairQueue
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.grid.query_events import QueryEvents
from quaestor.invalidation.grid.query_retention import QueryRetention
from quaestor.invalidation.grid.resizing.messages import concerns_resizing
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.ports import StreamEntry

_EVENTS_AT_ONCE: Final = 200
_LONGEST_S: Final = 0.1
"""Limits of one step, in events and seconds, before writes have their turn again; the first one reached counts."""


class QueryIntake:
    """Consumer of one query pipeline. Not thread-safe.

    position: all entries up to this offset have been processed.
    inherits: registrations that the cell before this one has activated may still wait.
    """

    def __init__(
        self, events: QueryEvents, *, succession: Succession, leases: LeaseHorizon, retention: QueryRetention
    ) -> None:
        self.position = offsets.START
        self.inherits = False
        self._inherited = offsets.START
        self._queue = FairQueue()
        self._events = events
        self._succession = succession
        self._leases = leases
        self._retention = retention

    @property
    def waiting(self) -> bool:
        """Whether read events still wait."""
        return bool(self._queue)

    @property
    def read_to(self) -> str:
        """Offset of the last event that has arrived."""
        return self._queue.read_to

    @property
    def full(self) -> bool:
        """Whether reading must pause until waiting events have been processed."""
        return self._queue.full

    def restart(self, offset: str, *, inherited: str = offsets.START) -> None:
        """Continue behind this offset, with no event waiting.

        inherited: see CellPosition.
        """
        self._queue.restart(offset)
        self.position = offset
        self._inherited = inherited
        self.inherits = offset < inherited

    def take(self, arrived: Sequence[StreamEntry]) -> None:
        """Process some of the arrived and the waiting events."""
        queue, refused = self._queue, self._retention.behind
        taken: Iterable[StreamEntry]
        if refused or not self._succession.joined or any(concerns_resizing(entry.payload) for entry in arrived):
            taken = [*queue.take(len(queue)), *arrived]
            queue.restart(arrived[-1].offset if arrived else queue.read_to)
        else:
            queue.arrived(arrived, self._leases)
            taken = queue.turns(_EVENTS_AT_ONCE, within_s=_LONGEST_S)
        for entry in taken:
            self._events.take(entry, refused=refused, inherited=entry.offset <= self._inherited)
        self.position = queue.worked_off
        # Without arrivals and without a queue the pipeline holds no more: another cell has trimmed the rest.
        self.inherits = self.inherits and self.position < self._inherited and (bool(arrived) or self.waiting)
