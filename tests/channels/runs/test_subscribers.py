"""Subscribers of running channels: arrivals, moves between brokers, pauses, pages of results, and retention."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quaestor.channels.runs import fanning
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import create_tables, drop_tables
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.errors import ConfigurationError
from tests.channels.world import World

pytestmark = pytest.mark.usefixtures("each_engine")

LOCAL = "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area"


@pytest.fixture(params=[True, False], ids=["grouped", "individual"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    world = World(tmp_path)
    world.police()
    world.create(LOCAL, "area", grouped=request.param)
    return world


def tweet(world: World, tid: int, area: str = "A") -> None:
    world.dataset("Tweets").insert([{"tid": tid, "area_code": area}])


def pulled(world: World, broker: str, after: int = 0, limit: int = 1000) -> list[Any]:
    pages = StoredPages(world.catalogue).after("c", broker, after, limit)
    return [
        (page.run // 1_000_000, [(json.loads(row.record)["tid"], set(row.subscriptions)) for row in page.rows])
        for page in pages
    ]


def test_a_subscriber_who_comes_during_a_run_gets_what_is_new_from_the_next_run_on(world: World) -> None:
    first = world.subscribe("A")
    tweet(world, 1)
    load = world.runner._executor.rows
    arrivals: list[str] = []

    def arriving(*arguments: Any) -> Any:
        arrivals.append(world.subscribe("A"))
        return load(*arguments)

    world.runner._executor.rows = arriving  # type: ignore[method-assign]
    world.run(at=10)
    world.runner._executor.rows = load  # type: ignore[method-assign]
    tweet(world, 2)
    world.run(at=20)
    runs = [(run, tid, sorted(ids)) for run, rows in pulled(world, "b") for tid, ids in rows]
    expected = [(10, 1, [first])] + [(20, 2, ids) for ids in ([sorted([first, *arrivals])] if len(runs) < 3 else [])]
    if len(runs) == 3:
        assert [(run, tid) for run, tid, _ in runs] == [(10, 1), (20, 2), (20, 2)]
        assert {ids[0] for _, _, ids in runs[1:]} == {first, *arrivals}
    else:
        assert runs == expected


def test_a_subscription_moves_to_another_broker_at_a_run_boundary(world: World) -> None:
    """The old broker has the runs up to the move, the new one those after it: none twice, none lost (B6)."""
    mine, other = world.subscribe("A", broker="old"), world.subscribe("A", broker="old")
    for run in range(1, 5):
        tweet(world, run)
        world.run(at=run * 10)
        if run == 2:
            world.subscriptions().change(mine, broker="new")

    def received(broker: str, subscription: str) -> list[int]:
        return [tid for _, rows in pulled(world, broker) for tid, ids in rows if subscription in ids]

    assert received("old", mine) == [1, 2]
    assert received("new", mine) == [3, 4]
    assert received("old", other) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", [1, 2])
def test_moves_of_all_subscriptions_at_a_broker_lose_and_repeat_nothing(world: World, seed: int) -> None:
    """Random moves, arrivals and departures between runs: each run is at the broker that a subscription has then (B6)."""
    random = Random(seed)
    present = {world.subscribe("A", broker=broker): broker for broker in "aab"}
    expected: set[tuple[int, str, str]] = set()
    for run in range(1, 7):
        source, target = random.sample("abc", 2)
        moved = world.subscriptions().move(source, target)
        assert moved == sum(broker == source for broker in present.values())
        present = {mine: target if broker == source else broker for mine, broker in present.items()}
        if run % 2:
            broker = random.choice("abc")
            present[world.subscribe("A", broker=broker)] = broker
        else:
            gone = random.choice(sorted(present))
            world.subscriptions().remove(gone)
            del present[gone]
        tweet(world, run)
        world.run(at=run * 10)
        expected |= {(run, mine, broker) for mine, broker in present.items()}
    delivered = [
        (tid, mine, broker)
        for broker in "abc"
        for _, rows in pulled(world, broker)
        for tid, ids in rows
        for mine in ids
    ]
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == expected


def test_a_move_takes_the_subscriptions_of_one_user_and_keeps_parameters_and_pauses(world: World) -> None:
    subscriptions = world.subscriptions()
    mine, other = subscriptions.add("a", ["A"], user="ann"), subscriptions.add("a", ["B"], user="ben")
    subscriptions.pause(mine)
    assert subscriptions.move("a", "b", user="ann") == 1
    assert subscriptions.move("gone", "b") == 0
    kept = {entry.id: entry for entry in subscriptions.all()}
    assert (kept[mine].broker, kept[mine].parameters, kept[mine].user, kept[mine].paused) == ("b", ("A",), "ann", True)
    assert (kept[other].broker, kept[other].paused) == ("a", False)


def test_a_paused_subscription_gets_nothing_and_after_it_what_is_new(world: World) -> None:
    mine = world.subscribe("A")
    for run in range(1, 5):
        tweet(world, run)
        if run == 2:
            world.subscriptions().pause(mine)
        if run == 4:
            world.subscriptions().resume(mine)
        world.run(at=run * 10)
    assert [record["tid"] for _, record in world.delivered()] == [1, 4]
    world.subscriptions().remove(mine)
    tweet(world, 5)
    assert world.run(at=50).rows == 0


def test_pages_hold_whole_runs_and_go_on_after_a_run(world: World) -> None:
    """A reader who was away resumes by the run that it has seen (B5)."""
    mine = world.subscribe("A")
    world.subscribe("B", broker="other")
    for run in range(1, 5):
        tweet(world, run * 10)
        tweet(world, run * 10 + 1)
        tweet(world, run * 10 + 2, area="B")
        world.run(at=run * 10)
    first = pulled(world, "b", limit=3)
    assert [(run, [tid for tid, _ in rows]) for run, rows in first] == [(10, [10, 11]), (20, [20, 21])]
    rest = pulled(world, "b", after=20_000_000)
    assert [run for run, _ in rest] == [30, 40]
    pages = StoredPages(world.catalogue)
    assert [page.run for page in pages.of_subscription("c", mine, 10_000_000, 2)] == [20_000_000]
    assert (pages.newest("c"), pages.oldest("c")) == (40_000_000, 0)


def test_retention_drops_whole_runs_and_says_from_when_on_results_are_kept(world: World) -> None:
    world.subscribe("A")
    for run in range(1, 5):
        tweet(world, run)
        world.run(at=run * 10)
    assert Results(world.catalogue, "c").retain(after=20_000_000) == 2
    assert [run for run, _ in pulled(world, "b")] == [30, 40]
    assert StoredPages(world.catalogue).oldest("c") == 20_000_001
    assert Results(world.catalogue, "c").retain(after=20_000_000) == 0


def test_a_clock_that_steps_back_does_not_reorder_runs(world: World) -> None:
    """The instants of runs increase, and pages stay in order."""
    world.subscribe("A")
    for tid, at in enumerate((50, 20, 20, 51)):
        world.now = at
        tweet(world, tid)
        world.run()
    runs = [run for run, _ in pulled(world, "b")]
    assert runs == sorted(runs)
    assert [tid for _, rows in pulled(world, "b") for tid, _ in rows] == [0, 1, 2, 3]


def test_a_channel_starts_now_or_at_an_instant(world: World) -> None:
    """Records from before the start are not new to the first run (T7)."""
    tweet(world, 1)
    world.now = 5
    tweet(world, 2)
    for name, start in (("n", "now"), ("i", "1970-01-01T00:00:04Z"), ("z", "beginning")):
        world.create(LOCAL, "area", name=name, start=start)
        world.subscribe("A", name=name)
    for name, tids in (("n", []), ("i", [2]), ("z", [1, 2])):
        world.run(name, at=10)
        assert [record["tid"] for _, record in world.delivered(name)] == tids


def test_parameters_that_do_not_fit_are_refused(world: World) -> None:
    with pytest.raises(ConfigurationError, match="has 1 parameters"):
        world.subscribe()
    with pytest.raises(ConfigurationError, match="do not fit"):
        world.subscribe(7)


def test_two_runners_of_one_channel_publish_each_interval_once(world: World) -> None:
    """The slower process changes nothing, and loses nothing."""
    from quaestor.channels.runs.run import Runner

    world.subscribe("A")
    tweet(world, 1)
    execute = world.runner._executor.rows

    def overtaken(*arguments: Any) -> Any:
        world.runner._executor.rows = execute  # type: ignore[method-assign]
        assert Runner(world.catalogue, world.executor).run(world.channels["c"], 10_000_000).published
        return execute(*arguments)

    world.runner._executor.rows = overtaken  # type: ignore[method-assign]
    assert not world.run(at=10).published
    tweet(world, 2)
    assert world.run(at=20).rows == 1
    assert [record["tid"] for _, record in world.delivered()] == [1, 2]


def test_a_channel_is_dropped_with_its_tables_and_made_again(world: World) -> None:
    world.subscribe("A")
    tweet(world, 1)
    world.run(at=10)
    drop_tables(world.catalogue, "c")
    create_tables(world.catalogue, world.channels["c"])
    world.subscribe("A")
    tweet(world, 2)
    world.run(at=20)
    assert [record["tid"] for _, record in world.delivered()] == [2]


def test_distinct_holds_over_all_parts_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal records of one large group fall into several parts, and each subscription still gets one of them."""
    monkeypatch.setattr(fanning, "_MOST_ROWS", 2)
    world = World(tmp_path)
    world.police()
    world.create("SELECT t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area", "area", distinct=True)
    subscribers = [world.subscribe("A") for _ in range(3)]
    for run in (10, 20):
        world.dataset("Tweets").insert([{"tid": run + n, "area_code": "A", "text": "same"} for n in range(3)])
        world.run(at=run)
    assert sorted(world.delivered()) == sorted((subscriber, {"text": "same"}) for subscriber in subscribers)
