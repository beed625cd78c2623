"""Metrics of the background services of a process."""

from __future__ import annotations

from quaestor.observability.families import Families


class ServiceMetrics:
    """Failures and states of background services, by the name of the service.

    failures: exceptions that a service, or a short task of it, raised.
    degraded: 1 while a service fails again and again.
    """

    def __init__(self, families: Families) -> None:
        self.failures = families.counters(
            "service_failures", "exceptions that ended a background service or one of its tasks", service=None
        )
        self.degraded = families.gauges(
            "service_degraded", "1 while a background service fails again and again", service=None
        )
