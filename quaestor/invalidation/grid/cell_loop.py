"""Loop around a matching node: query and write pipeline in, notification pipeline out.

**Nothing is lost.** Offsets advance when entries have been matched. Notifications are kept until they are appended. The
checkpoint is saved after that. A restarted cell takes over from the checkpoint (`cell_recovery.py`). Matching twice is
harmless: notifications are delivered at least once anyway.

**When entries were missed** (trimmed before they were read, lost by the event layer, unreadable), every registration is
invalidated. The cell then starts over from the remaining entries.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.turns import Turns, turns_on
from quaestor.invalidation.grid.cell_parts import cell_parts
from quaestor.invalidation.grid.cell_reader import ArrivedEntries
from quaestor.invalidation.grid.checkpoint import BEGINNING, CellPosition
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape
from quaestor.ports import EventLayer
from quaestor.tasks import pause_after

_FIRST_PAUSE_S: Final = 0.04
_LONGEST_PAUSE_S: Final = 1.0


class CellLoop:
    """One matching node at work on an event layer. One thread, which owns the node.

    A process calls only `run`. To drive a cell by hand, call `start`, then `step` repeatedly.

    started: the cell has taken over from its predecessor.
    node: the matching node.
    parts: the parts that the loop joins.
    """

    def __init__(
        self,
        node: MatchingNode,
        layer: EventLayer,
        cell: Cell,
        shape: GridShape,
        context: LoopContext,
    ) -> None:
        """Make the loop; nothing is read yet.

        layer: event layer for this loop only, see RedisEventLayer.
        """
        self._telemetry = context.telemetry
        self._turns = turns_on(layer)
        self._more = False
        self._failures = 0  # in a row
        self.started = False
        self.node = node
        self.parts = cell_parts(node, layer, cell, shape, context)

    @property
    def position(self) -> CellPosition:
        """The cell's position in its pipelines."""
        queries, writes = self.parts.query_intake, self.parts.write_events
        return CellPosition(queries.position, writes.position, writes.complete)

    def run(self, stop: threading.Event) -> None:
        """Work until stop is set. Survives failures of the event layer; any other error ends the loop."""
        while not stop.is_set():
            try:
                if not self.started:
                    self.start()
                if self._turns is not None:
                    self._turns.run(stop, Turns(self._turn), self.parts.reader.appended, self._behind)
                while not stop.is_set():
                    self.step()
            except EventLayerResetError as error:
                self._failed("cell.event_layer_reset", error)
                self.start_over()
            except EventLayerError as error:
                if stop.is_set():
                    return  # a lease of this process may be over while it ends
                self._failed("cell.event_layer_failed", error)
            else:
                continue
            self._failures += 1
            stop.wait(pause_after(self._failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))

    def start(self) -> None:
        """Take over from the cell before this one. Raises EventLayerError; then call it again."""
        self._restart(self.parts.recovery.recover())
        self.parts.subscriptions.started()
        self.started = True

    def start_over(self) -> None:
        """Begin anew: the event layer lost its data, and so did the processes that relied on this cell."""
        self.parts.write_events.invalidate_all()
        self._restart(BEGINNING)
        self.parts.succession.lost()
        self.parts.retention.restart()
        self.started = True  # there is nothing to take over

    def step(self, *, waits: bool = True) -> None:
        """Do one read, process its entries, append the results. Raises EventLayerError; then call it again.

        waits: for the first entry.
        """
        intake, succession = self.parts.query_intake, self.parts.succession
        self._send()
        succession.before_read()
        arrived = self._read(wait_ms=self.parts.periodic.wait_ms if waits else 0)
        self._more = arrived.more
        self.parts.write_events.take_early(arrived.early)
        if succession.joined:
            intake.take(arrived.queries)
            ticked = self._take_writes(arrived)
        else:
            # A takeover holds as of the tick with which the write pipeline of a new generation begins.
            ticked = self._take_writes(arrived)
            intake.take(arrived.queries)
        succession.after_read(len(arrived.queries))
        self._tell(ticked=ticked)
        self._failures = 0

    def _turn(self) -> float:
        """Step without a wait. Returns after how many seconds the next step is due."""
        self.step(waits=False)
        return 0.0 if self._more or self.parts.query_intake.waiting else self.parts.periodic.wait_ms / 1_000

    def _behind(self) -> dict[str, str]:
        intake, writes = self.parts.query_intake, self.parts.write_events
        return self.parts.reader.positions(
            queries_after=None if intake.full else intake.read_to,
            writes_after=writes.position,
            early_after=writes.early_position,
        )

    def _restart(self, position: CellPosition) -> None:
        self.parts.query_intake.restart(position.queries, inherited=position.inherited)
        self.parts.write_events.restart(position)

    def _read(self, *, wait_ms: int) -> ArrivedEntries:
        """Return the next entries, after the consequences of missed ones."""
        intake, writes, succession = self.parts.query_intake, self.parts.write_events, self.parts.succession
        arrived = self.parts.reader.read(
            queries_after=None if intake.full else intake.read_to,
            writes_after=writes.position,
            early_after=writes.early_position,
            waiting=intake.waiting,
            wait_ms=wait_ms,
        )
        if arrived.writes_missed:
            self._failed("cell.writes_missed", writes.position)
            writes.invalidate_all()
        if arrived.queries_missed:
            self._failed("cell.query_events_missed", intake.read_to)
            # Of registrations, only ones that no response relies on (see query_retention.py).
            # The stage announces its queries anew.
            self.parts.subscriptions.started()
            succession.look_for_fence()
        elif (
            arrived.queries and intake.read_to == offsets.START
        ):  # at the start no entry counts as missed, except a fence
            succession.look_for_fence()
        return arrived

    def _take_writes(self, arrived: ArrivedEntries) -> bool:
        """Match the arrived writes; return whether there was a tick among them."""
        take, ticked = self.parts.write_events.take, False
        for entry in arrived.writes:
            ticked |= take(entry)
        return ticked

    def _tell(self, *, ticked: bool) -> None:
        """Append the results; then a heartbeat may prove them, and the position may be saved."""
        periodic, now_s = self.parts.periodic, time.monotonic()
        periodic.fire_due()  # before the heartbeat, which proves this moment
        guards = self.parts.succession.joined and not self.parts.query_intake.inherits
        beats = periodic.heartbeat_is_due(now_s, ticked=ticked) and guards
        if beats:
            complete = self.parts.write_events.complete
            self.parts.outbox.add([periodic.heartbeat(0 if complete is None else complete.version)])
        self._send()
        if beats:
            self.parts.checkpoints.save(self.position)
        periodic.maintain_if_due(now_s, self.position, waiting=self.parts.query_intake.waiting)

    def _send(self) -> None:
        self.parts.outbox.send()
        self.parts.subscriptions.send()

    def _failed(self, event: str, cause: EventLayerError | str) -> None:
        self._telemetry.failure("event-layer", event, cause, cell=str(self.node.cell))
