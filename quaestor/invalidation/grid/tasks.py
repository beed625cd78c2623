"""Tasks of a grid: each runs one cell, one stage, or ingest, until its run is over. Spark's workers and local processes run them.

Each task makes its own clients; a `GridJob`, plain data, holds everything else. The grid's value in the event layer names the
current run, and the run that takes over from it. A task of another run ends. A task whose run is marked stopped ends too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pymongo
import structlog

from quaestor.errors import ConfigurationError, EventLayerError
from quaestor.event_layer.connecting import event_layer
from quaestor.gc_freezing import freeze_loaded
from quaestor.invalidation.grid.cell_processes import Announcement
from quaestor.invalidation.grid.grid_loops import GridLoops
from quaestor.invalidation.grid.resizing.state import Run, get_state
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.runtime.supervision.supervisor import Supervisor

_LOOK_EVERY_S: Final = 0.25
_RECONFIGURED_AFTER_S: Final = 5.0
_RESTART_AFTER_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GridJob:
    """Grid as plain data: all parameters of its tasks.

    run: unique for each start of a grid.
    """

    run: str
    redis_url: str
    mongo_url: str
    loops: GridLoops

    @property
    def deployment(self) -> str:
        """The deployment that the grid serves."""
        return self.loops.deployment

    @property
    def shape(self) -> GridShape:
        """The partitions, and the generation."""
        return self.loops.shape

    @property
    def own(self) -> Run:
        """The run, as the grid's state names it."""
        return Run(run=self.run, shape=self.shape)

    def entered(self, own: Run, earlier: Sequence[GridShape]) -> GridJob:
        """Return the job with the run and the predecessors that the grid's state holds."""
        return replace(self, loops=replace(self.loops, shape=own.shape, earlier=tuple(earlier)))

    @property
    def cells(self) -> list[Cell]:
        """The cells, one task each, in this order. The stages follow, one for each query partition, then ingest."""
        return self.shape.cells

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return tasks_of(self.shape)


def tasks_of(shape: GridShape) -> int:
    """Return the number of tasks: one for each cell, one for the later stages of each query partition, one for ingest."""
    return shape.query_partitions * shape.write_partitions + shape.query_partitions + 1


def run_task(job: GridJob, index: int) -> None:
    """Run task `index` of the job until its run is over. Raises any other cause of its end; its owner then restarts it."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    telemetry, stop = Telemetry(), threading.Event()
    cell = job.cells[index] if index < len(job.cells) else None
    supervisor = Supervisor(telemetry)
    parent = os.getppid()
    supervisor.thread("run-watch", lambda _: _watch(job, cell, stop, parent))
    while not stop.is_set():
        try:
            with closing(event_layer(job.redis_url, job.deployment)) as layer:
                if cell is not None:
                    job.loops.cell(cell, layer, telemetry, dedicated=True).run(stop)
                elif index < job.tasks - 1:
                    _stage(job, index - len(job.cells), layer, telemetry, stop)
                else:
                    _ingest(job, layer, supervisor, telemetry, stop)
        except ConfigurationError as error:  # may be mended while the task runs
            telemetry.failure("grid", "grid.misconfigured", error, task=index)
            stop.wait(_RECONFIGURED_AFTER_S)
        except Exception as error:
            telemetry.failure("grid", "grid.task_died", repr(error), task=index)
            stop.wait(_RESTART_AFTER_S)
            raise


def _stage(job: GridJob, query_partition: int, layer: EventLayer, telemetry: Telemetry, stop: threading.Event) -> None:
    with pymongo.MongoClient[dict[str, Any]](job.mongo_url) as client:
        job.loops.stage(query_partition, layer, client, telemetry).run(stop)


def _ingest(
    job: GridJob, layer: EventLayer, supervisor: Supervisor, telemetry: Telemetry, stop: threading.Event
) -> None:
    freeze_loaded()  # a full collection walks all loaded objects: tens of milliseconds in which no write goes on
    with pymongo.MongoClient[dict[str, Any]](job.mongo_url) as client, _flushing(job, client, supervisor, telemetry):
        job.loops.ingest(layer, client, telemetry).run(stop)


@contextmanager
def _flushing(
    job: GridJob, client: pymongo.MongoClient[Any], supervisor: Supervisor, telemetry: Telemetry
) -> Iterator[None]:
    """Run journal flushes in a thread of their own, if the settings ask for them; end them before the client is closed."""
    flushing = job.loops.journal(client, telemetry)
    if flushing is None:
        yield
        return
    thread = supervisor.thread("journal", flushing.run)
    try:
        yield
    finally:
        thread.stop()


def _watch(job: GridJob, cell: Cell | None, stop: threading.Event, parent: int) -> None:
    """Announce the process of the cell, and watch for the end of the run or of the parent.

    The watch uses an event layer of its own. A layer reports a loss of data only to its first caller, and that must be the
    task.
    """
    with closing(event_layer(job.redis_url, job.deployment)) as layer:
        process = None if cell is None else Announcement(layer, job.deployment, cell, job.shape, run=job.run)
        while True:
            try:
                if process is not None:
                    process.make()
                state = get_state(layer, job.deployment)
                if state is not None and not state.concerns(job.run) and not state.forgets(job.own):
                    stop.set()
            except EventLayerError:
                pass  # the task itself reports it
            if stop.wait(_LOOK_EVERY_S):
                return
            if os.getppid() != parent:
                os._exit(1)
