"""Loops of a grid, made from plain data: cells, stages, ingest, journal flushes.

Spark's tasks, local processes and app processes run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pymongo

from quaestor.clock import Clock, system_clock
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.loop_context import LoopContext
from quaestor.first_use import FirstUse
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.journal_flushing import JournalFlushing
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.realtime.rules import StageRules
from quaestor.realtime.snapshots import MongoSnapshots
from quaestor.settings import Settings

if TYPE_CHECKING:
    from quaestor.realtime import stage as stages
    from quaestor.realtime.stage import StageLoop
else:
    stages = FirstUse("quaestor.realtime.stage")

FREEZE_EVERY: Final = 20_000
"""New objects between two collections, in a process that only matches (see gc_freezing.py)."""
MOST_REGISTRATIONS: Final = 20_000_000
"""Limit beyond reach: the budget of bytes bounds the content of such a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLoops:
    """Parameters of a grid, and the loops made from them. Each loop needs an event layer of its own.

    shape: partitions and generation.
    earlier: grids that this one takes over from.
    rules, standing_records: parameters of the stages.
    journal_flush_ms, live_journal_flush_ms, control_namespace: parameters of ingest, see Settings.
    """

    deployment: str
    shape: GridShape
    heartbeat_ms: int
    retention_ms: int
    node_memory_bytes: int
    earlier: tuple[GridShape, ...] = ()
    rules: StageRules = field(default_factory=StageRules)
    standing_records: int = 100_000
    journal_flush_ms: int = 0
    live_journal_flush_ms: int = 0
    control_namespace: str = "quaestor.control"
    bounds: PipelineBounds = field(default_factory=PipelineBounds)

    @classmethod
    def of(cls, settings: Settings, shape: GridShape, *, deployment: str | None = None) -> GridLoops:
        """Return the loops of a first generation with these settings.

        deployment: None takes that of the settings.
        """
        return cls(
            deployment=deployment or settings.deployment,
            shape=shape,
            heartbeat_ms=settings.grid.heartbeat_ms,
            retention_ms=settings.grid.retention_ms,
            node_memory_bytes=settings.grid.node_memory_bytes,
            rules=StageRules.of(settings),
            standing_records=settings.realtime.standing_records,
            journal_flush_ms=settings.grid.journal_flush_ms,
            live_journal_flush_ms=settings.realtime.live_journal_flush_ms,
            control_namespace=settings.store.control_namespace,
            bounds=PipelineBounds.of(settings),
        )

    def cell(
        self,
        cell: Cell,
        layer: EventLayer,
        telemetry: Telemetry,
        *,
        clock: Clock = system_clock,
        dedicated: bool = False,
    ) -> CellLoop:
        """Return the loop of one cell.

        dedicated: its process does nothing else.
        """
        node = MatchingNode(
            cell, self.shape, retention_ms=self.retention_ms, limits=NodeLimits(max_bytes=self.node_memory_bytes)
        )
        if dedicated:
            node = MatchingNode(
                cell,
                self.shape,
                retention_ms=self.retention_ms,
                freeze_every=FREEZE_EVERY,
                limits=NodeLimits(max_registrations=MOST_REGISTRATIONS, max_bytes=self.node_memory_bytes),
            )
        return CellLoop(
            node,
            layer,
            cell,
            self.shape,
            LoopContext(
                deployment=self.deployment,
                heartbeat_ms=self.heartbeat_ms,
                retention_ms=self.retention_ms,
                bounds=self.bounds,
                clock=clock,
                telemetry=telemetry,
            ),
        )

    def stage(
        self,
        query_partition: int,
        layer: EventLayer,
        client: pymongo.MongoClient[Any],
        telemetry: Telemetry,
        *,
        clock: Clock = system_clock,
    ) -> StageLoop:
        """Return the loop of the stage of one query partition."""
        return stages.StageLoop(
            layer,
            MongoSnapshots(client, max_records=self.standing_records),
            query_partition,
            self.shape,
            LoopContext(
                deployment=self.deployment,
                heartbeat_ms=self.heartbeat_ms,
                retention_ms=self.retention_ms,
                clock=clock,
                telemetry=telemetry,
            ),
            rules=self.rules,
        )

    def ingest(
        self,
        layer: EventLayer,
        client: pymongo.MongoClient[Any],
        telemetry: Telemetry,
        *,
        clock: Clock = system_clock,
        slack: Callable[[], int] = lambda: 1,
    ) -> ChangeStreamFollower:
        """Return the loop of ingest, which takes over from the earlier grids.

        slack: see ChangeStreamFollower.
        """
        handover = GridHandover(
            layer, self.shape, self.earlier, deployment=self.deployment, clock=clock, telemetry=telemetry
        )
        return ChangeStreamFollower(
            client,
            layer,
            self.shape,
            LoopContext(
                deployment=self.deployment,
                heartbeat_ms=self.heartbeat_ms,
                bounds=self.bounds,
                clock=clock,
                telemetry=telemetry,
            ),
            handover=handover,
            slack=slack,
        )

    def journal(
        self,
        client: pymongo.MongoClient[Any],
        telemetry: Telemetry,
        *,
        clock: Clock = system_clock,
        followed: Callable[[], bool] | None = None,
    ) -> JournalFlushing | None:
        """Return the loop of journal flushes; None if the settings turn it off.

        followed: whether clients of this process follow live results; None: not known here.
        """
        always, live = self.journal_flush_ms, self.live_journal_flush_ms
        if not always and (not live or followed is None):
            return None
        return JournalFlushing(
            client,
            interval_ms=always or live,
            namespace=self.control_namespace,
            telemetry=telemetry,
            clock=clock,
            wanted=None if always else followed,
        )
