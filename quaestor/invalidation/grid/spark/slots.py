"""Slots for the tasks of the grid: the number that can run at once, by the master's name or a cluster's grant."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from quaestor.errors import ConfigurationError
from quaestor.invalidation.grid.tasks import tasks_of
from quaestor.model import GridShape

CLUSTER_MANAGERS: Final = ("spark://", "yarn", "k8s://")


def default_master(shape: GridShape) -> str:
    """Return the Spark master for two executor processes on this machine, with a slot for every task."""
    return f"local-cluster[2,{math.ceil(tasks_of(shape) / 2)},1024]"


def require_slots(master: str, shape: GridShape) -> None:
    """Refuse a master on which not all tasks of the grid can run at once. Raises ConfigurationError with the remedy.

    A cluster manager's slots are known only after its grant, so those masters pass (see `granted_slots`).
    """
    tasks = tasks_of(shape)
    if master.startswith(CLUSTER_MANAGERS):
        return
    if match := re.fullmatch(r"local-cluster\[(\d+),\s*(\d+),\s*\d+\]", master):
        slots = int(match[1]) * int(match[2])
    elif match := re.fullmatch(r"local\[(\d+),\s*(\d+)\]", master):
        slots = int(match[1])
        if int(match[2]) < 2:
            raise ConfigurationError(f"master {master!r} never restarts a task: write local[{slots},1000000]")
    else:
        raise ConfigurationError(
            f"master {master!r} is unknown to the grid: use {default_master(shape)}, local[{tasks},1000000] "
            "(slots, attempts), spark://host:port, yarn or k8s://..."
        )
    if slots < tasks:
        raise ConfigurationError(
            f"master {master!r} has {slots} slots, but {_needs(shape)}: use {default_master(shape)}"
        )


def granted_slots(context: Any) -> int:
    """Return the number of tasks that the present executors can run at once; 0 if Spark has ended. One call to the JVM."""
    try:
        spark = context._jsc.sc()
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # no JVM to ask
        return 0


def too_few(master: str, shape: GridShape, *, granted: int, within_s: float) -> str:
    """Return the message that a cluster grants too few slots: one sentence, with the remedy."""
    return (
        f"{master} granted {granted} slots within {within_s:.0f} s, but {_needs(shape)}: add workers with free cores and "
        "512 MB of free memory, end other applications that hold them, or start a smaller grid"
    )


def _needs(shape: GridShape) -> str:
    cells = shape.query_partitions * shape.write_partitions
    return f"{cells} cells, {shape.query_partitions} stages and ingest need {tasks_of(shape)}"


@dataclass(slots=True, kw_only=True)
class Shortage:
    """Shortage of slots over time, from regular observations.

    needed: number of slots needed.
    reported_after_s: duration of a shortage before its report (a replaced executor comes back sooner).
    given_up_after_s: duration without any slot, after there was one, before the grid gives up.
    reported: the shortage has been reported.
    """

    needed: int
    reported_after_s: float = 20.0
    given_up_after_s: float = 60.0
    reported: bool = False
    _short_since_s: float | None = None
    _none_since_s: float | None = None
    _any: bool = False

    def seen(self, granted: int, *, now_s: float) -> str | None:
        """Return the news: `short` or `enough` when that has changed, `none` when the grid should give up; else None.

        now_s: monotonic.
        """
        self._short_since_s = _since(self._short_since_s, granted < self.needed, now_s)
        self._any = self._any or granted > 0
        self._none_since_s = _since(self._none_since_s, self._any and granted == 0, now_s)
        if self._none_since_s is not None and now_s - self._none_since_s >= self.given_up_after_s:
            return "none"
        if self._short_since_s is None:
            news = "enough" if self.reported else None
            self.reported = False
            return news
        if self.reported or now_s - self._short_since_s < self.reported_after_s:
            return None
        self.reported = True
        return "short"


def _since(since_s: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s
