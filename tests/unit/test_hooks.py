"""Hooks notify observers of events; an observer that fails disturbs nothing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import structlog

from quaestor import Quaestor
from quaestor.errors import ConfigurationError
from quaestor.observability.hooks import FailureSeen, InvalidationDone, ReadAnswered
from quaestor.observability.telemetry import Telemetry
from tests.end_to_end.site import Site
from tests.hand_driven import FixedEstimator

pytestmark = pytest.mark.anyio

DONE = InvalidationDone(keys=("k",), written_at_ms=1, refused_at_ms=2, evicted_at_ms=3, purged_at_ms=None)


def raising(payload: object) -> None:
    raise RuntimeError("an observer's mistake")


def failures(telemetry: Telemetry, part: str) -> float:
    value = telemetry.families.registry.get_sample_value("quaestor_failures_total", {"part": part})
    return 0.0 if value is None else value


async def test_every_answered_request_is_reported_once_with_its_outcome() -> None:
    site = Site()
    events: list[ReadAnswered] = []
    site.engine.telemetry.hooks.reads.append(events.append)
    await site.get()
    await site.get()
    miss, hit = events
    assert (miss.outcome, miss.detail) == ("miss", "absent")
    assert miss.seconds is not None
    assert miss.seconds > 0
    assert (hit.outcome, hit.detail, hit.seconds) == ("hit", "memory", None)
    assert site.engine.count("requests", outcome="hit") == 1, "counted as ever"


async def test_an_observer_that_raises_breaks_no_request_and_is_counted() -> None:
    site = Site()
    events: list[ReadAnswered] = []
    site.engine.telemetry.hooks.reads += [raising, events.append]
    with structlog.testing.capture_logs() as logs:
        assert [(await site.get()).status_code for _ in range(2)] == [200, 200]
    assert [read.outcome for read in events] == ["miss", "hit"], "later observers receive the event"
    assert failures(site.engine.telemetry, "observer") == 2
    assert [log["event"] for log in logs] == ["hooks.observer_failed"], "the same failure is logged once a minute"


def test_each_outcome_carries_why() -> None:
    telemetry = Telemetry()
    events: list[ReadAnswered] = []
    telemetry.hooks.reads.append(events.append)
    telemetry.requests.served("redis")
    telemetry.requests.followed("workers")
    telemetry.requests.missed("expired", seconds=0.5)
    assert events == [
        ReadAnswered(outcome="hit", detail="redis"),
        ReadAnswered(outcome="coalesced", detail="workers"),
        ReadAnswered(outcome="miss", detail="expired", seconds=0.5),
    ]


def test_failures_are_reported_with_the_text_of_the_log() -> None:
    telemetry = Telemetry()
    failures_seen: list[FailureSeen] = []
    telemetry.hooks.failures.append(failures_seen.append)
    telemetry.failure("cdn", "effects.purge_failed", ValueError("refused"), cdn="varnish")
    assert failures_seen == [
        FailureSeen(part="cdn", name="effects.purge_failed", error="refused", fields={"cdn": "varnish"})
    ]


def test_an_observer_of_failures_that_fails_is_not_notified_of_it() -> None:
    """Notifying the failing observer of its own failure would never end."""
    telemetry = Telemetry()
    telemetry.hooks.failures.append(raising)
    telemetry.failure("cdn", "effects.purge_failed", "refused")
    assert (failures(telemetry, "cdn"), failures(telemetry, "observer")) == (1, 1)


def test_an_application_registers_its_observers_by_name() -> None:
    quaestor = Quaestor(grid=False)
    seen: list[Any] = []
    quaestor.on_read(seen.append)
    quaestor.on_invalidated(seen.append)
    quaestor.on_failure(seen.append)
    quaestor.telemetry.requests.hit()
    quaestor.telemetry.hooks.invalidations.tell(DONE)
    quaestor.telemetry.failure("store", "test.failed", "away")
    assert [type(payload) for payload in seen] == [ReadAnswered, InvalidationDone, FailureSeen]


def test_payloads_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DONE.evicted_at_ms = 4  # type: ignore[misc]


def test_the_estimator_may_be_an_application_s_own() -> None:
    estimator = FixedEstimator(ttl_ms=7)
    quaestor = Quaestor(estimator=estimator, grid=False)
    assert quaestor.parts.estimator is estimator
    assert quaestor.read_path.admission._estimator is quaestor.parts.effects._estimator is estimator


async def test_stopping_what_was_never_started_closes_it() -> None:
    quaestor = Quaestor()
    await quaestor.stop()
    with pytest.raises(ConfigurationError, match="before start"):
        await quaestor.invalidate(tags=["a"])
