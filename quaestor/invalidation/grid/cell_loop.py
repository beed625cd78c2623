"""Loop around a matching node: query and write pipeline in, notification pipeline out.

**Nothing is lost.** Offsets advance when entries have been matched, notifications are kept until they are appended, the
checkpoint is saved after that. A restarted cell takes over where the checkpoint was (`cell_recovery.py`). Matching twice is
harmless: notifications are delivered at least once anyway.

**When entries were missed** (trimmed before they were read, the event layer lost its data, a payload that nobody
understands), every registration is invalidated and the cell starts over from what there is.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.layer_clock import LayerClock
from quaestor.invalidation.grid.cell_meter import CellMeter
from quaestor.invalidation.grid.cell_names import CellNames
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.cell_reader import ArrivedEntries, CellReader
from quaestor.invalidation.grid.cell_recovery import CellRecovery
from quaestor.invalidation.grid.checkpoint import BEGINNING, CellPosition, CheckpointStore
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.grid.periodic_work import PeriodicWork
from quaestor.invalidation.grid.pipeline_maintenance import PipelineMaintenance
from quaestor.invalidation.grid.query_events import QueryEvents
from quaestor.invalidation.grid.query_intake import QueryIntake
from quaestor.invalidation.grid.query_retention import QueryRetention
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.invalidation.grid.subscription_events import SubscriptionEvents
from quaestor.invalidation.grid.write_events import WriteEvents
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer

_LONGEST_PAUSE_S: Final = 1.0


class CellLoop:
    """One matching node at work on an event layer. One thread; the node is the loop's own.

    `run` is all that a process needs. Who drives a cell by hand calls `start`, then `step` again and again.

    started: the cell has taken over from the one before it.
    outbox, leases, succession, retention, query_intake, write_events, periodic: its parts.
    """

    def __init__(
        self,
        node: MatchingNode,
        layer: EventLayer,
        cell: Cell,
        shape: GridShape,
        *,
        deployment: str,
        heartbeat_ms: int,
        retention_ms: int,
        bounds: PipelineBounds | None = None,
        clock: Clock = system_clock,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Make the loop; nothing is read yet.

        layer: its own, see RedisEventLayer.
        heartbeat_ms: at most so long after the last one comes a heartbeat.
        retention_ms: how long writes are kept for replay.
        bounds: of each pipeline.
        """
        telemetry, bounds = telemetry or Telemetry(), bounds or PipelineBounds()
        names, meter, layer_clock = CellNames.of(deployment, cell, shape), CellMeter(), LayerClock(clock)
        self.started = False
        self.node = node
        self.outbox = CellOutbox(layer, deployment)
        self.leases = LeaseHorizon()
        self.succession = Succession(layer, cell, shape, deployment=deployment, leases=self.leases)
        self._telemetry = telemetry
        self._checkpoints = CheckpointStore(layer, names.checkpoint, shape)
        self._reader = CellReader(layer, names, layer_clock=layer_clock, retention_ms=retention_ms)
        self._subscriptions = SubscriptionEvents(node, layer, names.matched, telemetry=telemetry)
        events = QueryEvents(
            node,
            deployment=deployment,
            subscriptions=self._subscriptions,
            succession=self.succession,
            leases=self.leases,
            outbox=self.outbox,
            clock=clock,
            telemetry=telemetry,
        )
        self.retention = QueryRetention(
            layer,
            names.queries,
            node,
            deployment=deployment,
            succession=self.succession,
            leases=self.leases,
            outbox=self.outbox,
            bounds=bounds,
        )
        self.query_intake = QueryIntake(
            events, succession=self.succession, leases=self.leases, retention=self.retention
        )
        self.write_events = WriteEvents(
            node,
            subscriptions=self._subscriptions,
            outbox=self.outbox,
            meter=meter,
            clock=clock,
            telemetry=telemetry,
        )
        self.periodic = PeriodicWork(
            layer,
            node,
            names,
            outbox=self.outbox,
            meter=meter,
            maintenance=PipelineMaintenance(
                layer,
                node,
                names,
                outbox=self.outbox,
                leases=self.leases,
                retention=self.retention,
                bounds=bounds,
                retention_ms=retention_ms,
            ),
            retention=self.retention,
            bounds=bounds,
            heartbeat_ms=heartbeat_ms,
            clock=clock,
            layer_clock=layer_clock,
            telemetry=telemetry,
        )
        self._recovery = CellRecovery(
            layer,
            node,
            names,
            checkpoints=self._checkpoints,
            events=events,
            succession=self.succession,
            outbox=self.outbox,
            retention_ms=retention_ms,
            clock=clock,
            telemetry=telemetry,
        )

    @property
    def position(self) -> CellPosition:
        """The cell's position in its pipelines."""
        return CellPosition(self.query_intake.position, self.write_events.position, self.write_events.complete)

    def run(self, stop: threading.Event) -> None:
        """Work until stop is set. Survives failures of the event layer; an error of any other kind ends it."""
        failed = 0
        while not stop.is_set():
            try:
                if not self.started:
                    self.start()
                while not stop.is_set():
                    self.step()
                    failed = 0
            except EventLayerResetError as error:
                self._failed("cell.event_layer_reset", error)
                self.start_over()
            except EventLayerError as error:
                self._failed("cell.event_layer_failed", error)
            else:
                continue
            failed += 1
            stop.wait(min(0.02 * 2**failed, _LONGEST_PAUSE_S))

    def start(self) -> None:
        """Take over from the cell before this one. Raises EventLayerError; call it again."""
        self._restart(self._recovery.recover())
        self._subscriptions.started()
        self.started = True

    def start_over(self) -> None:
        """Begin anew, because the event layer lost its data, and so did whoever relied on this cell."""
        self.write_events.invalidate_all()
        self._restart(BEGINNING)
        self.succession.lost()
        self.retention.restart()
        self.started = True  # there is nothing to take over

    def step(self) -> None:
        """Do one read, everything that follows from it, one append. Raises EventLayerError; call it again."""
        self._send()
        self.succession.before_read()
        arrived = self._read()
        if self.succession.joined:
            self.query_intake.take(arrived.queries)
            ticked = self._take_writes(arrived)
        else:
            # What is taken over holds as of the tick that the write pipeline of a new generation begins with.
            ticked = self._take_writes(arrived)
            self.query_intake.take(arrived.queries)
        self.succession.after_read(len(arrived.queries))
        self._tell(ticked=ticked)

    def _restart(self, position: CellPosition) -> None:
        self.query_intake.restart(position.queries)
        self.write_events.restart(position)

    def _read(self) -> ArrivedEntries:
        """The next entries, after what follows from those that were missed."""
        intake = self.query_intake
        arrived = self._reader.read(
            queries_after=None if intake.full else intake.read_to,
            writes_after=self.write_events.position,
            waiting=intake.waiting,
            wait_ms=self.periodic.wait_ms,
        )
        if arrived.writes_missed:
            self._failed("cell.writes_missed", self.write_events.position)
            self.write_events.invalidate_all()
        if arrived.queries_missed:
            self._failed("cell.query_events_missed", intake.read_to)
            # Of registrations, only ones that nobody relies on (see query_retention.py).
            # What a stage has announced it announces anew.
            self._subscriptions.started()
            self.succession.look_for_fence()
        elif arrived.queries and intake.read_to == offsets.START:  # whatever came before is not missed, but for a fence
            self.succession.look_for_fence()
        return arrived

    def _take_writes(self, arrived: ArrivedEntries) -> bool:
        """Whether there was a tick among them."""
        ticked = False
        for entry in arrived.writes:
            ticked |= self.write_events.take(entry)
        return ticked

    def _tell(self, *, ticked: bool) -> None:
        """Append what was found; then a heartbeat may prove it, and the position may be saved."""
        now_s = time.monotonic()
        beats = self.periodic.heartbeat_is_due(now_s, ticked=ticked) and self.succession.joined
        if beats:
            self.outbox.add([self.periodic.heartbeat()])
        self._send()
        if beats:
            self._checkpoints.save(self.position)
        self.periodic.maintain_if_due(now_s, self.position, waiting=self.query_intake.waiting)

    def _send(self) -> None:
        self.outbox.send()
        self._subscriptions.send()

    def _failed(self, event: str, cause: EventLayerError | str) -> None:
        self._telemetry.failure("event-layer", event, cause, cell=str(self.node.cell))
