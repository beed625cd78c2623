"""Reporter of one app worker to the live page: totals from its metrics, and each invalidation after it was carried out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import httpx

from quaestor.demo.activity import Effect, WorkerReport
from quaestor.observability.telemetry import Telemetry

INTERVAL_S = 0.25
_EFFECTS_A_REPORT = 500


class Observation(Protocol):
    """Observation of one finished invalidation: see quaestor.observability.hooks.InvalidationDone."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the responses that it concerned."""

    @property
    def written_at_ms(self) -> int:
        """Time of the write."""

    @property
    def evicted_at_ms(self) -> int:
        """Time at which the entry was evicted from the cache in the app."""

    @property
    def purged_at_ms(self) -> int | None:
        """Time at which the CDN had been purged; None without a CDN."""

    @property
    def exact(self) -> bool:
        """Whether a query was matched exactly, not widened."""


class Reporter:
    """Reporter that posts its observations four times a second. If the live page is down, only those observations are lost."""

    def __init__(self, telemetry: Telemetry, live_url: str) -> None:
        self._telemetry = telemetry
        self._url = live_url.rstrip("/") + "/activity"
        self._effects: list[Effect] = []

    def observe(self, observed: Observation) -> None:
        """Add an invalidation; to be called once for each, on the event loop."""
        if len(self._effects) < _EFFECTS_A_REPORT:
            self._effects.append(
                Effect(
                    keys=observed.keys,
                    written_at_ms=observed.written_at_ms,
                    evicted_at_ms=observed.evicted_at_ms,
                    purged_at_ms=observed.purged_at_ms,
                    exact=observed.exact,
                )
            )

    def report(self) -> WorkerReport:
        """Report of the present totals, and of the observations since the last report."""
        counts: dict[str, dict[str, int]] = {}
        for metric in self._telemetry.families.registry.collect():
            for sample in metric.samples:
                # The last label: of invalidations, how precisely they were judged.
                label = next(reversed(sample.labels.values()), "")
                known = counts.setdefault(sample.name, {})
                known[label] = known.get(label, 0) + int(sample.value)
        effects, self._effects = self._effects, []
        return WorkerReport(
            worker=os.getpid(),
            requests=counts.get("quaestor_requests_total", {}),
            invalidations=counts.get("quaestor_invalidations_total", {}),
            uncacheable=counts.get("quaestor_uncacheable_total", {}),
            evicted=_single(counts.get("quaestor_evicted_total", {}).values()),
            registrations=_single(counts.get("quaestor_registrations", {}).values()),
            serving=bool(_single(counts.get("quaestor_serving", {}).values())),
            effects=tuple(effects),
        )

    async def run(self) -> None:
        """Report for ever."""
        async with httpx.AsyncClient(timeout=1.0) as client:
            while True:
                await asyncio.sleep(INTERVAL_S)
                with suppress(httpx.HTTPError):
                    await client.post(
                        self._url,
                        content=self.report().model_dump_json(),
                        headers={"content-type": "application/json"},
                    )


def _single(values: Iterable[int]) -> int:
    return next(iter(values), 0)
