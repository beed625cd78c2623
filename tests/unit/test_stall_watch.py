"""The watch over followed results goes round: each result has its turn in time, and no step looks at all of many."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.stall_watch import StallWatch

BOUND_MS = 2_000


@dataclass
class Followed:
    """A followed result that notes its looks."""

    looked_ms: list[int] = field(default_factory=list)
    begun: bool = True
    stalled: object | None = None

    @property
    def shared(self) -> Any:
        return self

    def advances(self, now_ms: int) -> bool:
        self.looked_ms.append(now_ms)
        return self.stalled is None

    def watch(self, now_ms: int, *, bound_ms: int) -> None:
        return None


def stepped(watch: StallWatch, results: list[Any], now_ms: int) -> int:
    """One step of the caller. Returns the number of looks."""
    looks = 0
    for part in watch.parts(results, now_ms):
        watch.look(part, now_ms)
        looks += len(part)
    return looks


@pytest.mark.parametrize("number", [1, 7, 3_000, 10_000])
@pytest.mark.parametrize("step_ms", [1, 100, 700])
def test_each_result_has_its_turn_within_the_bound(number: int, step_ms: int) -> None:
    watch, results = StallWatch(Telemetry(), bound_ms=BOUND_MS), [Followed() for _ in range(number)]
    end_ms = 1_000_000 + 4 * BOUND_MS
    for now_ms in range(1_000_000, end_ms, step_ms):
        stepped(watch, results, now_ms)
    for result in results:
        turns = [1_000_000, *result.looked_ms, end_ms]
        assert max(later - sooner for sooner, later in itertools.pairwise(turns)) <= BOUND_MS + step_ms


def test_no_step_of_a_busy_caller_looks_at_all_of_many_results() -> None:
    watch, results = StallWatch(Telemetry(), bound_ms=BOUND_MS), [Followed() for _ in range(10_000)]
    looks = [stepped(watch, results, now_ms) for now_ms in range(1_000_000, 1_004_000, 5)]
    assert 0 < max(looks) <= 60


def test_a_late_step_makes_up_in_parts() -> None:
    watch, results = StallWatch(Telemetry(), bound_ms=BOUND_MS), [Followed() for _ in range(10_000)]
    stepped(watch, results, 1_000_000)
    parts = list(watch.parts(results, 1_010_000))
    assert sum(map(len, parts)) >= 9_999
    assert max(map(len, parts)) <= 500


def test_the_clock_may_go_back() -> None:
    watch, results = StallWatch(Telemetry(), bound_ms=BOUND_MS), [Followed() for _ in range(10)]
    for now_ms in (1_000_000, 1_000_300, 5_000, 5_000, 5_300, 5_301):
        stepped(watch, results, now_ms)
    assert all(max(result.looked_ms) >= 5_000 and min(result.looked_ms[-1:]) < 1_000_000 for result in results)


def test_the_number_of_stalled_results_is_that_of_a_round() -> None:
    telemetry = Telemetry()
    reported: list[Any] = []
    telemetry.hooks.failures.append(reported.append)
    watch = StallWatch(telemetry, bound_ms=BOUND_MS)
    results = [Followed(stalled=SimpleNamespace() if number % 2 else None) for number in range(2_000)]
    for now_ms in range(1_000_000, 1_001_500, 10):
        stepped(watch, results, now_ms)
    assert [seen.name for seen in reported] == ["subscriptions.stalled"]
    assert telemetry.subscriptions.stalled._value.get() == 1_000
    for result in results:
        result.stalled = None
    for now_ms in range(1_001_500, 1_003_000, 10):
        stepped(watch, results, now_ms)
    assert telemetry.subscriptions.stalled._value.get() == 0
