"""Succession of a cell to those of earlier generations, and of later ones to it: a cell's part in a resize.

A new cell reports its presence, and proves no freshness until it has read the registrations to take over. An old cell activates
nothing behind the fence.
"""

from __future__ import annotations

from typing import Final

import bson

from quaestor.event_layer import offsets, streams
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.grid.resizing.messages import Fence, TakenOver, decode
from quaestor.model import Cell, GridShape, Registration
from quaestor.ports import EventLayer, StreamEntry

_FOR_EVER: Final = 1 << 62


class Succession:
    """Place of one cell between the generations. Not thread-safe.

    joined: every registration that this generation takes over has been read.
    fenced: a later generation takes over.
    """

    def __init__(
        self, layer: EventLayer, cell: Cell, shape: GridShape, *, deployment: str, leases: LeaseHorizon
    ) -> None:
        self.joined = not shape.generation
        self.fenced = False
        self._layer = layer
        self._generation = shape.generation
        self._presence = streams.presence(deployment, cell, shape.generation)
        self._handover = streams.handover(deployment, shape.generation)
        self._fence = streams.fence(deployment, cell.query_partition, shape.generation)
        self._fence_kept = False
        self._leases = leases
        self._present = not shape.generation
        self._all_written = False

    def resumed(self) -> None:
        """Note that the cell before this one had joined, because it has saved a checkpoint."""
        self.joined = True

    def lost(self) -> None:
        """Begin anew, because the event layer has lost its data.

        This cell's presence is lost too. Registrations that older cells have activated since must be taken over again.
        """
        self.joined = self._present = not self._generation
        self.fenced = self._all_written = False
        self._fence_kept = False

    def take_query_event(self, entry: StreamEntry) -> Registration | None:
        """Return the registration to take over, if this entry holds one; note a fence. Raises EventLayerError."""
        event = decode(entry.payload)
        if isinstance(event, TakenOver):
            return event.registration
        if isinstance(event, Fence) and event.generation > self._generation:
            self.fenced = True
            # The fence is retained for the successor of this cell.
            self._leases.add(offsets.appended_at_ms(entry.offset), _FOR_EVER)
        return None

    def keep_fence(self) -> None:
        """Keep the fence as a value before it is trimmed, for cells that have not read it yet. Raises EventLayerError."""
        if self.fenced and not self._fence_kept:
            self._layer.put(self._fence, b"1")
            self._fence_kept = True

    def look_for_fence(self) -> None:
        """Check for a trimmed fence: a missing entry of the query pipeline may be one. Raises EventLayerError."""
        self.fenced = self.fenced or self._layer.get(self._fence) is not None

    def before_read(self) -> None:
        """Report this cell's presence, and check whether everything has been handed over. Raises EventLayerError."""
        if not self._present:
            self._layer.put(self._presence, b"1")
            self._present = True
        if not (self.joined or self._all_written):
            value = self._layer.get(self._handover)
            self._all_written = value is not None and bool(bson.decode(value)["done"])

    def after_read(self, query_events: int) -> None:
        """Note the number of query pipeline entries that the read since `before_read` brought."""
        self.joined = self.joined or (self._all_written and not query_events)
