"""The grid as one Spark job of long-running tasks: one for each cell, one for the later stages of each query partition, one
for ingest.

No barrier: a task that fails is started again alone, the others do not notice. (The papers ran Storm bolts; see
InvaliDB, PVLDB 2020, section 5.3.) The job runs in a thread of the driver until stop().

Who dies with whom: Python driver -> its JVM (its standard input ends) -> executors (they lose their driver) -> their
Python workers (likewise). Nothing outlives a killed driver by more than a moment.
"""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pymongo

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError, DatabaseError, DependencyError, EventLayerError
from quaestor.invalidation.event_layer import streams
from quaestor.invalidation.event_layer.bounds import PipelineBounds
from quaestor.invalidation.event_layer.codec import decode_notification
from quaestor.invalidation.event_layer.redis import RedisEventLayer
from quaestor.invalidation.ingest import Ingest
from quaestor.invalidation.resizing.state import GridState, Run, get_state, put_state
from quaestor.invalidation.spark.home import (
    configuration,
    default_master,
    environment,
    require_java,
    require_slots,
    spark_home,
)
from quaestor.invalidation.spark.job import GridJob, run_task
from quaestor.invalidation.standing.rules import StageRules
from quaestor.model import Cell, GridShape, Heartbeat
from quaestor.ports import EventLayer
from quaestor.settings import Settings
from quaestor.telemetry import Telemetry

_STOP_S: Final = 10.0
_STATE_EVERY_S: Final = 1.0
_RERUN_AFTER_S: Final = 5.0


