"""Grid on Spark, as jobs of long-running tasks.

There is one task for each cell, one for the later stages of each query partition, one for ingest.

No barrier: a task that fails is started again alone, the others do not notice. (The papers ran Storm bolts; see
InvaliDB, PVLDB 2020, section 5.3.) The jobs run in threads of the driver until stop().

Who dies with whom: Python driver -> its JVM (its standard input ends) -> executors (they lose their driver) -> their
Python workers (likewise). Nothing outlives a killed driver by more than a moment.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pymongo

from quaestor.clock import system_clock
from quaestor.errors import DatabaseError, DependencyError, EventLayerError
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.codec import decode_notification
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.resizing.state import Run, alone, enter, get_state, put_state
from quaestor.invalidation.grid.spark.configuration import configuration, requested
from quaestor.invalidation.grid.spark.gateway import spark_context
from quaestor.invalidation.grid.spark.home import environment, require_java, spark_home
from quaestor.invalidation.grid.spark.jobs import last_failure, run_job, tasks_by_job
from quaestor.invalidation.grid.spark.pools import SCHEDULING
from quaestor.invalidation.grid.spark.slot_watch import SlotWatch
from quaestor.invalidation.grid.spark.slots import default_master, granted_slots, require_slots, tasks_of, too_few
from quaestor.invalidation.grid.spark.tasks import GridJob
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.model import Cell, GridShape, Heartbeat
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.realtime.rules import StageRules
from quaestor.settings import Settings

_STOP_S: Final = 10.0
_LOOK_EVERY_S: Final = 1.0


class SparkGrid:
    """A grid on a Spark of its own, started and stopped with it.

    One at a time in a process; a deployment runs the newest only.

    master: Spark's.
    job: what its tasks run.
    error: why the grid has ended by itself; None if it has not.
    """

    def __init__(
        self,
        master: str | None = None,
        *,
        shape: GridShape,
        redis_url: str,
        mongo_url: str,
        deployment: str | None = None,
        settings: Settings | None = None,
        telemetry: Telemetry | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """Make the grid; `start` begins.

        master: None runs two executors on this machine.
        shape: how it is partitioned; the generation is found at the start.
        deployment: None takes that of settings, as heartbeat and retention are.
        conf: further Spark settings.

        Raises ConfigurationError, with the remedy, if there are too few slots or the master is none we know.
        """
        self.master = master or default_master(shape)
        require_slots(self.master, shape)
        self._settings = settings or Settings()
        self._conf = dict(conf or {})
        self._conf |= requested(self.master, tasks_of(shape), self._conf, task_bytes=self._settings.node_memory_bytes)
        self._telemetry = telemetry or Telemetry()
        self.job = GridJob(
            run=uuid.uuid4().hex,
            redis_url=redis_url,
            mongo_url=mongo_url,
            deployment=deployment or self._settings.deployment,
            shape=shape,
            heartbeat_ms=self._settings.heartbeat_ms,
            retention_ms=self._settings.retention_ms,
            node_memory_bytes=self._settings.node_memory_bytes,
            rules=StageRules.of(self._settings),
            standing_records=self._settings.standing_records,
            journal_flush_ms=self._settings.journal_flush_ms,
            control_namespace=self._settings.control_namespace,
            bounds=PipelineBounds.of(self._settings),
        )
        self.error: str | None = None
        self._serves = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._jobs: list[threading.Thread] = []
        self._context: Any = None
        self._cleanup = ExitStack()
        self._started_ms = 0

    def start(self) -> None:
        """Start Spark and the job; returns before the cells run (see wait_ready).

        Raises ConfigurationError (no Java, no pyspark, a MongoDB without change streams), EventLayerError (no Redis).
        A MongoDB that does not answer yet is waited for by ingest.
        """
        require_java()
        self._require_database()
        self._started_ms = system_clock()
        with closing(event_layer(self.job.redis_url, self.job.deployment)) as layer:
            self._enter(layer)
        with ExitStack() as cleanup:
            home = cleanup.enter_context(spark_home())
            self._context = self._spark(home, cleanup)
            self._cleanup = cleanup.pop_all()
        for name in tasks_by_job(self.job):
            thread = threading.Thread(target=self._run, args=(name,), name=f"quaestor-spark-{name}", daemon=True)
            thread.start()
            self._jobs.append(thread)
        threading.Thread(target=self._watch, name="quaestor-spark-watch", daemon=True).start()

    def wait_ready(
        self,
        timeout_s: float = 60.0,
        *,
        progress: Callable[[int], None] = lambda cells: None,
        stop: threading.Event | None = None,
    ) -> bool:
        """Wait until every cell has proved that ingest feeds it, and every task has a slot. Returns True then.

        Raises DependencyError if that takes longer.

        progress: called with the number of cells so far, when it changes.
        stop: when it is set, waiting is given up, and False returned.
        """
        fresh: set[Cell] = set()
        promoted = False
        deadline = time.monotonic() + timeout_s
        with closing(event_layer(self.job.redis_url, self.job.deployment)) as layer:
            stream = streams.notifications(self.job.deployment)
            after = layer.offset_at(stream, self._started_ms)
            while not (promoted and granted_slots(self._context) >= self.job.tasks):
                if stop is not None and stop.is_set():
                    return False
                if self.error is not None:
                    raise DependencyError(f"the grid's Spark job ended: {self.error}", retryable=False)
                if time.monotonic() > deadline:
                    raise DependencyError(self._why_not_ready(len(fresh), timeout_s))
                known = len(fresh)
                for entry in layer.read({stream: after}, count=1000, block_ms=200):
                    after = entry.offset
                    beat = decode_notification(entry.payload)
                    if isinstance(beat, Heartbeat) and self._proves(beat):
                        fresh.add(beat.cell)
                if len(fresh) != known:
                    progress(len(fresh))
                if len(fresh) == len(self.job.cells) and not promoted:
                    self._promote(layer)  # the grid before this one ends, and its slots become free
                    promoted = True
        return True

    def _why_not_ready(self, cells: int, timeout_s: float) -> str:
        granted = granted_slots(self._context)
        if granted < self.job.tasks:
            return too_few(self.master, self.job.shape, granted=granted, within_s=timeout_s)
        failure = last_failure(self._context)
        check = "check that MongoDB and Redis answer" if failure is None else f"a task ended with: {failure}"
        return f"{cells} of {len(self.job.cells)} cells were fed within {timeout_s:.0f} s; {check}"

    def _proves(self, beat: Heartbeat) -> bool:
        return beat.shape == self.job.shape and beat.fresh_as_of_ms >= self._started_ms

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the job has ended (`error` says why), waiting for that up to timeout_s."""
        return self._ended.wait(timeout_s)

    def stop(self) -> None:
        """Stop the tasks, then Spark; returns when its JVM is gone. May be called twice."""
        if not self._stopping.is_set():
            self._stopping.set()
            with (
                suppress(EventLayerError),
                closing(event_layer(self.job.redis_url, self.job.deployment)) as layer,
            ):
                current = get_state(layer, self.job.deployment) or alone(*self._own())
                if (ended := current.ended(self.job.run)) != current:
                    put_state(layer, self.job.deployment, ended)
                deadline = time.monotonic() + _STOP_S
                for job in self._jobs:
                    job.join(max(0.0, deadline - time.monotonic()))
        self._cleanup.close()

    def _own(self) -> tuple[Run, tuple[GridShape, ...]]:
        """This run, and whom it has not taken over from yet."""
        return Run(run=self.job.run, shape=self.job.shape), () if self._serves else self.job.earlier

    def _enter(self, layer: EventLayer) -> None:
        """Say that this grid is there: instead of one of the same shape at once, beside one of another until it has taken
        over."""
        own, earlier = enter(layer, self.job.deployment, self.job.run, self.job.shape)
        self.job = replace(self.job, shape=own.shape, earlier=earlier)

    def _promote(self, layer: EventLayer) -> None:
        """Every cell is fresh, so every registration has been taken over: the grid before this one may stop."""
        self._serves = True
        state = get_state(layer, self.job.deployment)
        if state is not None:
            put_state(layer, self.job.deployment, state.promoted(self.job.run))

    def _require_database(self) -> None:
        with pymongo.MongoClient[dict[str, Any]](self.job.mongo_url) as client:
            layer = event_layer(self.job.redis_url, self.job.deployment)
            ingest = ChangeStreamFollower(
                client, layer, self.job.shape, deployment=self.job.deployment, heartbeat_ms=self.job.heartbeat_ms
            )
            try:
                ingest.check()
            except DatabaseError as error:
                self._telemetry.failure("mongodb", "spark.database_away", error)

    def _spark(self, home: Path, cleanup: ExitStack) -> Any:
        """A SparkContext on a JVM of its own. Closing `cleanup` ends both."""
        settings = configuration(self.master) | SCHEDULING | self._conf
        with environment(home, self.master), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about pandas, which the grid does not use
            return spark_context(settings, home=home, cleanup=cleanup, remedy="run the grid in a process of its own")

    def _run(self, name: str) -> None:
        """Run one of the jobs until stop() or the end of Spark itself."""
        try:
            why = run_job(self._context, self.job, name, stopping=self._stopping, telemetry=self._telemetry)
            self.error = self.error or why
        finally:
            self._ended.set()

    def _watch(self) -> None:
        """Say again which run is the current one, unless another has taken over: Redis may come back empty. And watch the
        slots."""
        watch = SlotWatch(self._context, self.job, self._telemetry)
        with closing(event_layer(self.job.redis_url, self.job.deployment)) as layer:
            while not self._stopping.wait(_LOOK_EVERY_S):
                with suppress(EventLayerError):
                    state, (own, earlier) = get_state(layer, self.job.deployment), self._own()
                    if state is None or state.forgets(own):
                        put_state(layer, self.job.deployment, alone(own, earlier))
                if self._ended.is_set():
                    continue
                if (why := watch.look(time.monotonic())) is not None:
                    self.error = why
                    self._ended.set()
