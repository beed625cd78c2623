"""Cached answers of queries that follow the clock, compared with the same query on the real mongod at each instant."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.invalidation.grid.periodic_work import PeriodicWork
from quaestor.planning.moments import Moment
from quaestor.planning.timed_conditions import TimedCondition
from tests.oracle.clock_world import ClockWorld, StaleError

pytestmark = pytest.mark.anyio

SEEDS = range(6)
STEPS = 40


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_answer_is_the_querys_result_at_every_instant(mongo_url: str, prefix: str, seed: int) -> None:
    """Random filters, writes and moves of the clock. An answer that nothing changed stays a hit."""
    async with ClockWorld(mongo_url, prefix, seed) as world:
        await world.play(STEPS)
        assert world.hits > STEPS / 2


def without_a_wheel(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(PeriodicWork, "fire_due", lambda work: None)


def one_millisecond_late(patched: pytest.MonkeyPatch) -> None:
    first_at = Moment.first_at
    patched.setattr(Moment, "first_at", lambda moment, value_ms: first_at(moment, value_ms) + 1)


def without_records_that_do_not_match_yet(patched: pytest.MonkeyPatch) -> None:
    next_change = TimedCondition.next_change

    def of_members(condition: TimedCondition, record: Any, *, after_ms: int, until_ms: int) -> int | None:
        if not condition.holds(record, after_ms):
            return None
        return next_change(condition, record, after_ms=after_ms, until_ms=until_ms)

    patched.setattr(TimedCondition, "next_change", of_members)


@pytest.mark.parametrize("mutant", [without_a_wheel, one_millisecond_late, without_records_that_do_not_match_yet])
async def test_a_broken_rule_is_noticed(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, mutant: Any
) -> None:
    mutant(monkeypatch)
    with pytest.raises(StaleError):  # noqa: PT012
        for seed in range(12):
            async with ClockWorld(mongo_url, f"{prefix}{seed}", seed) as world:
                await world.play(STEPS)
