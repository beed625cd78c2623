"""Health of brokers over real HTTP: a broker that is down is noticed, and its results wait until it is back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quaestor.channels.brokers.health import BrokerHealth, HealthParts
from quaestor.continuous.delivery.networks import Networks
from tests.channels.brokers.world import LOCAL, World
from tests.continuous.delivery.receivers import CLOSE, Receiver, receiver, status

pytestmark = pytest.mark.anyio


class Checked(World):
    """World with health checks. returns: number of times that brokers have come back."""

    returns = 0

    def health(self, reach: Networks = LOCAL) -> BrokerHealth:
        async def recovered() -> None:
            self.returns += 1
            await self.delivery.deliver("offers", push=True)

        return BrokerHealth(
            HealthParts(
                brokers=self.brokers,
                networks=reach,
                telemetry=self.telemetry,
                recovered=recovered,
                timeout_s=120.0,
                clock=self.clock,
            )
        )

    def down(self) -> float | None:
        """Return the number of brokers that are down, as metrics have it."""
        return self.telemetry.families.registry.get_sample_value("quaestor_channel_brokers_down")


def messages(server: Receiver) -> list[int]:
    """Return the results of the messages that came, without health checks; a repeated message counts once."""
    bodies = {fields["webhook-id"]: body for fields, body in server.requests}
    wanted = [json.loads(body) for key, body in bodies.items() if not key.startswith("health/")]
    return [result["result"] for body in wanted for result in body["results"]]


async def test_results_of_a_broker_that_is_down_wait_and_come_once_when_it_is_back(tmp_path: Path) -> None:
    """No message is tried meanwhile, none becomes a dead letter, and another process sees the state."""
    world = Checked(tmp_path)
    health = world.health()
    world.run(1, ("a", ["s"], 1))
    async with receiver() as server:
        world.broker("a", server.port)
        await world.delivery.deliver("offers", push=True)
        await health.check()
        server.scripts.extend([CLOSE, CLOSE])
        await health.check()
        assert not world.brokers.get("a").is_down, "one failed check is no proof"
        await health.check()
        assert ("channels.broker_down" in world.seen, world.down()) == (True, 1)
        later = Checked(tmp_path)
        assert later.brokers.get("a").described()["state"] == "down"
        for number in (2, 3):
            world.run(number, ("a", ["s"], number))
            assert await world.delivery.deliver("offers", push=True) == 0
        assert messages(server) == [1]
        await world.health().check()
        assert messages(server) == [1, 2, 3]
        await world.delivery.deliver("offers", push=True)
    assert messages(server) == [1, 2, 3]
    assert (world.returns, world.down(), world.letters.count(), world.brokers.get("a").state) == (1, 0, 0, "active")


async def test_a_broker_that_goes_down_between_two_attempts_gets_no_dead_letter(tmp_path: Path) -> None:
    """The delivery ends with the next attempt, and begins again with the same key."""
    world = Checked(tmp_path, attempts=2)
    run = world.run(1, ("a", ["s"], 1))

    async def goes_down(_: float) -> None:
        world.brokers.note_down("a", 1)

    world._sleep = goes_down  # type: ignore[method-assign]
    world.use(world.pages)
    async with receiver(status(500)) as server:
        world.broker("a", server.port)
        assert await world.delivery.deliver("offers", push=True) == 0
        assert (world.letters.count(), world.acknowledgements.upto("a", "offers")) == (0, 0)
        assert "channels.delivery_stopped" not in world.seen
        world.brokers.note_down("a", 0)
        assert await world.delivery.deliver("offers", push=True) == 1
    assert [fields["webhook-id"] for fields, _ in server.requests] == [f"offers/{run}/0"] * 2


@pytest.mark.parametrize(
    ("answer", "is_down"),
    [
        *((status(code), False) for code in (200, 302, 401, 404, 405, 429, 500, 501)),
        *((status(code), True) for code in (502, 503, 504)),
        (CLOSE, True),
    ],
)
async def test_every_answer_is_a_sign_of_life_except_that_of_a_proxy_without_a_broker(
    tmp_path: Path, answer: bytes, is_down: bool
) -> None:
    world = Checked(tmp_path)
    health = world.health()
    async with receiver(answer, answer) as server:
        world.broker("a", server.port)
        await health.check()
        await health.check()
    assert world.brokers.get("a").is_down is is_down


async def test_brokers_that_take_no_checks_get_none(tmp_path: Path) -> None:
    """Neither a broker with `check` false, nor one whose lease is over, nor one in a network that is not allowed."""
    world = Checked(tmp_path)
    async with receiver() as server:
        world.broker("plain", server.port, check=False)
        world.broker("silent", server.port, lease="PT1S")
        world.clock.ms += 2_000
        await world.health().check()
        world.broker("own", server.port)
        await world.health(Networks()).check()
    assert server.requests == []


async def test_a_new_address_is_up_until_its_own_checks_fail(tmp_path: Path) -> None:
    world = Checked(tmp_path)
    async with receiver() as server:
        world.broker("a", 1)
        world.brokers.note_down("a", 7)
        world.broker("a", server.port)
        assert not world.brokers.get("a").is_down


async def test_a_broker_that_answers_its_checks_keeps_its_lease(tmp_path: Path) -> None:
    """A quiet broker with a lease of an hour is there after three hours of answered checks, and expires once it is silent."""
    world = Checked(tmp_path)
    async with receiver() as server:
        world.broker("a", server.port, lease="PT1H")
        for _ in range(6):
            world.clock.ms += 30 * 60_000
            await world.health().check()
        assert not world.brokers.get("a").has_expired(world.clock.ms * 1_000)
        renewed = world.brokers.get("a").renewed
        server.scripts.extend([CLOSE, CLOSE])
        for _ in range(2):
            world.clock.ms += 20 * 60_000
            await world.health().check()
    assert world.brokers.get("a").renewed == renewed
    assert world.brokers.get("a").has_expired((world.clock.ms + 30 * 60_000) * 1_000)
