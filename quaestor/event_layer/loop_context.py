"""Context of the loops of a grid: the deployment, its periods and bounds, clock and telemetry."""

from __future__ import annotations

from dataclasses import dataclass, field

from quaestor.clock import Clock, system_clock
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.observability.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopContext:
    """Context of cells, stages and ingest.

    heartbeat_ms: longest time between two heartbeats of a cell, and between two ticks of ingest.
    retention_ms: time for which writes are kept for replay.
    bounds: bounds of each pipeline.
    """

    deployment: str
    heartbeat_ms: int
    retention_ms: int = 60_000
    bounds: PipelineBounds = field(default_factory=PipelineBounds)
    clock: Clock = system_clock
    telemetry: Telemetry = field(default_factory=Telemetry)
