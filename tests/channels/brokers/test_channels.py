"""Brokers of a real channel: runs, groups, a move of a subscription at a run boundary, and the end of retention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quaestor.channels.brokers.reading import Reading
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.errors import ConfigurationError
from tests.channels.brokers.world import World as Brokers
from tests.channels.world import World
from tests.continuous.delivery.receivers import Receiver, receiver, status

pytestmark = pytest.mark.anyio

BODY = "SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area"


def channel(folder: Path) -> World:
    world = World(folder)
    world.police()
    world.create(BODY, "area text", push=True)
    return world


def brokers(world: World) -> Brokers:
    """Return brokers over the results of the channel."""
    side = Brokers(world.folder, attempts=1)
    side.use(StoredPages(world.catalogue))
    return side


def tweet(world: World, at: float, number: int) -> None:
    """Write a tweet, and run the channel a second later."""
    world.now = at
    world.dataset("Tweets").insert([{"tid": number, "area_code": "714", "text": "x"}])
    world.run(at=at + 1)


def received(server: Receiver) -> list[tuple[int, list[str]]]:
    results: list[dict[str, Any]] = [result for _, body in server.requests for result in json.loads(body)["results"]]
    return [(result["result"]["tid"], sorted(result["subscriptionIds"])) for result in results]


async def test_a_moved_subscription_gets_each_result_at_one_broker(tmp_path: Path) -> None:
    """The old broker has the runs up to the move, the new one the later runs: none twice, none lost."""
    world = channel(tmp_path)
    moved, stays = world.subscribe("714", broker="a"), world.subscribe("714", broker="a")
    side = brokers(world)
    async with receiver() as first, receiver() as second:
        side.broker("a", first.port)
        side.broker("b", second.port)
        tweet(world, 10, 1)
        world.subscriptions().change(moved, broker="b")
        tweet(world, 20, 2)
        await side.delivery.deliver("c", push=True)
        await side.delivery.deliver("c", push=True)
    assert received(first) == [(1, sorted([moved, stays])), (2, [stays])]
    assert received(second) == [(2, [moved])]


async def test_all_subscriptions_of_a_broker_that_is_down_move_and_have_each_result_once(tmp_path: Path) -> None:
    """Runs up to the move wait for the old broker, later runs go to the new one: delivered = expected, none twice."""
    world = channel(tmp_path)
    first, second = world.subscribe("714", broker="a"), world.subscribe("714", broker="a")
    side = brokers(world)
    async with receiver() as old, receiver() as new:
        side.broker("a", old.port)
        side.broker("b", new.port)
        tweet(world, 10, 1)
        await side.delivery.deliver("c", push=True)
        side.brokers.note_down("a", 15_000_000)
        tweet(world, 20, 2)
        await side.delivery.deliver("c", push=True)
        assert world.subscriptions().move("a", "b") == 2
        third = world.subscribe("714", broker="b")
        tweet(world, 30, 3)
        await side.delivery.deliver("c", push=True)
        assert received(new) == [(3, sorted([first, second, third]))]
        side.brokers.note_down("a", 0)
        await side.delivery.deliver("c", push=True)
        await side.delivery.deliver("c", push=True)
    assert received(old) == [(1, sorted([first, second])), (2, sorted([first, second]))]
    assert received(new) == [(3, sorted([first, second, third]))]


async def test_a_broker_that_is_down_for_a_run_has_each_result_once_in_the_end(tmp_path: Path) -> None:
    """The run that was missed comes with the replay."""
    world = channel(tmp_path)
    mine = world.subscribe("714", broker="a")
    side = brokers(world)
    async with receiver(status(503)) as server:
        side.broker("a", server.port)
        tweet(world, 10, 1)
        await side.delivery.deliver("c", push=True)
        tweet(world, 20, 2)
        await side.delivery.deliver("c", push=True)
        await side.delivery.replay("c")
        server.requests.pop(0)
    assert received(server) == [(2, [mine]), (1, [mine])]


async def test_an_absent_subscriber_learns_from_when_on_its_results_are_complete(tmp_path: Path) -> None:
    world = channel(tmp_path)
    mine = world.subscribe("714", broker="a")
    for number in (1, 2, 3):
        tweet(world, number * 10, number)
    reading = Reading(StoredPages(world.catalogue))
    runs = [run["run"] for run in json.loads(reading.for_subscription("c", mine, after=0, limit=10).body)["runs"]]
    assert len(runs) == 3
    Results(world.catalogue, "c").retain(after=runs[1])
    absent = json.loads(reading.for_subscription("c", mine, after=runs[0], limit=10).body)
    present = json.loads(reading.for_subscription("c", mine, after=runs[1], limit=10).body)
    assert ([run["run"] for run in absent["runs"]], absent["from"]["run"]) == ([runs[2]], runs[1] + 1)
    assert ([run["run"] for run in present["runs"]], "from" in present) == ([runs[2]], False)


async def test_a_removed_subscription_gets_its_kept_results_and_is_unknown_after_them(tmp_path: Path) -> None:
    """A reader learns that nothing more comes. Others that are quiet stay known, also after further changes."""
    world = channel(tmp_path)
    mine, quiet = world.subscribe("714"), world.subscribe("949")
    reading = Reading(StoredPages(world.catalogue))

    def page(subscription: str, after: int = 0) -> dict[str, Any]:
        return dict(json.loads(reading.for_subscription("c", subscription, after=after, limit=100).body))

    assert page(mine)["complete"]
    tweet(world, 10, 1)
    after = page(mine)["next"]
    assert (page(mine, after)["runs"], page(quiet)["runs"]) == ([], [])
    world.subscriptions().remove(mine)
    assert [run["run"] for run in page(mine)["runs"]] == [11_000_000]
    for run in (after, after + 1):
        with pytest.raises(ConfigurationError, match=f"has no subscription '{mine}'"):
            page(mine, run)
    world.subscriptions().change(quiet, broker="other")
    assert page(quiet)["runs"] == []
    with pytest.raises(ConfigurationError, match="has no subscription"):
        page("unknown")
