"""Grid that a process runs in the foreground: the common base of the grids on Spark and of local processes.

A deployment runs only the newest grid. A grid of the same shape gives way to it at once, a grid with other partitions after the
takeover.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

import pymongo

from quaestor.clock import system_clock
from quaestor.errors import DatabaseError, DependencyError, EventLayerError
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.grid_loops import GridLoops
from quaestor.invalidation.grid.grid_run import FreshCells, GridRun
from quaestor.invalidation.grid.tasks import GridJob
from quaestor.model import GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import KeptThread, Supervisor
from quaestor.settings import Settings

ANOTHER: Final = "another grid was started for this deployment"
"""Cause of a grid's end when its tasks have ended by themselves."""

_STOP_S: Final = 10.0
_LOOK_EVERY_S: Final = 1.0
_WAIT_MS: Final = 200


class RunningGrid(ABC):
    """Grid with its tasks, started and stopped together.

    job: plain data of its tasks.
    error: why the grid has ended by itself; None if it has not.
    """

    def __init__(
        self,
        shape: GridShape,
        *,
        redis_url: str,
        mongo_url: str,
        deployment: str | None = None,
        settings: Settings | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Make the grid; `start` begins.

        shape: partitions; the generation is decided at the start.
        deployment: None takes that of the settings, like heartbeat and retention.
        """
        loops = GridLoops.of(settings or Settings(), shape, deployment=deployment)
        self._run = GridRun(loops.deployment, shape)
        self.job = GridJob(run=self._run.own.run, redis_url=redis_url, mongo_url=mongo_url, loops=loops)
        self.error: str | None = None
        self._telemetry = telemetry or Telemetry()
        self._supervisor = Supervisor(self._telemetry)
        self._watching: KeptThread | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._started_ms = 0

    @abstractmethod
    def _launch(self) -> None:
        """Start the tasks of `job`."""

    @abstractmethod
    def _join(self, timeout_s: float) -> None:
        """Wait for the tasks, which have been ordered to end, up to a bound."""

    @abstractmethod
    def _release(self) -> None:
        """End the remaining tasks. May be called twice."""

    def _lacking(self, within_s: float) -> str | None:
        """Return what the tasks lack if some do not run after this time; None: nothing."""
        return None

    def _last_failure(self) -> str | None:
        """Return the cause of the latest failure of a task; None: not known."""
        return None

    def _look(self) -> str | None:
        """Check the tasks, once a second. Return why the grid has ended; None: it has not."""
        return None

    def start(self) -> None:
        """Start the tasks; return before the cells run (see wait_ready).

        Raises ConfigurationError (a MongoDB without change streams, a missing part), EventLayerError (no Redis). Ingest
        waits for a MongoDB that does not answer yet.
        """
        self._require_database()
        self._started_ms = system_clock()
        with closing(event_layer(self.job.redis_url, self.job.deployment)) as layer:
            self._run.enter(layer)
        self.job = self.job.entered(self._run.own, self._run.earlier)
        self._launch()
        self._watching = self._supervisor.thread("grid-watch", self._watch)

    def wait_ready(
        self,
        timeout_s: float = 60.0,
        *,
        progress: Callable[[int], None] = lambda cells: None,
        stop: threading.Event | None = None,
    ) -> bool:
        """Wait until every cell has proved that ingest feeds it, and every task runs. Returns True then.

        Raises DependencyError if that takes longer.

        progress: called with the number of cells so far, when it changes.
        stop: once it is set, the wait ends and returns False.
        """
        deadline = time.monotonic() + timeout_s
        with closing(event_layer(self.job.redis_url, self.job.deployment)) as layer:
            cells = FreshCells(layer, self.job.deployment, self.job.shape, since_ms=self._started_ms)
            while not (self._run.serves and self._lacking(timeout_s) is None):
                if stop is not None and stop.is_set():
                    return False
                if self.error is not None:
                    raise DependencyError(f"the tasks of the grid ended: {self.error}", retryable=False)
                if time.monotonic() > deadline:
                    raise DependencyError(self._why_not_ready(len(cells.fresh), timeout_s))
                known = len(cells.fresh)
                cells.look(wait_ms=_WAIT_MS)
                if len(cells.fresh) != known:
                    progress(len(cells.fresh))
                if cells.complete and not self._run.serves:
                    self._run.promote(layer)  # the grid before this one ends, and its slots become free
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the grid has ended (`error` holds the reason); waits for its end up to timeout_s."""
        return self._ended.wait(timeout_s)

    def stop(self) -> None:
        """Stop the tasks, then their platform; return when all of it is gone. May be called twice."""
        if not self._stopping.is_set():
            self._stopping.set()
            with (
                suppress(EventLayerError),
                closing(event_layer(self.job.redis_url, self.job.deployment)) as layer,
            ):
                self._run.end(layer)
                self._join(_STOP_S)
            if self._watching is not None:
                self._watching.stop()
        self._release()

    def _ends(self, why: str | None) -> None:
        """Note that the grid has ended by itself, or, None, because it was stopped."""
        self.error = self.error or why
        self._ended.set()

    def _why_not_ready(self, cells: int, timeout_s: float) -> str:
        if (lacking := self._lacking(timeout_s)) is not None:
            return lacking
        failure = self._last_failure()
        check = "check that MongoDB and Redis answer" if failure is None else f"a task ended with: {failure}"
        return f"{cells} of {len(self.job.cells)} cells were fed within {timeout_s:.0f} s; {check}"

    def _require_database(self) -> None:
        with pymongo.MongoClient[dict[str, Any]](self.job.mongo_url) as client:
            layer = event_layer(self.job.redis_url, self.job.deployment)
            try:
                self.job.loops.ingest(layer, client, self._telemetry).check()
            except DatabaseError as error:
                self._telemetry.failure("mongodb", "grid.database_away", error)

    def _watch(self, stop: threading.Event) -> None:
        """Record this run in Redis again if needed, and check the tasks."""
        with closing(event_layer(self.job.redis_url, self.job.deployment)) as layer:
            while not stop.wait(_LOOK_EVERY_S):
                with suppress(EventLayerError):
                    self._run.remind(layer)
                if not self._ended.is_set() and (why := self._look()) is not None:
                    self._ends(why)
