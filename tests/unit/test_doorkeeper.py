"""The doorkeeper's knowledge of routes, and the first requests that it refuses."""

from __future__ import annotations

import pytest

from quaestor.errors import ConfigurationError
from quaestor.read_path.doorkeeper import LEAST_ENTRIES, MOST_KEYS, PATIENCE_MS, PROBE, WINDOW_MS, Doorkeeper
from quaestor.settings import Settings


def learned(used: int, *, least_share: float = 0.1, entries: int = LEAST_ENTRIES) -> Doorkeeper:
    """A doorkeeper that has seen entries of one route, so many of them used, and had the patience to wait for it."""
    keeper = Doorkeeper(least_share=least_share)
    for number in range(entries):
        usefulness = keeper.admitted("route", "GET /x", now_ms=0)
        if usefulness is not None and number < used:
            usefulness.use()
    keeper.admitted("another", "GET /y", now_ms=PATIENCE_MS)
    return keeper


def refused(keeper: Doorkeeper, *keys: str, route: str = "route", now_ms: int = 0) -> list[bool]:
    return [keeper.refuses(route, key, now_ms=now_ms) for key in keys]


def test_nothing_is_refused_before_anything_is_known() -> None:
    """A second equal request is a hit while the doorkeeper knows too little."""
    assert refused(Doorkeeper(least_share=1.0), "a", "b") == [False, False]
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
    """Admitted first requests keep the learned share up to date."""
    outcomes = refused(learned(0), *(str(n) for n in range(PROBE * 4)))
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
    assert refused(learned(0, least_share=0.0), "a") == [False]
    assert learned(0, least_share=0.0).admitted("route", "GET /x", now_ms=0) is None


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    """A clear error names the value."""
    with pytest.raises(ConfigurationError, match=f"doorkeeper_share={share} is .* value [01]: it must be"):
        Settings(doorkeeper_share=share)
