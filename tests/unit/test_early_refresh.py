"""When an entry is made anew before its lifetime ends."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.model import CachedResponse
from quaestor.read_path.refresh import EarlyRefresh, early_by_ms
from quaestor.store.memory import Resident

FRESH_UNTIL_MS = 100_000


@dataclass
class Case:
    what: str
    now_ms: int
    draw: float
    yes: bool
    cost_ms: int = 1_000
    beta: float = 1.0


@pytest.mark.parametrize(
    "case",
    [
        Case("long before its end", 50_001, 0.5, False),
        Case("an ordinary draw: 693 ms early", 99_300, 0.5, False),
        Case("an ordinary draw: 693 ms early", 99_307, 0.5, True),
        Case("a rare draw: 6,908 ms early", 93_093, 0.001, True),
        Case("a rare draw: 6,908 ms early", 93_091, 0.001, False),
        Case("the latest draw: at its end", 99_999, 1.0, False),
        Case("the latest draw: at its end", 100_000, 1.0, True),
        Case("what costs nothing: at its end", 99_999, 1e-9, False, cost_ms=0),
        Case("never early", 99_999, 1e-9, False, beta=0.0),
        Case("twice as early", 98_614, 0.5, True, beta=2.0),
        Case("never in the first half", 49_999, 1e-300, False, cost_ms=1_000_000),
        Case("from the second half on", 50_000, 1e-300, True, cost_ms=1_000_000),
        Case("after its end", 100_001, 1.0, True),
    ],
    ids=lambda case: f"{case.what} {case.now_ms}",
)
def test_an_entry_is_refreshed_when_the_table_says(case: Case) -> None:
    early_ms = early_by_ms(cost_ms=case.cost_ms, lifetime_ms=FRESH_UNTIL_MS, draw=case.draw, beta=case.beta)
    assert case.yes == (case.now_ms >= FRESH_UNTIL_MS - early_ms)


@given(
    st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**6), st.floats(1e-12, 1.0), st.floats(0, 1_000),
    st.integers(0, 10**7),
)  # fmt: skip
def test_for_one_draw_the_answer_changes_once_and_only_in_the_second_half(
    stored_at_ms: int, lifetime_ms: int, cost_ms: int, draw: float, beta: float, later_ms: int
) -> None:
    end_ms = stored_at_ms + lifetime_ms

    def due(now_ms: int) -> bool:
        return now_ms >= end_ms - early_by_ms(cost_ms=cost_ms, lifetime_ms=lifetime_ms, draw=draw, beta=beta)

    assert due(end_ms)
    if lifetime_ms > 2:
        assert not due(stored_at_ms + (lifetime_ms - 1) // 2 - 1)
    if due(stored_at_ms + later_ms):
        assert due(stored_at_ms + later_ms + 1)


def test_processes_draw_apart_and_the_mean_is_the_cost() -> None:
    """Refreshes of entries that were stored at the same moment, after a purge, are spread."""
    chance = random.Random(1)
    early = [early_by_ms(cost_ms=200, lifetime_ms=10**6, draw=1 - chance.random(), beta=1.0) for _ in range(20_000)]
    assert math.isclose(sum(early) / len(early), 200, rel_tol=0.05)
    assert len({round(each) for each in early}) > 500


def resident(cost_ms: int) -> Resident:
    return Resident(
        CachedResponse(
            key="k", status=200, headers=(), body=b"", etag=b'"e"', stored_at_ms=0, fresh_until_ms=FRESH_UNTIL_MS,
            registrations=(), tags=(), resource="/", cost_ms=cost_ms,
        )
    )  # fmt: skip


def test_one_request_of_each_process_begins_a_refresh() -> None:
    early = EarlyRefresh(beta=1.0, uniform=lambda: 0.5)
    entry = early.settle(resident(cost_ms=1_000))
    assert entry.settled_until_ms == FRESH_UNTIL_MS - 694
    assert not early.due(entry, FRESH_UNTIL_MS - 695), "not yet, and asking changes nothing"
    assert early.due(entry, FRESH_UNTIL_MS - 10)
    assert not early.due(entry, FRESH_UNTIL_MS - 9)
    assert entry.settled_until_ms == FRESH_UNTIL_MS, "and the hit path is the short one again"


def test_answers_of_unknown_cost_are_served_to_their_end() -> None:
    assert EarlyRefresh(beta=1.0).settle(resident(cost_ms=0)).settled_until_ms == FRESH_UNTIL_MS
    assert EarlyRefresh(beta=0.0).settle(resident(cost_ms=9)).settled_until_ms == FRESH_UNTIL_MS
    assert not EarlyRefresh(beta=1.0).due(resident(cost_ms=9), FRESH_UNTIL_MS + 1), "its end is not early"
