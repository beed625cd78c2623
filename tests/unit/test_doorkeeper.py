"""The doorkeeper's knowledge of routes, and the first requests that it refuses."""

from __future__ import annotations

from random import Random

import pytest

from quaestor.errors import ConfigurationError
from quaestor.read_path.doorkeeper import (
    BLOCK,
    LEAST_ENTRIES,
    MOST_KEYS,
    PATIENCE_MS,
    PROBE,
    RARE_PROBE,
    WINDOW_MS,
    Doorkeeper,
    Duration,
    Turn,
    break_even,
)
from quaestor.settings import Settings

HANDLER_S, STORING_S = 0.009, 0.001
"""Durations whose break-even is 10 %."""


def learned(used: int, *, most_share: float = 0.5, entries: int = LEAST_ENTRIES) -> Doorkeeper:
    """A doorkeeper that has judged entries of one route with a break-even of 10 %; so many of them were used."""
    keeper = Doorkeeper(most_share=most_share)
    for number in range(entries):
        usefulness = keeper.admitted("route", "GET /x", now_ms=0)
        if usefulness is not None and number < used:
            usefulness.use()
        keeper.note_run("route", HANDLER_S)
        keeper.note_storage("route", STORING_S)
    keeper.admitted("another", "GET /y", now_ms=PATIENCE_MS)
    return keeper


def refused(keeper: Doorkeeper, *keys: str, route: str = "route", now_ms: int = 0) -> list[bool]:
    return [keeper.turn(route, key, now_ms=now_ms) is Turn.REFUSED for key in keys]


def test_nothing_is_refused_before_anything_is_known() -> None:
    """A second equal request is a hit while the doorkeeper knows too little."""
    assert refused(Doorkeeper(most_share=1.0), "a", "b") == [False, False]
    assert refused(learned(0, entries=LEAST_ENTRIES - 1), "a") == [False]


