"""Connections kept between round trips behave for each command like connections of the driver's pool."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import redis.asyncio
from redis.exceptions import TimeoutError as RedisTimeoutError

from quaestor.redis import round_trips
from quaestor.redis.clients import SharedClient, shared_client
from quaestor.redis.pipelining import pipeline_of
from quaestor.redis.round_trips import MOST_KEPT
from tests.support import PATIENCE_S, eventually


async def _asked(client: SharedClient) -> int:
    """The number of the connection that a command was sent on."""
    return int(await pipeline_of(client).execute(client, "CLIENT", "ID"))


async def _connected(client: SharedClient) -> set[int]:
    """The numbers of all connections to the server."""
    assert isinstance(client, redis.asyncio.Redis)
    return {int(connection["id"]) for connection in await client.client_list()}


@pytest.mark.anyio
async def test_one_command_after_the_other_takes_the_same_connection(redis_url: str) -> None:
    client = shared_client(redis_url)
    async with aclosing(client):
        assert len({await _asked(client) for _ in range(5)}) == 1


@pytest.mark.anyio
async def test_a_connection_that_the_server_has_closed_is_not_noticed(redis_url: str) -> None:
    """As with the driver's pool: the next command is answered, on another connection."""
    client, other = shared_client(redis_url), shared_client(redis_url)
    async with aclosing(client), aclosing(other):
        first = await _asked(client)
        assert isinstance(other, redis.asyncio.Redis)
        await other.client_kill_filter(_id=str(first))
        assert await _asked(client) != first


@pytest.mark.anyio
async def test_a_server_that_does_not_answer_fails_the_command_and_nobody_is_given_its_late_reply(
    redis_url: str, prefix: str
) -> None:
    client = shared_client(redis_url, timeout_s=0.2)
    async with aclosing(client):
        with pytest.raises(RedisTimeoutError):
            await pipeline_of(client).execute(client, "BLPOP", prefix, 0)
        patient = shared_client(redis_url)
        async with aclosing(patient):
            assert isinstance(patient, redis.asyncio.Redis)
            await patient.rpush(prefix, "late")
            await patient.delete(prefix)

        async def answered() -> bool:
            try:
                return bool(await pipeline_of(client).execute(client, "ECHO", "mine") == b"mine")
            except RedisTimeoutError:  # the machine stood still
                return False

        await eventually(answered)


@pytest.mark.anyio
async def test_no_command_waits_behind_unanswered_ones(redis_url: str, prefix: str) -> None:
    """A command of another turn of the loop uses another connection, also when more are in use than are kept."""
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    async with aclosing(client):
        pipeline = pipeline_of(client)
        stuck = []
        for number in range(MOST_KEPT + 2):
            stuck.append(asyncio.ensure_future(pipeline.execute(client, "BLPOP", f"{prefix}{number}", 0)))
            for _ in range(3):
                await asyncio.sleep(0)
        assert await asyncio.wait_for(pipeline.execute(client, "ECHO", "mine"), PATIENCE_S / 2) == b"mine"
        assert isinstance(client, redis.asyncio.Redis)
        for number in range(MOST_KEPT + 2):
            await client.rpush(f"{prefix}{number}", number)
        assert [value for _, value in await asyncio.gather(*stuck)] == [b"%d" % n for n in range(MOST_KEPT + 2)]


@pytest.mark.anyio
async def test_each_reply_of_a_round_trip_has_the_whole_timeout(redis_url: str, prefix: str) -> None:
    """Together they may take longer than that."""
    client = shared_client(redis_url, timeout_s=3.0)
    async with aclosing(client):
        pipeline = pipeline_of(client)
        waits = (pipeline.execute(client, "BLPOP", f"{prefix}{number}", 1.1) for number in range(3))
        assert await asyncio.gather(*waits) == [None] * 3


@pytest.mark.anyio
async def test_with_its_client_all_of_them_are_closed(redis_url: str) -> None:
    client, other = shared_client(redis_url), shared_client(redis_url)
    async with aclosing(other):
        mine = await _asked(client)
        assert mine in await _connected(other)
        await client.aclose()

        async def closed() -> bool:
            return mine not in await _connected(other)

        await eventually(closed)


@pytest.mark.anyio
async def test_no_connection_of_a_small_pool_is_kept(redis_url: str) -> None:
    """Other users of the client get the only connection."""
    client = redis.asyncio.Redis.from_pool(
        redis.asyncio.BlockingConnectionPool.from_url(redis_url, max_connections=1, timeout=20)
    )
    async with aclosing(client):
        for _ in range(3):
            assert await _asked(client)
            assert await client.ping()


@pytest.mark.anyio
async def test_unused_connections_are_given_back(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs for a client that nobody uses any more."""
    monkeypatch.setattr(round_trips, "IDLE_S", 0.01)
    client = shared_client(redis_url)
    async with aclosing(client):
        before = len(asyncio.all_tasks())
        await asyncio.gather(*(_asked(client) for _ in range(100)))
        await eventually(lambda: len(asyncio.all_tasks()) == before)
        assert await _asked(client)


def test_another_event_loop_has_other_connections(redis_url: str) -> None:
    """Streams belong to the loop that opened them, whichever of them runs in between; one that ends gives its own back."""
    client, other = shared_client(redis_url), shared_client(redis_url)

    async def gone(number: int) -> None:
        async def closed() -> bool:
            return number not in await _connected(other)

        await eventually(closed)

    async def end() -> None:
        await client.aclose()
        await other.aclose()

    with asyncio.Runner() as last:
        with asyncio.Runner() as runner:
            first = runner.run(_asked(client))
            second = last.run(_asked(client))
            assert second != first
            assert runner.run(_asked(client)) == first
        last.run(gone(first))
        assert last.run(_asked(client)) == second
        last.run(end())
