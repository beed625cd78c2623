"""Tasks of the grid: each runs one cell, one stage, or ingest, until told to stop. Nothing in here knows Spark.

Each task makes its own clients; what is sent to it is a `GridJob`, plain data. How a task is told to stop: the grid's
value in the event layer names the current run, and the one that takes over from it; a task of another run ends, one whose run is
marked stopped too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pymongo
import structlog

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError, EventLayerError
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.connecting import event_layer
from quaestor.gc_freezing import freeze_loaded
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.cell_processes import Announcement
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.grid.resizing.state import Run, get_state
from quaestor.invalidation.grid.spark.slots import tasks_of
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.journal_flushing import JournalFlushing
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.realtime.rules import StageRules
from quaestor.realtime.snapshots import MongoSnapshots
from quaestor.realtime.stage import StageLoop

FREEZE_EVERY: Final = 20_000
"""New objects between two collections: a task's process does nothing but matching (see gc_freezing.py)."""
MOST_REGISTRATIONS: Final = 20_000_000
"""Out of reach: the budget of bytes bounds what a cell holds."""

_LOOK_EVERY_S: Final = 0.25
_RECONFIGURED_AFTER_S: Final = 5.0
_RESTART_AFTER_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GridJob:
    """A grid as plain data: everything a task needs to know.

    run: unique for each start of a grid.
    rules, standing_records: of the stages.
    journal_flush_ms, control_namespace: of the ingest, see Settings.
    earlier: the grids that this one takes over from.
    """

    run: str
    redis_url: str
    mongo_url: str
    deployment: str
    shape: GridShape
    heartbeat_ms: int
    retention_ms: int
    node_memory_bytes: int
    rules: StageRules = field(default_factory=StageRules)
    standing_records: int = 100_000
    journal_flush_ms: int = 0
    control_namespace: str = "quaestor.control"
    earlier: tuple[GridShape, ...] = ()
    bounds: PipelineBounds = field(default_factory=PipelineBounds)

    @property
    def cells(self) -> list[Cell]:
        """The cells, one task each, in this order; then come the stages, one for each query partition, then ingest."""
        return self.shape.cells

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return tasks_of(self.shape)


def run_task(job: GridJob, index: int) -> None:
    """Run task `index` of the job until its run is over. Raises what ended it otherwise; Spark then starts it again."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    telemetry, stop = Telemetry(), threading.Event()
    cell = job.cells[index] if index < len(job.cells) else None
    threading.Thread(target=_watch, args=(job, cell, stop), name="quaestor-watch", daemon=True).start()
    while not stop.is_set():
        try:
            with closing(event_layer(job.redis_url, job.deployment)) as layer:
                if cell is not None:
                    _cell(job, cell, layer, telemetry, stop)
                elif index < job.tasks - 1:
                    _stage(job, index - len(job.cells), layer, telemetry, stop)
                else:
                    _ingest(job, layer, telemetry, stop)
        except ConfigurationError as error:  # may be mended while we run
            telemetry.failure("grid", "spark.misconfigured", error, task=index)
            stop.wait(_RECONFIGURED_AFTER_S)
        except Exception as error:
            telemetry.failure("grid", "spark.task_died", repr(error), task=index)
            stop.wait(_RESTART_AFTER_S)
            raise


def _cell(job: GridJob, cell: Cell, layer: EventLayer, telemetry: Telemetry, stop: threading.Event) -> None:
    node = MatchingNode(
        cell,
        job.shape,
        retention_ms=job.retention_ms,
        max_registrations=MOST_REGISTRATIONS,
        max_bytes=job.node_memory_bytes,
        freeze_every=FREEZE_EVERY,
    )
    CellLoop(
        node,
        layer,
        cell,
        job.shape,
        deployment=job.deployment,
        heartbeat_ms=job.heartbeat_ms,
        retention_ms=job.retention_ms,
        bounds=job.bounds,
        telemetry=telemetry,
    ).run(stop)


def _stage(job: GridJob, query_partition: int, layer: EventLayer, telemetry: Telemetry, stop: threading.Event) -> None:
    with pymongo.MongoClient[dict[str, Any]](job.mongo_url) as client:
        StageLoop(
            layer,
            MongoSnapshots(client, max_records=job.standing_records),
            query_partition,
            job.shape,
            deployment=job.deployment,
            heartbeat_ms=job.heartbeat_ms,
            retention_ms=job.retention_ms,
            rules=job.rules,
            telemetry=telemetry,
        ).run(stop)


def _ingest(job: GridJob, layer: EventLayer, telemetry: Telemetry, stop: threading.Event) -> None:
    freeze_loaded()  # a full collection walks all that Spark has loaded, tens of milliseconds in which no write goes on
    with pymongo.MongoClient[dict[str, Any]](job.mongo_url) as client, _flushing(job, client, telemetry):
        ChangeStreamFollower(
            client,
            layer,
            job.shape,
            deployment=job.deployment,
            heartbeat_ms=job.heartbeat_ms,
            handover=GridHandover(
                layer, job.shape, job.earlier, deployment=job.deployment, clock=system_clock, telemetry=telemetry
            ),
            bounds=job.bounds,
            telemetry=telemetry,
        ).run(stop)


@contextmanager
def _flushing(job: GridJob, client: pymongo.MongoClient[Any], telemetry: Telemetry) -> Iterator[None]:
    """Journal flushes in a thread of their own, if the settings want them; ended before the client is closed."""
    if not job.journal_flush_ms:
        yield
        return
    flushing, stop = (
        JournalFlushing(client, interval_ms=job.journal_flush_ms, namespace=job.control_namespace, telemetry=telemetry),
        threading.Event(),
    )
    thread = threading.Thread(target=flushing.run, args=(stop,), name="quaestor-journal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(job: GridJob, cell: Cell | None, stop: threading.Event) -> None:
    """Says which process runs the cell, and notices the end of the run, or of the executor (then nobody is left to stop us).

    Has an event layer of its own: whether the data were lost is told to the first who asks, and that must be the task.
    """
    executor = os.getppid()
    with closing(event_layer(job.redis_url, job.deployment)) as layer:
        process = None if cell is None else Announcement(layer, job.deployment, cell, job.shape, run=job.run)
        while True:
            try:
                if process is not None:
                    process.make()
                state = get_state(layer, job.deployment)
                own = Run(run=job.run, shape=job.shape)
                if state is not None and not state.concerns(job.run) and not state.forgets(own):
                    stop.set()
            except EventLayerError:
                pass  # the task itself reports it
            if stop.wait(_LOOK_EVERY_S):
                return
            if os.getppid() != executor:
                os._exit(1)