def test_a_route_whose_entries_are_used_is_let_in_at_once() -> None:
    """The share decides, and each route's own."""
    assert refused(learned(LEAST_ENTRIES // 5), "a") == [False]
    assert refused(learned(0), "a", route="another") == [False]
    assert learned(LEAST_ENTRIES // 5).kept == []


def test_the_second_request_is_let_in() -> None:
    """Within the window a first request is remembered."""
    keeper = learned(LEAST_ENTRIES // 50)
    assert refused(keeper, "a", "b", "a", "b") == [True, True, False, False]
    assert refused(keeper, "c") == [True]
    assert refused(keeper, "c", now_ms=WINDOW_MS) == [False]
    assert [named.name for named in keeper.kept] == ["GET /x"]


def test_keys_seen_long_ago_are_forgotten() -> None:
    """Memory is bounded in time and in size."""
    keeper = learned(0)
    assert refused(keeper, "a") == [True]
    assert refused(keeper, "b", now_ms=2 * WINDOW_MS) == [True]
    assert refused(keeper, "a", now_ms=2 * WINDOW_MS) == [True]
    keeper = learned(0)
    refused(keeper, "a", *(f"k{n}" for n in range(2 * MOST_KEYS + MOST_KEYS // 10)))
    assert refused(keeper, "a") == [True], "1 % of first requests are taken for second ones"


def test_one_first_request_in_so_many_is_let_in() -> None:
    """Admitted first requests keep the learned share up to date. Far below the break-even they are rarer."""
    outcomes = refused(learned(LEAST_ENTRIES // 20), *(str(n) for n in range(PROBE * 4)))
    assert outcomes.count(False) == 4
    outcomes = refused(learned(0), *(str(n) for n in range(RARE_PROBE * 4)))
    assert outcomes.count(False) == 4


def test_a_route_with_repeated_requests_is_admitted_again() -> None:
    """Late uses count, also of entries counted as unused, and of entries that another process has stored."""
    keeper = learned(0)
    assert refused(keeper, "a") == [True]
    for _ in range(LEAST_ENTRIES // 5):
        keeper.note_use("route")
    assert refused(keeper, "b") == [False]


def test_the_past_weighs_less_and_less() -> None:
    """A route that was of use once and no longer is, is found out."""
    keeper = learned(LEAST_ENTRIES)
    now_ms = PATIENCE_MS
    for _ in range(20 * LEAST_ENTRIES):
        keeper.admitted("route", "GET /x", now_ms=now_ms)
        now_ms += PATIENCE_MS
    assert refused(keeper, "a", now_ms=now_ms) == [True]


def test_it_can_be_turned_off() -> None:
    assert refused(learned(0, most_share=0.0), "a") == [False]
    assert learned(0, most_share=0.0).admitted("route", "GET /x", now_ms=0) is None


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    """A clear error names the value."""
    with pytest.raises(ConfigurationError, match=f"doorkeeper_share={share} is .* value [01]: it must be"):
        Settings(doorkeeper_share=share)


@pytest.mark.parametrize(
    ("storing_s", "handler_s", "share", "refuses"),
    [
        (0.001, 0.009, 0.09, True),
        (0.001, 0.009, 0.11, False),
        (0.001, 0.001, 0.45, True),
        (0.001, 0.099, 0.02, False),
        (0.009, 0.001, 0.49, True),
        (0.009, 0.001, 0.51, False),
    ],
)
def test_costs_decide(storing_s: float, handler_s: float, share: float, refuses: bool) -> None:
    """A dear handler is stored at a share at which a cheap one is not. Above the setting's share every route is stored."""
    keeper = Doorkeeper(most_share=0.5)
    for number in range(LEAST_ENTRIES):
        usefulness = keeper.admitted("route", "GET /x", now_ms=0)
        assert usefulness is not None
        if number < share * LEAST_ENTRIES:
            usefulness.use()
        keeper.note_run("route", handler_s)
        keeper.note_storage("route", storing_s)
    keeper.admitted("route", "GET /x", now_ms=PATIENCE_MS)
    assert refused(keeper, "a") == [refuses]
    assert keeper.break_evens() == {"GET /x": pytest.approx(storing_s / (storing_s + handler_s))}


def test_nothing_is_refused_before_costs_are_measured() -> None:
    """A share alone decides nothing."""
    keeper = Doorkeeper(most_share=0.5)
    for _ in range(2 * LEAST_ENTRIES):
        keeper.admitted("route", "GET /x", now_ms=0)
    keeper.admitted("another", "GET /y", now_ms=PATIENCE_MS)
    assert refused(keeper, "a") == [False]
    assert keeper.break_evens() == {}


def test_storing_at_the_break_even_costs_what_it_saves() -> None:
    """The rule's own definition, over random costs: a run saved for each used entry, a storage spent for each other one."""
    random = Random(32)
    for _ in range(1_000):
        storing_s, handler_s = random.uniform(1e-5, 1e-1), random.uniform(1e-5, 1e-1)
        share = break_even(storing_s=storing_s, handler_s=handler_s)
        assert share * handler_s == pytest.approx((1 - share) * storing_s)
    assert break_even(storing_s=0.0, handler_s=0.0) == 0.0


def test_durations_ignore_the_waits_of_a_busy_process() -> None:
    """A third of the runs wait for other work; the figure stays at the run's own cost, and follows a change of it."""
    duration = Duration()
    random = Random(33)
    for _ in range(20 * BLOCK):
        duration.add(0.001 + (random.random() if random.random() < 1 / 3 else 0.0))
    assert duration.seconds == pytest.approx(0.001, rel=0.05)
    for _ in range(20 * BLOCK):
        duration.add(0.004)
    assert duration.seconds == pytest.approx(0.004, rel=0.05)
    assert Duration().seconds is None


def test_a_repeated_request_is_named() -> None:
    """The caller leaves entries out of the share that a second request stored: their keys are not like all others."""
    keeper = learned(LEAST_ENTRIES // 20)
    turns = [keeper.turn("route", key, now_ms=0) for key in ("a", "a", *map(str, range(PROBE)))]
    assert turns[:2] == [Turn.REFUSED, Turn.REPEATED]
    assert turns[2:].count(Turn.FIRST) == 1
