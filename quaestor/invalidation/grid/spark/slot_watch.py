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
"""Wait before slots are reassigned: longer than the replacement of a dead executor takes, if there is room for it."""


class SlotWatch:
    """Watch over one grid's slots: reports missing ones, and gives the present ones to the tasks that need them first."""

    def __init__(self, context: Any, job: GridJob, telemetry: EventLog) -> None:
        self._context = context
        self._job = job
        self._telemetry = telemetry
        self._shortage = Shortage(needed=job.tasks)
        self._lacking: str | None = None
        self._lacking_since_s = 0.0

    def look(self, now_s: float) -> str | None:
        """Check the slots once. Return why the grid cannot go on, if so.

        now_s: monotonic.
        """
        granted = granted_slots(self._context)
        news = self._shortage.seen(granted, now_s=now_s)
        if news == "short":
            lack = f"{granted} of {self._job.tasks} slots: queries of the waiting cells are not served from cache"
            self._telemetry.failure("grid", "spark.slots_missing", lack)
        elif news == "enough":
            self._telemetry.event("spark.slots_back", slots=granted)
        elif news == "none":
            return (
                f"Spark has had no executor for {self._shortage.given_up_after_s:.0f} s: its workers are gone, or its master "
                "was restarted and has forgotten this application; start the grid again"
            )
        if 0 < granted < self._job.tasks:
            with suppress(Exception):  # no JVM to ask: the jobs end, and report it
                self._reassign(now_s)
        else:
            self._lacking = None
        return None

    def _reassign(self, now_s: float) -> None:
        """Preempt lower-priority tasks when a task they depend on has no slot."""
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
