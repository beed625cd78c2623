"""Spark jobs of the grid: one for ingest, one for the cells, one for the stages, each in a pool of its own (see pools.py)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from quaestor.invalidation.grid.running_grid import ANOTHER
from quaestor.invalidation.grid.spark.pools import CELLS, INGEST, ORDER, STAGES
from quaestor.invalidation.grid.tasks import GridJob, run_task
from quaestor.observability.event_log import EventLog

_RERUN_AFTER_S: Final = 5.0
_RETAINED: Final = 1_000


def tasks_by_job(job: GridJob) -> dict[str, Sequence[int]]:
    """Return the numbers of the tasks that each job runs, in ORDER."""
    cells, ingest = len(job.cells), job.tasks - 1
    return {INGEST: [ingest], CELLS: range(cells), STAGES: range(cells, ingest)}


def run_job(context: Any, job: GridJob, name: str, *, stopping: threading.Event, telemetry: EventLog) -> str | None:
    """Run this job's tasks in the calling thread, again if Spark gives it up. Return why it ended; None: `stopping`."""
    context.setJobGroup(name, name)
    context.setLocalProperty("spark.scheduler.pool", name)
    indexes = tasks_by_job(job)[name]
    while not stopping.is_set():
        try:
            context.parallelize(indexes, len(indexes)).foreachPartition(partial(_task, job))
        except Exception as error:
            if stopping.is_set():
                break
            telemetry.failure("grid", "spark.job_failed", _brief(error), job=name)
            if _is_dead(context):
                return f"Spark ended: {_brief(error)}"
            stopping.wait(_RERUN_AFTER_S)
        else:
            return None if stopping.is_set() else ANOTHER
    return None


def waiting(context: Any, name: str) -> int:
    """Return the number of tasks of this job without a slot. Raises the exceptions of Py4J when there is no JVM."""
    tracker = context.statusTracker()
    stages = [stage for number in _stages(context, name) if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numTasks - stage.numActiveTasks - stage.numCompletedTasks for stage in stages)


def give_up_slots(context: Any, name: str, count: int) -> int:
    """End the last running tasks of this job, `count` at most; Spark restarts them when it has slots. Return their number."""
    running = {task.index(): task.taskId() for task in _attempts(context, name) if task.status() == "RUNNING"}
    for index in sorted(running)[-count:]:
        context._jsc.sc().killTaskAttempt(running[index], True, "what comes first needs its slot")
    return min(count, len(running))


def last_failure(context: Any) -> str | None:
    """Return the cause of the latest failure of a task, in one line; None if no task failed, or without a JVM."""
    messages: dict[int, str] = {}
    try:
        for name in ORDER:
            for task in _attempts(context, name):
                if task.errorMessage().isDefined():
                    messages[task.taskId()] = task.errorMessage().get()
    except Exception:  # no JVM to ask
        return None
    return cause(messages[max(messages)]) if messages else None


def _stages(context: Any, name: str) -> Iterator[int]:
    tracker = context.statusTracker()
    for job_id in tracker.getJobIdsForGroup(name):
        job = tracker.getJobInfo(job_id)
        if job is not None and job.status == "RUNNING":
            yield from job.stageIds


def _attempts(context: Any, name: str) -> Iterator[Any]:
    """Yield the newest attempts of this job's tasks that Spark remembers."""
    store = context._jsc.sc().statusStore()
    for stage in _stages(context, name):
        attempts = store.taskList(stage, 0, _RETAINED)
        for position in range(attempts.size()):
            yield attempts.apply(position)


def _task(job: GridJob, indexes: Any) -> None:
    for index in indexes:
        run_task(job, index)


def _is_dead(context: Any) -> bool:
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:
        return True  # no JVM to ask


def _brief(error: Exception) -> str:
    """Return the first line, without Java's stack."""
    return str(error).strip().split("\n", 1)[0][:300]


def cause(message: str) -> str:
    """Return the cause in a failed task's report: the last line of Python's traceback, without the stack of the JVM."""
    said = re.split(r"\n[ \t]*+(?:at |PYTHONPATH was:)", message, maxsplit=1)[0].strip()
    return said.rpartition("\n")[2].strip()[:300]
