"""Kept connections: no different, to whoever sends commands, from those that the pool of the driver lends anew."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import redis.asyncio
from redis.exceptions import TimeoutError as RedisTimeoutError

from quaestor.redis.clients import SharedClient, shared_client
from quaestor.redis.kept_connections import MOST_KEPT
from quaestor.redis.pipelining import pipeline_of


async def _asked(client: SharedClient) -> int:
    """The number of the connection that a command was sent on."""
    return int(await pipeline_of(client).execute(client, "CLIENT", "ID"))


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
        assert isinstance(client, redis.asyncio.Redis)
        await client.rpush(prefix, "late")
        assert await pipeline_of(client).execute(client, "ECHO", "mine") == b"mine"
        await client.delete(prefix)


@pytest.mark.anyio
async def test_what_a_whole_batch_takes_is_not_held_against_its_last_reply(redis_url: str, prefix: str) -> None:
    """Each reply has the whole timeout: together they may take longer than that."""
    client = shared_client(redis_url, timeout_s=1.0)
    async with aclosing(client):
        pipeline = pipeline_of(client)
        waits = (pipeline.execute(client, "BLPOP", f"{prefix}{number}", 0.4) for number in range(4))
        assert await asyncio.gather(*waits) == [None] * 4


@pytest.mark.anyio
async def test_with_its_client_all_of_them_are_closed(redis_url: str, prefix: str) -> None:
    client, other = shared_client(redis_url), shared_client(redis_url)
    async with aclosing(other):
        pipeline = pipeline_of(client)
        tasks = []
        for number in range(MOST_KEPT + 3):  # each in a moment of its own, all at once under way
            tasks.append(asyncio.create_task(pipeline.execute(client, "BLPOP", f"{prefix}{number}", 0.2)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        mine = await _asked(client)
        await client.aclose()
        assert isinstance(other, redis.asyncio.Redis)
        assert mine not in {int(one["id"]) for one in await other.client_list()}


def test_another_event_loop_has_other_connections(redis_url: str) -> None:
    """Streams belong to the loop that opened them."""
    client = shared_client(redis_url)

    async def asked_at_last() -> int:
        async with aclosing(client):
            return await _asked(client)

    with asyncio.Runner() as one, asyncio.Runner() as another:
        first = one.run(_asked(client))
        assert another.run(asked_at_last()) != first
        one.run(asyncio.sleep(0))
