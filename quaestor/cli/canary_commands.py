"""Canary at the command line: its prediction from a trace, and its judgement by the reports of all processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from quaestor.cli.command_settings import command_settings
from quaestor.cli.recorded_traces import read_trace
from quaestor.dashboard.simulating import MOST_RECORDS, newest
from quaestor.errors import ConfigurationError
from quaestor.redis.clients import shared_client
from quaestor.settings import Settings
from quaestor.simulation.canary_prediction import predicted_of
from quaestor.store.canary_reports import RedisCanaryReports
from quaestor.ttl.canary import Canary
from quaestor.ttl.canary_guards import Guards
from quaestor.ttl.canary_rule import Judgement
from quaestor.ttl.canary_watch import judgement_of
from quaestor.ttl.parameters import TtlParameters
from quaestor.ttl.published import Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of a canary, as given on the command line: see Canary."""

    share: int
    after: int
    hold_s: float
    promote: bool
    guards: Guards


def prepared(trace: Path, chosen: TtlParameters, now: TtlParameters, terms: Terms) -> Canary:
    """Canary of these parameters, with a prediction from the newest part of a trace. Raises ConfigurationError."""
    if not 0 <= terms.hold_s <= 86_400:
        raise ConfigurationError(f"--hold is a number of seconds in 0..86400, not {terms.hold_s:g}")
    delta_ms = command_settings().sketch.sketch_delta_s * 1_000
    known = read_trace(trace)
    predicted = predicted_of(
        newest(known.records, MOST_RECORDS), now=now, chosen=chosen, share=terms.share, delta_ms=delta_ms,
        started_ms=known.started_ms,
    )  # fmt: skip
    return Canary(
        parameters=chosen, share=terms.share, predicted=predicted, after=terms.after,
        hold_ms=round(terms.hold_s * 1_000), delta_ms=delta_ms, promote=terms.promote, guards=terms.guards,
    )  # fmt: skip


def shown(canary: Canary) -> str:
    """Prediction of a canary, for people."""
    lines = [f"predicted for {canary.share} % of the results, against the rest:"]
    for name, prediction in canary.predicted.items():
        lines.append(
            f"  {name}: {prediction.now:.4f} -> {prediction.chosen:.4f}; "
            f"log odds ratio {prediction.low:+.2f} to {prediction.high:+.2f}"
        )
    lines += [f"  guard: {name} {limit:g}" for name, limit in canary.guards.plain().items()]
    return "\n".join(lines)


def judgement(settings: Settings, publication: Publication) -> Judgement:
    """Judgement on the canary of a publication, by the reports of all processes. Raises StoreError."""

    async def judge() -> Judgement:
        assert settings.redis_url is not None
        client = shared_client(settings.redis_url)
        try:
            reports = RedisCanaryReports(client, scope=settings.scope)
            return judgement_of(publication, await reports.all(publication.number))
        finally:
            await client.aclose()

    return asyncio.run(judge())
