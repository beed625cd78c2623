"""Grid on Spark, as jobs of long-running tasks.

There is one task for each cell, one for the later stages of each query partition, one for ingest.

There is no barrier: a failed task is restarted alone, and the others are not disturbed. (The papers ran Storm bolts; see
InvaliDB, PVLDB 2020, section 5.3.) The jobs run in threads of the driver until stop().

The death of a process ends those behind it. Python driver -> its JVM (its standard input ends) -> executors (they lose their
driver) -> their Python workers (likewise). All of them end within a moment after a killed driver.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from quaestor.invalidation.grid.running_grid import RunningGrid
from quaestor.invalidation.grid.spark.configuration import configuration, requested
from quaestor.invalidation.grid.spark.gateway import spark_context
from quaestor.invalidation.grid.spark.home import environment, require_java, spark_home
from quaestor.invalidation.grid.spark.jobs import last_failure, run_job, tasks_by_job
from quaestor.invalidation.grid.spark.pools import SCHEDULING
from quaestor.invalidation.grid.spark.slot_watch import SlotWatch
from quaestor.invalidation.grid.spark.slots import default_master, granted_slots, require_slots, too_few
from quaestor.invalidation.grid.tasks import tasks_of
from quaestor.model import GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import KeptThread
from quaestor.settings import Settings


class SparkGrid(RunningGrid):
    """Grid on a Spark of its own, started and stopped with it.

    One at a time in a process.

    master: the Spark master.
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
        conf: further Spark settings.

        Raises ConfigurationError, with the remedy, if there are too few slots or the master is unknown.
        """
        super().__init__(
            shape,
            redis_url=redis_url,
            mongo_url=mongo_url,
            deployment=deployment,
            settings=settings,
            telemetry=telemetry,
        )
        self.master = master or default_master(shape)
        require_slots(self.master, shape)
        self._conf = dict(conf or {})
        self._conf |= requested(self.master, tasks_of(shape), self._conf, task_bytes=self.job.loops.node_memory_bytes)
        self._jobs: list[KeptThread] = []
        self._context: Any = None
        self._cleanup = ExitStack()
        self._slots: SlotWatch | None = None

    def start(self) -> None:
        """Start Spark and the jobs; see RunningGrid. Raises ConfigurationError also without Java or pyspark."""
        require_java()
        super().start()

    def _launch(self) -> None:
        with ExitStack() as cleanup:
            home = cleanup.enter_context(spark_home())
            self._context = self._spark(home, cleanup)
            self._cleanup = cleanup.pop_all()
        self._slots = SlotWatch(self._context, self.job, self._telemetry)
        for name in tasks_by_job(self.job):
            self._jobs.append(self._supervisor.thread(f"spark-{name}", partial(self._run_job, name)))

    def _join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for job in self._jobs:
            job.stop(within_s=max(0.0, deadline - time.monotonic()))

    def _release(self) -> None:
        self._cleanup.close()

    def _lacking(self, within_s: float) -> str | None:
        granted = granted_slots(self._context)
        if granted >= self.job.tasks:
            return None
        return too_few(self.master, self.job.shape, granted=granted, within_s=within_s)

    def _last_failure(self) -> str | None:
        return last_failure(self._context)

    def _look(self) -> str | None:
        return None if self._slots is None else self._slots.look(time.monotonic())

    def _spark(self, home: Path, cleanup: ExitStack) -> Any:
        """Start a SparkContext on a JVM of its own. Closing `cleanup` ends both."""
        settings = configuration(self.master) | SCHEDULING | self._conf
        with environment(home, self.master), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about pandas, which the grid does not use
            return spark_context(settings, home=home, cleanup=cleanup, remedy="run the grid in a process of its own")

    def _run_job(self, name: str, _stop: threading.Event) -> None:
        """Run one of the jobs until stop() or the end of Spark itself."""
        why: str | None = None
        try:
            why = run_job(self._context, self.job, name, stopping=self._stopping, telemetry=self._telemetry)
        finally:
            self._ends(why)
