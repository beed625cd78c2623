"""Recovery of a cell: its takeover from the cell before it.

The cell rebuilds the knowledge of its predecessor: retained writes up to the checkpoint for replay, then its registrations. All
entries behind the checkpoint are then read as usual. Without a checkpoint there is nothing to take over. If writes behind it
were lost, all registrations are invalidated.

The predecessor may also have activated registrations behind its checkpoint, and apps rely on them. All registrations in the
query pipeline at the beginning are therefore inherited. This cell guards or invalidates each of them, and proves no moment
earlier.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from quaestor.event_layer import offsets, streams
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_names import CellNames
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.checkpoint import CellPosition, Checkpoint, CheckpointStore, CompletePoint
from quaestor.invalidation.grid.query_events import QueryEvents
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import AfterImage, Cancellation, Registration, WriteKind
from quaestor.ports import EventLayer, StreamEntry

_ENTRIES_AT_ONCE: Final = 500


class CellRecovery:
    """Recovery of one cell, its first work. Not thread-safe."""

    def __init__(
        self,
        layer: EventLayer,
        node: MatchingNode,
        names: CellNames,
        context: LoopContext,
        *,
        checkpoints: CheckpointStore,
        events: QueryEvents,
        succession: Succession,
        outbox: CellOutbox,
    ) -> None:
        self._layer = layer
        self._node = node
        self._names = names
        self._checkpoints = checkpoints
        self._events = events
        self._succession = succession
        self._outbox = outbox
        self._retention_ms = context.retention_ms
        self._clock = context.clock
        self._telemetry = context.telemetry

    def recover(self) -> CellPosition:
        """Take over from the cell that saved the checkpoint, if there is one and nothing was lost since.

        Returns the position to read on from. Raises EventLayerError; it may then be called again.
        """
        since = self._layer.offset_at(self._names.writes, self._clock() - self._retention_ms)
        saved = self._checkpoints.load()
        if saved is not None:
            self._succession.resumed()
        self._succession.look_for_fence()
        if saved is None:
            return self._first_position(since)
        if streams.missed(saved.writes, self._layer.first_offset(self._names.writes)):
            return self._position_after_loss(saved)
        self._rebuild_retention(min(since, saved.writes), saved.writes)
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=saved.version)
        self._node.process(tick, now_ms=self._clock())
        self._take_over(saved)
        complete = CompletePoint(saved.writes, saved.version)
        return CellPosition(saved.queries, saved.writes, complete, inherited=self._end_of_queries(saved.queries))

    def _first_position(self, since: str) -> CellPosition:
        reached = self._rebuild_retention(since, None)
        if reached == since:  # no writes, or this clock is fast
            reached = self._rebuild_retention(offsets.START, None)
        return CellPosition(offsets.START, reached, inherited=self._end_of_queries(offsets.START))

    def _position_after_loss(self, saved: Checkpoint) -> CellPosition:
        cell = str(self._node.cell)
        self._telemetry.failure("event-layer", "cell.writes_missed", saved.writes, cell=cell)
        self._outbox.add(
            [self._events.invalidated(registration) for _, registration in self._retained_registrations(saved.queries)]
        )
        return CellPosition(saved.queries, offsets.START, inherited=self._end_of_queries(saved.queries))

    def _end_of_queries(self, after: str) -> str:
        """Return the offset of the last entry of the query pipeline, or `after`. O(entries behind it)."""
        while entries := self._layer.read({self._names.queries: after}, count=_ENTRIES_AT_ONCE, block_ms=0):
            after = entries[-1].offset
        return after

    def _rebuild_retention(self, after: str, up_to: str | None) -> str:
        """Feed the node retained writes for replay, before any registration could fire. Return the offset reached."""
        while entries := self._layer.read({self._names.writes: after}, count=_ENTRIES_AT_ONCE, block_ms=0):
            for entry in entries:
                if up_to is not None and entry.offset > up_to:
                    return after
                at_ms, size = offsets.appended_at_ms(entry.offset), len(entry.payload)
                self._node.process(decode_image(entry.payload), now_ms=at_ms, encoded=size)
                after = entry.offset
        return after

    def _take_over(self, saved: Checkpoint) -> None:
        """Take over registrations active at the checkpoint, as of its version, without a second activation."""
        for entry, registration in self._retained_registrations(saved.queries):
            self._events.take_over(entry, replace(registration, since=max(registration.since, saved.version)))

    def _retained_registrations(self, up_to: str) -> list[tuple[StreamEntry, Registration]]:
        """Return the registrations in the query pipeline up to an offset, without cancelled and expired ones."""
        retained: dict[str, tuple[StreamEntry, Registration]] = {}
        after, now_ms = offsets.START, self._clock()
        while entries := self._layer.read({self._names.queries: after}, count=_ENTRIES_AT_ONCE, block_ms=0):
            for entry in entries:
                if entry.offset > up_to:
                    return list(retained.values())
                after = entry.offset
                event = self._events.retained(entry)
                if isinstance(event, Cancellation):
                    for registration_id in event.registration_ids:
                        retained.pop(registration_id, None)
                elif event is not None and event.expires_at_ms > now_ms:
                    retained[event.id] = entry, event
        return list(retained.values())
