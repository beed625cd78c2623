"""Context of the parts of one process: settings, telemetry, clock and supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.clock import Clock, system_clock
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """Settings, telemetry, clock and supervisor of one process. Every part of the process holds the same context.

    supervisor: supervisor of all background work.
    """

    settings: Settings
    telemetry: Telemetry
    clock: Clock
    supervisor: Supervisor

    @classmethod
    def of(
        cls, settings: Settings, *, telemetry: Telemetry | None = None, clock: Clock = system_clock
    ) -> ProcessContext:
        """Return a context with a supervisor of its own.

        telemetry: None makes a new one.
        """
        telemetry = telemetry or Telemetry()
        return cls(settings=settings, telemetry=telemetry, clock=clock, supervisor=Supervisor(telemetry))
