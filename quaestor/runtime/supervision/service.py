"""State of one background service: its failures, its pauses between restarts, and whether it is degraded."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from quaestor.observability.telemetry import Telemetry
from quaestor.tasks import pause_after

FIRST_PAUSE_S: Final = 0.1
"""Pause before the first restart. Each further failure doubles the pause."""
LONGEST_PAUSE_S: Final = 10.0
DEGRADED_AFTER: Final = 5
"""A service is degraded after this number of failures without a minute of work between them."""
HEALTHY_AFTER_S: Final = 60.0
"""A service that has run for this long since its restart is healthy: its earlier failures no longer count."""
_STACK_CHARS: Final = 4_000
_ERROR_CHARS: Final = 200
_MOST_BEFORE: Final = 10


class ServiceState(StrEnum):
    """States of a background service."""

    RUNNING = "running"
    RESTARTING = "restarting"
    DEGRADED = "degraded"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """Report on one service.

    failures: number of failures since the process started.
    error: the last error; None: the service has never failed.
    failed_s_ago: age of the last failure.
    """

    name: str
    state: ServiceState
    failures: int
    error: str | None = None
    failed_s_ago: float | None = None

    @property
    def sentence(self) -> str:
        """The report in words."""
        times = "failure" if self.failures == 1 else "failures"
        return (
            f"{self.name} ({self.state}): {self.failures} {times}, the last one {self.failed_s_ago} s ago: {self.error}"
        )


class Service:
    """One background service. Several tasks or threads may share it. Use from any thread.

    name: a constant, used as the label `service` of the metrics.
    monotonic: clock in seconds.
    """

    def __init__(self, name: str, telemetry: Telemetry, monotonic: Callable[[], float]) -> None:
        self.name = name
        self._lock = threading.Lock()
        self.failures = 0
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._in_a_row = 0
        self._running = 0
        self._pausing = 0
        self._begun_s = 0.0
        self._failed_s = 0.0
        self._error: str | None = None
        telemetry.services.failures.labels(name)  # shown as 0 from the start
        telemetry.services.degraded.labels(name).set_function(lambda: self.state is ServiceState.DEGRADED)

    @property
    def state(self) -> ServiceState:
        """State at this moment."""
        if self._in_a_row >= DEGRADED_AFTER and (self._pausing or (self._running and not self._healthy)):
            return ServiceState.DEGRADED
        if self._pausing:
            return ServiceState.RESTARTING
        return ServiceState.RUNNING if self._running else ServiceState.ENDED

    @property
    def report(self) -> ServiceReport:
        """Report on the service."""
        failed_s_ago = round(self._monotonic() - self._failed_s, 1) if self.failures else None
        return ServiceReport(
            name=self.name, state=self.state, failures=self.failures, error=self._error, failed_s_ago=failed_s_ago
        )

    def begun(self) -> None:
        """Note that the service runs."""
        with self._lock:
            self._running += 1
        self._begun_s = self._monotonic()

    def over(self) -> None:
        """Note that the service does not run now."""
        with self._lock:
            self._running -= 1

    def pausing(self, pauses: bool) -> None:
        """Note whether the service waits for its restart."""
        with self._lock:
            self._pausing += 1 if pauses else -1

    def failed(self, error: BaseException) -> float:
        """Count and log a failure. Returns the pause before the restart, in seconds."""
        if self._healthy:
            self._in_a_row = 0
        self._count(error)
        self._in_a_row += 1
        pause_s = pause_after(self._in_a_row, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
        self._telemetry.failure(
            "engine", "service.failed", repr(error), service=self.name, **_origin(error), restart_in_s=pause_s
        )
        if self._in_a_row == DEGRADED_AFTER:
            self._telemetry.event("service.degraded", service=self.name, failures=self._in_a_row)
        return pause_s

    def errand_failed(self, error: BaseException) -> None:
        """Count and log a failure of a task that is not restarted."""
        self._count(error)
        self._telemetry.failure("engine", "service.errand_failed", repr(error), service=self.name, **_origin(error))

    def did_not_end(self, within_s: float) -> None:
        """Report that the service still runs after its time to stop is over."""
        text = f"{self.name} did not end within {within_s:g} s; it ends with the process"
        self._telemetry.failure("engine", "service.did_not_end", text, service=self.name)

    @property
    def _healthy(self) -> bool:
        return self._monotonic() - self._begun_s >= HEALTHY_AFTER_S

    def _count(self, error: BaseException) -> None:
        self.failures += 1
        self._failed_s = self._monotonic()
        self._error = repr(error)
        self._telemetry.services.failures.labels(self.name).inc()


def _origin(error: BaseException) -> dict[str, Any]:
    """Fields that tell where an error comes from: the end of its stack, and the errors that were raised before it."""
    fields: dict[str, Any] = {"stack": "".join(traceback.format_exception(error))[-_STACK_CHARS:]}
    if before := [repr(earlier)[:_ERROR_CHARS] for earlier in islice(_before(error), _MOST_BEFORE)]:
        fields["before"] = before
    return fields


def _before(error: BaseException) -> Iterator[BaseException]:
    """The errors that were being handled when this one was raised, the latest first."""
    seen = {id(error)}
    earlier = error.__cause__ or error.__context__
    while earlier is not None and id(earlier) not in seen:
        seen.add(id(earlier))
        yield earlier
        earlier = earlier.__cause__ or earlier.__context__
