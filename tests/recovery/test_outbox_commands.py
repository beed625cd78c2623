"""Commands of the outbox and the index on the Redis server: many purges cost as many commands as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from quaestor.model import Dependent
from quaestor.purge_ports import QueuedPurge
from quaestor.redis.clients import SharedClient, shared_client
from quaestor.store.index_redis import RedisIndex
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.testing import servers
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000
LATER_MS = 4_000_000_000_000
MANY = 2_500
"""More than one call of a script takes."""
CALLS = 3


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[SharedClient]:
    """To a server that nobody else uses."""
    server = servers.redis_server(tmp_path, persistent=False)
    server.start()
    client = shared_client(server.url, timeout_s=PATIENCE_S)
    try:
        yield client
    finally:
        await client.aclose()
        server.stop()


async def commands(client: SharedClient, act: Callable[[], Awaitable[object]]) -> int:
    """How many commands the server carries out for it, those of scripts among them."""
    await client.config_resetstat()
    await act()
    return sum(int(command["calls"]) for command in (await client.info("commandstats")).values())


async def of_one_and_of_many(client: SharedClient, act: Callable[[int], Awaitable[object]]) -> tuple[int, int]:
    await act(1)  # the server knows the scripts from now on
    return await commands(client, lambda: act(1)), await commands(client, lambda: act(MANY))


async def test_many_purges_cost_the_server_as_many_commands_as_one(client: SharedClient) -> None:
    """Put in, done and due again: per call of the scripts, each of which takes a thousand."""
    outbox = RedisOutbox(client, deployment="test")
    taken: list[QueuedPurge] = []

    def members(number: int) -> list[str]:
        return [f"0tag {n}" for n in range(number)]

    async def put(number: int) -> None:
        await outbox.put("q", members(number), until_ms=LATER_MS, now_ms=NOW_MS, token="me", lease_ms=30_000)

    async def done(number: int) -> None:
        purges = [QueuedPurge(member, "me", NOW_MS, LATER_MS, 0) for member in members(number)]
        await outbox.done("q", purges, again=[("1", NOW_MS + 10)], now_ms=NOW_MS)

    async def take(number: int) -> None:
        while len(taken) < number:
            taken.extend(await outbox.take("q", token="me", count=1_000, lease_ms=30_000, now_ms=NOW_MS + 10))

    single, many = await of_one_and_of_many(client, put)
    assert many <= CALLS * single
    single, many = await of_one_and_of_many(client, done)
    assert many <= CALLS * single
    assert await commands(client, lambda: take(MANY)) <= CALLS * 8
    assert sorted(purge.member for purge in taken) == sorted(f"1tag {n}" for n in range(MANY))


async def test_many_claims_are_settled_by_as_many_commands_as_one(client: SharedClient) -> None:
    index = RedisIndex(client, deployment="test")

    def dependent(number: int) -> Dependent:
        return Dependent(
            key=f"k{number}", registrations=(f"a{number}", "b"), resource="/a", urls=(), tags=(), copies_until_ms=LATER_MS
        )  # fmt: skip

    async def settle(number: int) -> None:
        await index.settle([dependent(n) for n in range(number)])

    for number in range(MANY):
        await index.add(dependent(number))
    assert len(await index.claim(["b"], now_ms=NOW_MS)) == MANY
    assert await index.claim(["b", "a7"], now_ms=NOW_MS) == []
    await index.settle([dependent(MANY)])  # the server knows the script from now on
    assert await commands(client, lambda: settle(MANY)) < 20
    assert [await client.zcard(key) for key in index.keys[1:4]] == [0, 0, 0]
    assert await client.hlen(index.keys[0]) == 0


async def test_a_dependent_of_two_registrations_that_die_together_is_claimed_once(client: SharedClient) -> None:
    index = RedisIndex(client, deployment="test")
    dependent = Dependent(
        key="k", registrations=("a", "b"), resource="/a", urls=(), tags=("t",), copies_until_ms=LATER_MS
    )  # fmt: skip
    await index.add(dependent)
    assert await index.claim(["a", "b"], now_ms=NOW_MS) == [dependent]
