"""Report of one process for the dashboard: its readings and the outcomes of its lifetimes, as plain data."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, Final

from quaestor.app import Quaestor
from quaestor.dashboard.heaviest import HeaviestResults
from quaestor.dashboard.windows import EVICTED, Windows
from quaestor.observability.hooks import AnswerKept
from quaestor.observability.readings import histogram, readings
from quaestor.runtime.supervision.service import ServiceState
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.outcomes import Outcomes
from quaestor.ttl.recording import TraceRecorder

VERSION: Final = 3
_EVICTION: Final = "quaestor_invalidation_latency_seconds"
_HEAVIEST: Final = 20
_OUTCOMES: Final = 1_000
"""Newest outcomes in each process's report: all of them are sent once a second while a client looks."""

Report = dict[str, Any]


class ProcessReporter:
    """Reporter of one process. Use from its event loop.

    process: unique name of the process.
    """

    def __init__(self, quaestor: Quaestor) -> None:
        self.process = f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._quaestor = quaestor
        self._heaviest = HeaviestResults(quaestor.parts.process.clock)
        self._windows = Windows()
        recorder = quaestor.parts.estimator
        inner = recorder.inner if isinstance(recorder, TraceRecorder) else recorder
        self._chosen = inner if isinstance(inner, ChosenEstimators) else None
        self.own = None if self._chosen is None else self._chosen.parameters

    def begin(self) -> None:
        """Begin to collect the figures that only a dashboard needs."""
        if self._heaviest not in self._quaestor.telemetry.hooks.kept:
            self._quaestor.telemetry.hooks.kept.append(self._heaviest)
        if self._chosen is not None and self._chosen.outcomes is None:
            self._chosen.outcomes = Outcomes()

    def sample(self) -> None:
        """Keep the present counts, for the figures of the last minutes."""
        telemetry = self._quaestor.telemetry
        telemetry.requests.flush()
        registry = telemetry.families.registry
        counted = readings(registry) | {EVICTED: histogram(registry, _EVICTION)}
        self._windows.sample(counted, now_ms=self._quaestor.parts.process.clock())

    def report(self) -> Report:
        """Report of this moment."""
        quaestor = self._quaestor
        now_ms = quaestor.parts.process.clock()
        telemetry, chosen = quaestor.telemetry, self._chosen
        telemetry.requests.flush()
        registry = telemetry.families.registry
        counted, evicted_s = readings(registry), histogram(registry, _EVICTION)
        outcomes = [] if chosen is None or chosen.outcomes is None else chosen.outcomes.so_far(
            now_ms=now_ms, limit=_OUTCOMES
        )  # fmt: skip
        return {
            "version": VERSION,
            "process": self.process,
            "at_ms": now_ms,
            "serving": quaestor.read_path.serving(now_ms),
            "readings": counted,
            "windows": self._windows.report(counted | {EVICTED: evicted_s}, now_ms=now_ms),
            "routes": telemetry.routes.report(),
            "break_even": quaestor.read_path.admission.doorkeeper.break_evens(),
            "evicted_s": evicted_s,
            "outcomes": [[kind, outcome.given_ms, outcome.lived_ms, outcome.changed] for kind, outcome in outcomes],
            "judged": {} if chosen is None else chosen.judged(),
            "heaviest": self._heaviest.top(_HEAVIEST, self._why),
            "warnings": [*self._degraded(), *telemetry.lasting][:20],
            "quarantined": [
                f"{quarantine.route} ({quarantine.reason})" for quarantine in quaestor.read_path.probation.quarantines
            ][:20],
        }

    def _degraded(self) -> list[str]:
        """Sentences about services that fail again and again."""
        return [
            f"Service {report.sentence}."
            for report in self._quaestor.services()
            if report.state is ServiceState.DEGRADED
        ]

    def _why(self, kept: AnswerKept) -> dict[str, float | str]:
        if self._chosen is None:
            return {"estimator": "the application's own"}
        return self._chosen.reasons(
            kept.query_ids,
            write_rate_hz=kept.write_rate_hz,
            now_ms=self._quaestor.parts.process.clock(),
            kind=kept.kind,
        )
