"""Watch over the slots that a cluster grants, while the grid runs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from quaestor.invalidation.grid.spark.jobs import give_up_slots, waiting
from quaestor.invalidation.grid.spark.pools import ORDER
from quaestor.invalidation.grid.spark.slots import Shortage, granted_slots
from quaestor.invalidation.grid.tasks import GridJob
from quaestor.observability.event_log import EventLog

_WAITS_S: Final = 20.0
"""Longer than it takes to replace an executor that died, if there is room for it."""


class SlotWatch:
    """The watch over one grid's slots: it says when some are missing, and gives those there are to whom they serve most."""

    def __init__(self, context: Any, job: GridJob, telemetry: EventLog) -> None:
        self._context = context
        self._job = job
        self._telemetry = telemetry
        self._shortage = Shortage(needed=job.tasks)
        self._lacking: str | None = None
        self._lacking_since_s = 0.0

    def look(self, now_s: float) -> str | None:
        """Look once. Returns why the grid cannot go on, if it cannot.

        now_s: monotonic.
        """
        granted = granted_slots(self._context)
        news = self._shortage.seen(granted, now_s=now_s)
        if news == "short":
            lack = f"{granted} of {self._job.tasks} slots: what the waiting cells should guard is not served from cache"
            self._telemetry.failure("grid", "spark.slots_missing", lack)
        elif news == "enough":
            self._telemetry.event("spark.slots_back", slots=granted)
        elif news == "none":
            return (
                f"Spark has had no executor for {self._shortage.given_up_after_s:.0f} s: its workers are gone, or its master "
                "was restarted and does not know this application any more; start the grid again"
            )
        if 0 < granted < self._job.tasks:
            with suppress(Exception):  # no JVM to ask: the jobs end, and say so
                self._reassign(now_s)
        else:
            self._lacking = None
        return None

    def _reassign(self, now_s: float) -> None:
        """If what is left is taken by tasks that are of no use without those that wait, some of them have to wait instead."""
        lacking = next((name for name in ORDER[:-1] if waiting(self._context, name)), None)
        if lacking is None or lacking != self._lacking:
            self._lacking, self._lacking_since_s = lacking, now_s
        elif now_s - self._lacking_since_s >= _WAITS_S:
            self._lacking_since_s = now_s
            left = waiting(self._context, lacking)
            for name in reversed(ORDER[ORDER.index(lacking) + 1 :]):
                if left and (given_up := give_up_slots(self._context, name, left)):
                    left -= given_up
                    self._telemetry.failure("grid", "spark.slots_given_up", f"{given_up} of {name} for {lacking}")
