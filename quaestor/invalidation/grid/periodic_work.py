"""Periodic work of a cell: heartbeats, and once a second expiry, maintenance and figures."""

from __future__ import annotations

import time
from typing import Final

from quaestor.event_layer.layer_clock import LayerClock
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_meter import CellMeter
from quaestor.invalidation.grid.cell_names import CellNames
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, PipelineStats, encode_stats
from quaestor.invalidation.grid.checkpoint import CellPosition
from quaestor.invalidation.grid.pipeline_maintenance import PipelineMaintenance
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Heartbeat, Version
from quaestor.ports import EventLayer

_MAINTENANCE_EVERY_S: Final = 1.0
_IDLE: Final = 4
"""Factor of the time between heartbeats of a cell that guards nothing, unless ingest ticks."""
_MOST_NAMED: Final = 5


class PeriodicWork:
    """Work of one cell at due times. Not thread-safe. Moments are those of time.monotonic().

    heartbeat_due_s: the next heartbeat, if no tick comes before.
    maintenance_due_s: the next maintenance.
    """

    def __init__(
        self,
        layer: EventLayer,
        node: MatchingNode,
        names: CellNames,
        context: LoopContext,
        *,
        outbox: CellOutbox,
        meter: CellMeter,
        maintenance: PipelineMaintenance,
        layer_clock: LayerClock,
    ) -> None:
        self.heartbeat_due_s = 0.0
        self.maintenance_due_s = 0.0
        self._layer = layer
        self._node = node
        self._names = names
        self._outbox = outbox
        self._meter = meter
        self._maintenance = maintenance
        self._retention = maintenance.retention
        self._bounds = context.bounds
        self._heartbeat_s = context.heartbeat_ms / 1000
        self._clock = context.clock
        self._layer_clock = layer_clock
        self._telemetry = context.telemetry

    @property
    def wait_ms(self) -> int:
        """Time to wait for entries, in ms: until the next heartbeat, or the next instant of a result that follows the clock."""
        beat_ms = max(1, int((self.heartbeat_due_s - time.monotonic()) * 1000))
        due_ms = self._node.next_due_ms
        return beat_ms if due_ms is None else max(1, min(beat_ms, due_ms - self._clock()))

    def fire_due(self) -> None:
        """Report the results that the clock has changed."""
        due_ms = self._node.next_due_ms
        if due_ms is not None and due_ms <= (now_ms := self._clock()):
            self._outbox.add(self._node.due(now_ms))

    def heartbeat_is_due(self, now_s: float, *, ticked: bool) -> bool:
        """Whether a heartbeat is due now; the next one is then due a whole period later."""
        due = ticked or now_s >= self.heartbeat_due_s
        if due:
            # A tick brings a heartbeat anyway. Without a tick it only shows that the cell runs.
            self.heartbeat_due_s = now_s + self._heartbeat_s * (_IDLE if self._node.guards_nothing else 1)
        return due

    def heartbeat(self, matched: Version) -> Heartbeat:
        """Return the heartbeat of this moment.

        matched: every write up to this version has been matched; 0: not known.
        """
        return Heartbeat(
            cell=self._node.cell,
            shape=self._node.shape,
            at_ms=self._clock(),
            fresh_as_of_ms=self._node.fresh_as_of_ms,
            watermark=self._node.watermark,
            registrations=self._node.registrations,
            writes=self._meter.writes,
            matched=matched,
        )

    def maintain_if_due(self, now_s: float, position: CellPosition, *, waiting: bool) -> None:
        """Do the maintenance once a second, and continue an unfinished one. Raises EventLayerError.

        position: this cell's position.
        waiting: whether query events wait.
        """
        if now_s >= self.maintenance_due_s:
            self.maintenance_due_s = now_s + _MAINTENANCE_EVERY_S
            self.maintain(position, waiting=waiting)
        elif self._retention.unfinished:
            self._retention.bound(worked_off=position.queries, now_ms=self._clock())

    def maintain(self, position: CellPosition, *, waiting: bool) -> None:
        """Forget expired registrations, maintain the pipelines, report figures. Raises EventLayerError."""
        now_ms = self._clock()
        self._outbox.add(self._node.expire(now_ms, leases_ms=self._layer_clock.agreed_ms))
        if failures := self._node.take_failures():
            queries = sorted(set(failures))[:_MOST_NAMED]
            self._telemetry.failure("matching", "cell.predicates_failed", f"{len(failures)} times", queries=queries)
        if unreadable := self._node.tally.unreadable:
            detail = f"{len(unreadable)} times: {unreadable[0]}"
            unreadable.clear()
            self._telemetry.failure("event-layer", "cell.image_unreadable", detail, cell=str(self._node.cell))
        self._node.subscriptions.expire(now_ms)
        trim_ms = self._layer_clock.agreed_ms
        self._publish(self._maintenance.maintain(position, waiting=waiting, now_ms=now_ms, trim_ms=trim_ms), now_ms)

    def _publish(self, sizes: list[PipelineStats], now_ms: int) -> None:
        for size in sizes:
            self._telemetry.grid.pipeline_entries.labels(size.pipeline).set(size.entries)
            self._telemetry.grid.pipeline_bytes.labels(size.pipeline).set(size.bytes)
            if size.lag_ms != UNKNOWN_LAG:
                self._telemetry.grid.pipeline_lag_ms.labels(size.pipeline).set(size.lag_ms)
        stats = self._meter.take(self._node, now_ms=now_ms, pipelines=sizes, bounds=self._bounds)
        self._layer.put(self._names.stats, encode_stats(stats))