class SparkGrid:
    """Starts Spark, runs the grid on it, stops both. One at a time in a process; a deployment runs the newest only."""

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
        """master: None runs two executors on this machine. deployment: None takes that of settings, as heartbeat and
        retention are. conf: further Spark settings.

        Raises ConfigurationError, with the remedy, if there are too few slots or the master is none we know.
        """
        self.master = master or default_master(shape)
        require_slots(self.master, shape)
        self._conf = dict(conf or {})
        self._settings = settings or Settings()
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
            bounds=PipelineBounds.of(self._settings),
        )
        self.error: str | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
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
        with closing(RedisEventLayer(self.job.redis_url, self.job.deployment)) as layer:
            self._enter(layer)
        with ExitStack() as cleanup:
            home = cleanup.enter_context(spark_home())
            context = self._context(home, cleanup)
            self._cleanup = cleanup.pop_all()
        threading.Thread(target=self._run, args=(context,), name="quaestor-spark-job", daemon=True).start()
        threading.Thread(target=self._keep_state, name="quaestor-spark-state", daemon=True).start()

    def wait_ready(
        self,
        timeout_s: float = 60.0,
        *,
        progress: Callable[[int], None] = lambda cells: None,
        stop: threading.Event | None = None,
    ) -> bool:
        """Returns True when every cell has proved that ingest feeds it. Raises DependencyError if that takes longer.

        progress: called with the number of cells so far, when it changes. stop: gives up waiting, returns False.
        """
        fresh: set[Cell] = set()
        deadline = time.monotonic() + timeout_s
        with closing(RedisEventLayer(self.job.redis_url, self.job.deployment)) as layer:
            stream = streams.notifications(self.job.deployment)
            after = layer.offset_at(stream, self._started_ms)
            while len(fresh) < len(self.job.cells):
                if stop is not None and stop.is_set():
                    return False
                if self.error is not None:
                    raise DependencyError(f"the grid's Spark job ended: {self.error}", retryable=False)
                if time.monotonic() > deadline:
                    raise DependencyError(
                        f"{len(fresh)} of {len(self.job.cells)} cells were fed within {timeout_s:.0f} s; "
                        f"check that MongoDB and Redis answer and that {self.master} has free slots"
                    )
                known = len(fresh)
                for entry in layer.read({stream: after}, count=1000, block_ms=200):
                    after = entry.offset
                    beat = decode_notification(entry.payload)
                    if isinstance(beat, Heartbeat) and self._proves(beat):
                        fresh.add(beat.cell)
                if len(fresh) != known:
                    progress(len(fresh))
            self._promote(layer)
        return True

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
                closing(RedisEventLayer(self.job.redis_url, self.job.deployment)) as layer,
            ):
                current = get_state(layer, self.job.deployment) or self._alone()
                if (ended := current.ended(self.job.run)) != current:
                    put_state(layer, self.job.deployment, ended)
                self._ended.wait(_STOP_S)
        self._cleanup.close()

    def _alone(self) -> GridState:
        return GridState(serving=Run(run=self.job.run, shape=self.job.shape))

    def _enter(self, layer: EventLayer) -> None:
        """Say that this grid is there: instead of one of the same shape at once, beside one of another until it has taken
        over."""
        known = get_state(layer, self.job.deployment)
        if known is None:
            state = self._alone()
        else:
            state, own, earlier = known.started(self.job.run, self.job.shape)
            self.job = replace(self.job, shape=own.shape, earlier=earlier)
        put_state(layer, self.job.deployment, state)

    def _promote(self, layer: EventLayer) -> None:
        """Every cell is fresh, so every registration has been taken over: the grid before this one may stop."""
        state = get_state(layer, self.job.deployment)
        if state is not None:
            put_state(layer, self.job.deployment, state.promoted(self.job.run))

    def _require_database(self) -> None:
        with pymongo.MongoClient[dict[str, Any]](self.job.mongo_url) as client:
            layer = RedisEventLayer(self.job.redis_url, self.job.deployment)
            ingest = Ingest(
                client, layer, self.job.shape, deployment=self.job.deployment, heartbeat_ms=self.job.heartbeat_ms
            )
            try:
                ingest.check()
            except DatabaseError as error:
                self._telemetry.failure("mongodb", "spark.database_away", error)

    def _context(self, home: Path, cleanup: ExitStack) -> Any:
        """A SparkContext on a JVM of its own. Closing `cleanup` ends both."""
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        launch: Callable[..., Any] = launch_gateway
        if SparkContext._active_spark_context is not None:
            raise ConfigurationError("this process runs Spark already: run the grid in a process of its own")
        conf = SparkConf(loadDefaults=False)
        for name, value in (configuration(self.master) | self._conf).items():
            conf.set(name, value)
        log = cleanup.enter_context((home / "driver.log").open("wb"))
        with environment(home, self.master), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about pandas, which the grid does not use
            try:
                gateway = launch(conf, {"stdout": log, "stderr": log})
            except Exception as error:
                tail = (home / "driver.log").read_text(errors="replace")[-500:]
                raise DependencyError(f"Spark did not start: {error}; its log ends: {tail}") from error
            cleanup.callback(_end_gateway, gateway)
            context = SparkContext(conf=conf, gateway=gateway)
            cleanup.callback(_end_context, context)
        return context

    def _run(self, context: Any) -> None:
        """Run the job, again if a task failed so often that Spark gave it up, until stop() or the end of Spark itself."""
        task = partial(_task, self.job)
        try:
            while not self._stopping.is_set():
                try:
                    context.parallelize(range(self.job.tasks), self.job.tasks).foreachPartition(task)
                    if not self._stopping.is_set():
                        self.error = "another grid was started for this deployment"
                    return
                except Exception as error:
                    if self._stopping.is_set():
                        return
                    self._telemetry.failure("grid", "spark.job_failed", _brief(error))
                    if _is_dead(context):
                        self.error = f"Spark ended: {_brief(error)}"
                        return
                    self._stopping.wait(_RERUN_AFTER_S)
        finally:
            self._ended.set()

    def _keep_state(self) -> None:
        """Redis may come back empty: say again which run is the current one, unless another has taken over."""
        with closing(RedisEventLayer(self.job.redis_url, self.job.deployment)) as layer:
            while not self._stopping.wait(_STATE_EVERY_S):
                with suppress(EventLayerError):
                    if get_state(layer, self.job.deployment) is None:
                        put_state(layer, self.job.deployment, self._alone())


def _task(job: GridJob, indexes: Any) -> None:
    for index in indexes:
        run_task(job, index)


def _is_dead(context: Any) -> bool:
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:
        return True  # no JVM to ask


def _brief(error: Exception) -> str:
    """The first line that is not Java's stack."""
    return str(error).strip().split("\n", 1)[0][:300]


def _end_context(context: Any) -> None:
    with suppress(Exception):  # a JVM that died takes its context with it
        context.stop()


def _end_gateway(gateway: Any) -> None:
    """End the JVM, and let this process start another one."""
    from pyspark import SparkContext

    with suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
