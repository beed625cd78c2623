"""Delivery to brokers over real HTTP: push and pull, failures, dead letters, moves, and runs that are missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from quaestor.channels.brokers import delivery as delivery_module
from quaestor.continuous.delivery.networks import Networks
from tests.channels.brokers.world import KEY, World
from tests.continuous.delivery.receivers import CLOSE, Receiver, receiver, status

pytestmark = pytest.mark.anyio


def bodies(server: Receiver) -> list[Any]:
    return [json.loads(body) for _, body in server.requests]


def keys(server: Receiver) -> list[str]:
    return [fields["webhook-id"] for fields, _ in server.requests]


def results(server: Receiver) -> list[Any]:
    return [result["result"] for body in bodies(server) for result in body["results"]]


async def test_a_push_channel_sends_each_broker_its_results_signed(tmp_path: Path) -> None:
    """The library of Standard Webhooks accepts the signature; the key names channel, run and part."""
    world = World(tmp_path)
    run = world.run(1, ("a", ["s1", "s2"], {"x": 1}), ("b", ["s3"], {"x": 2}), ("a", ["s1"], {"x": 3}))
    async with receiver() as first, receiver() as second:
        world.broker("a", first.port)
        world.broker("b", second.port)
        assert await world.delivery.deliver("offers", push=True) == 3
        assert await world.delivery.deliver("offers", push=True) == 0
    ((fields, body),) = first.requests
    assert Webhook(KEY).verify(body, fields)["results"] == [
        {"channelExecutionEpochTime": run // 1_000, "subscriptionIds": ["s1", "s2"], "result": {"x": 1}},
        {"channelExecutionEpochTime": run // 1_000, "subscriptionIds": ["s1"], "result": {"x": 3}},
    ]
    assert fields["idempotency-key"] == f'"offers/{run}/0"'
    assert results(second) == [{"x": 2}]
    assert world.acknowledgements.upto("a", "offers") == world.acknowledgements.upto("b", "offers") == run


async def test_a_pull_channel_sends_one_notification_for_each_run(tmp_path: Path) -> None:
    """Identities are distinct, and a notification acknowledges nothing."""
    world = World(tmp_path)
    world.run(1, ("a", ["s1", "s2"], {"x": 1}), ("a", ["s1"], {"x": 3}))
    world.run(2, ("a", ["s9"], {"x": 4}))
    async with receiver() as server:
        world.broker("a", server.port)
        await world.delivery.deliver("offers", push=False)
        await world.delivery.deliver("offers", push=False)
    assert [body["subscriptionIds"] for body in bodies(server)] == [[["s1", "s2"]], [["s9"]]]
    assert "results" not in bodies(server)[0]
    assert world.acknowledgements.upto("a", "offers") == 0


async def test_a_failed_part_is_sent_again_with_the_same_key(tmp_path: Path) -> None:
    world = World(tmp_path)
    run = world.run(1, ("a", ["s1"], {"x": 1}))
    async with receiver(status(500), CLOSE) as server:
        world.broker("a", server.port)
        await world.delivery.deliver("offers", push=True)
    assert keys(server) == [f"offers/{run}/0"] * 3
    assert world.letters.count() == 0


async def test_a_run_in_parts_has_a_key_for_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "MOST_ROWS", 2)
    world = World(tmp_path)
    run = world.run(1, *(("a", ["s"], number) for number in range(5)))
    async with receiver() as server:
        world.broker("a", server.port)
        await world.delivery.deliver("offers", push=True)
    assert keys(server) == [f"offers/{run}/{first}" for first in (0, 2, 4)]
    assert results(server) == [0, 1, 2, 3, 4]


async def test_a_broker_that_is_down_for_a_run_gets_a_dead_letter_and_the_replay_brings_it(tmp_path: Path) -> None:
    """Delivered = expected after the replay, none twice; the loss of patience is an alarm."""
    world = World(tmp_path)
    world.run(1, ("a", ["s"], 1))
    async with receiver() as server:
        world.broker("a", server.port)
        await world.delivery.deliver("offers", push=True)
        lost = world.run(2, ("a", ["s"], 2))
        server.scripts.extend([status(503)] * 3)
        await world.delivery.deliver("offers", push=True)
        assert [letter.batch.key for letter in world.letters.list("offers")] == [f"offers/{lost}/0"]
        assert "delivery.dead_letter" in world.seen
        world.run(3, ("a", ["s"], 3))
        await world.delivery.deliver("offers", push=True)
        replayed = await world.delivery.replay("offers")
    confirmed = [server.requests[0], *server.requests[4:]]
    assert [json.loads(body)["results"][0]["result"] for _, body in confirmed] == [1, 3, 2]
    assert (replayed.delivered, replayed.failed, world.letters.count()) == (1, 0, 0)


async def test_a_broker_that_moves_gets_the_rest_at_its_new_address(tmp_path: Path) -> None:
    """Also a dead letter goes to the address of the moment."""
    world = World(tmp_path, attempts=1)
    world.run(1, ("a", ["s"], 1))
    async with receiver(status(404)) as old, receiver() as new:
        world.broker("a", old.port)
        await world.delivery.deliver("offers", push=True)
        world.broker("a", new.port)
        world.run(2, ("a", ["s"], 2))
        await world.delivery.deliver("offers", push=True)
        await world.delivery.replay()
    assert len(old.requests) == 1
    assert results(new) == [2, 1]


async def test_a_broker_in_the_own_network_is_never_reached(tmp_path: Path) -> None:
    """A name that leads into the own network is refused at the delivery, and the result is a dead letter."""
    world = World(tmp_path, attempts=1, reach=Networks())
    world.run(1, ("a", ["s"], 1))
    async with receiver() as server:
        world.brokers.register("a", f"http://localhost:{server.port}/", options={"key": KEY})
        await world.delivery.deliver("offers", push=True)
    assert server.requests == []
    assert [letter.reason for letter in world.letters.list()] == ["forbidden-address"]


async def test_a_broken_broker_delays_no_other(tmp_path: Path) -> None:
    world = World(tmp_path, attempts=1)
    world.run(1, ("a", ["s"], 1), ("b", ["s"], 2))
    async with receiver(status(500)) as first, receiver() as second:
        world.broker("a", first.port)
        world.broker("b", second.port)
        await world.delivery.deliver("offers", push=True)
    assert results(second) == [2]


async def test_another_instance_receives_records_for_its_feed(tmp_path: Path) -> None:
    """The reference's test of islands: records alone, one on each line, and a key for exactly once."""
    world = World(tmp_path)
    run = world.run(1, ("a", ["s1", "s2"], {"id": 0, "island": "OC"}), ("a", ["s1"], {"id": 2, "island": "OC"}))
    async with receiver() as server:
        world.broker("a", server.port, type="BAD")
        await world.delivery.deliver("offers", push=True)
    ((fields, body),) = server.requests
    assert body == b'{"id": 0, "island": "OC"}\n{"id": 2, "island": "OC"}\n'
    assert (fields["content-type"], fields["idempotency-key"]) == ("application/x-ndjson", f'"offers/{run}/0"')


async def test_a_broker_whose_lease_is_over_gets_nothing_until_it_is_registered_again(tmp_path: Path) -> None:
    """Its results stay; the end of the lease is an alarm."""
    world = World(tmp_path)
    world.run(1, ("a", ["s"], 1))
    async with receiver() as server:
        world.broker("a", server.port, lease="PT1H")
        world.clock.ms += 3_600_001
        await world.delivery.deliver("offers", push=True)
        assert (server.requests, world.seen) == ([], ["channels.lease_over"])
        world.broker("a", server.port, lease="PT1H")
        await world.delivery.deliver("offers", push=True)
    assert results(server) == [1]


async def test_a_channel_without_results_sends_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(1, ("b", ["s"], 1))
    async with receiver() as server:
        world.broker("a", server.port)
        assert await world.delivery.deliver("offers", push=True) == 0
    assert (server.requests, world.acknowledgements.upto("a", "offers")) == ([], 0)
