"""Housekeeping of the registrations of one app process, once a second."""

from __future__ import annotations

from quaestor.event_layer import codec
from quaestor.invalidation.registry.cancellation import Cancellations
from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.lag_monitor import LagMonitor
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.invalidation.registry.usage_reports import Served, UsageReports
from quaestor.runtime.supervision.process_context import ProcessContext


class Housekeeping:
    """Expired registrations, old tombstones, usage reports and metrics. Use from one thread."""

    def __init__(
        self, registrations: ProcessRegistrations, cancellations: Cancellations, process: ProcessContext
    ) -> None:
        settings = process.settings
        self._origin = registrations.origin
        self._validity = registrations.validity
        self._view = registrations.view
        self._shared = registrations.shared
        self._cancellations = cancellations
        self._sender = registrations.sender
        self._rule = registrations.rule
        self._telemetry = process.telemetry
        self._clock = process.clock
        self._bound_ms = settings.grid.staleness_bound_ms
        self._usage = UsageReports(deployment=settings.deployment, tenant=settings.owner)
        self._lag = LagMonitor(process.telemetry, bound_ms=self._bound_ms, begun_ms=process.clock())

    def run(self, served: Served) -> None:
        """Cancel registrations that no copy needs, forget old tombstones, report reads and metrics.

        served: hits served since the last call.
        """
        now_ms, served = self._clock(), list(served)
        if self._validity.freshness.any_until_ms > now_ms + self._bound_ms:
            self._validity.prove(Freshness())  # our clock was set back: the next heartbeats are judged by its new time
        self._cancellations.cancel_expired(now_ms=now_ms)
        self._validity.forget_dead(now_ms=now_ms)
        self._report_usage(served, now_ms)
        self._measure(now_ms)

    def _report_usage(self, served: Served, now_ms: int) -> None:
        self._usage.gather(served, self._shared.query_of, origin=self._origin)
        for registration_ids, reads in served:
            for registration_id in registration_ids:
                query_id = self._shared.query_of(registration_id)
                if query_id is not None:
                    self._rule.served(query_id, reads)
        if (shape := self._view.shape) is not None:
            for stream, usage in self._usage.due(shape, now_ms=now_ms):
                self._sender.send(stream, codec.encode_query_event(usage))

    def _measure(self, now_ms: int) -> None:
        self._telemetry.grid.registrations.set(len(self._shared))
        self._telemetry.grid.serving.set(self._validity.serving(now_ms=now_ms))
        self._lag.observe(self._view.partitions_ms(), now_ms=now_ms)
        self._telemetry.grid.lag_s.set(self._lag.lag_ms(self._view.oldest_ms(), now_ms=now_ms) / 1000)
