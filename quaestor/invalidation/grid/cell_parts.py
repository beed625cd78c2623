"""Parts of a cell, and their assembly."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.event_layer.layer_clock import LayerClock
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_meter import CellMeter
from quaestor.invalidation.grid.cell_names import CellNames
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.cell_reader import CellReader
from quaestor.invalidation.grid.cell_recovery import CellRecovery
from quaestor.invalidation.grid.checkpoint import CheckpointStore
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
from quaestor.ports import EventLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class CellParts:
    """Parts of one cell.

    recovery, checkpoints: takeover from the cell before, and by the next one.
    reader: reader of both pipelines.
    query_intake, write_events: processing of the entries read.
    succession: takeover between generations of the grid.
    subscriptions, outbox: messages to send.
    leases, retention: needed entries of the query pipeline, and its bounds.
    periodic: heartbeats and maintenance.
    """

    recovery: CellRecovery
    checkpoints: CheckpointStore
    reader: CellReader
    query_intake: QueryIntake
    write_events: WriteEvents
    succession: Succession
    subscriptions: SubscriptionEvents
    outbox: CellOutbox
    leases: LeaseHorizon
    retention: QueryRetention
    periodic: PeriodicWork


def cell_parts(node: MatchingNode, layer: EventLayer, cell: Cell, shape: GridShape, context: LoopContext) -> CellParts:
    """Return the parts around this node; see CellLoop. Reads nothing."""
    deployment, clock, telemetry = context.deployment, context.clock, context.telemetry
    names = CellNames.of(deployment, cell, shape)
    layer_clock, meter = LayerClock(clock), CellMeter()
    outbox, leases = CellOutbox(layer, deployment), LeaseHorizon()
    checkpoints = CheckpointStore(layer, names.checkpoint, shape)
    succession = Succession(layer, cell, shape, deployment=deployment, leases=leases)
    subscriptions = SubscriptionEvents(node, layer, names.matched, telemetry=telemetry)
    events = QueryEvents(
        node, deployment=deployment, subscriptions=subscriptions, succession=succession, leases=leases, outbox=outbox,
        clock=clock, telemetry=telemetry,
    )  # fmt: skip
    retention = QueryRetention(
        layer, names.queries, node, deployment=deployment, succession=succession, leases=leases, outbox=outbox,
        bounds=context.bounds,
    )  # fmt: skip
    maintenance = PipelineMaintenance(layer, node, names, context, outbox=outbox, leases=leases, retention=retention)
    return CellParts(
        recovery=CellRecovery(
            layer, node, names, context, checkpoints=checkpoints, events=events, succession=succession, outbox=outbox,
        ),
        checkpoints=checkpoints,
        reader=CellReader(layer, names, layer_clock=layer_clock, retention_ms=context.retention_ms),
        query_intake=QueryIntake(events, succession=succession, leases=leases, retention=retention),
        write_events=WriteEvents(
            node, subscriptions=subscriptions, outbox=outbox, meter=meter, clock=clock, telemetry=telemetry
        ),
        succession=succession,
        subscriptions=subscriptions,
        outbox=outbox,
        leases=leases,
        retention=retention,
        periodic=PeriodicWork(
            layer, node, names, context, outbox=outbox, meter=meter, maintenance=maintenance, layer_clock=layer_clock,
        ),
    )  # fmt: skip
