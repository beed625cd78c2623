"""Commands to Redis that share a round trip: to each caller as if it had been alone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from quaestor.redis.clients import shared_client
from quaestor.redis.pipelining import pipeline_of
from quaestor.redis.scripts import RedisScript

pytestmark = pytest.mark.anyio


async def _connections(client: redis.asyncio.Redis) -> int:
    return len(await client.client_list())


async def test_each_caller_is_given_its_own_reply_or_error(redis_url: str, prefix: str) -> None:
    """Each of many simultaneous commands gets its reply in its place,
    and a script that fails fails for its caller alone.
    """
    client = shared_client(redis_url)
    async with aclosing(client):
        echo, wrong = RedisScript(client, "return ARGV[1]"), RedisScript(client, "return redis.call('NO SUCH')")
        requests = [echo(keys=[prefix], args=[number]) for number in range(70)]
        *answers, failure = await asyncio.gather(*requests, wrong(keys=[prefix], args=[]), return_exceptions=True)
        assert answers == [b"%d" % number for number in range(70)]
        assert isinstance(failure, ResponseError)
        await client.script_flush()
        assert await asyncio.gather(*(echo(keys=[prefix], args=[number]) for number in range(3))) == [b"0", b"1", b"2"]


async def test_commands_of_one_moment_take_one_connection(redis_url: str, prefix: str) -> None:
    """Twenty scripts at once are one round trip, not twenty."""
    client = shared_client(redis_url)
    async with aclosing(client):
        assert isinstance(client, redis.asyncio.Redis)
        echo = RedisScript(client, "return ARGV[1]")
        await echo(keys=[prefix], args=[0])
        before = await _connections(client)
        await asyncio.gather(*(echo(keys=[prefix], args=[number]) for number in range(20)))
        assert await _connections(client) == before


async def test_a_command_cancelled_before_it_was_sent_is_not_sent(redis_url: str, prefix: str) -> None:
    """Its neighbours are answered, and it has had no effect."""
    client = shared_client(redis_url)
    async with aclosing(client):
        count = RedisScript(client, "return redis.call('INCR', KEYS[1])")
        gone, stays = (asyncio.create_task(count(keys=[prefix], args=[])) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == 1
        with pytest.raises(asyncio.CancelledError):
            await gone


async def test_a_server_that_is_gone_fails_all_that_wait() -> None:
    """Each waiting caller receives an error of the driver's."""
    client = shared_client("redis://127.0.0.1:1/0")
    async with aclosing(client):
        both = (pipeline_of(client).execute(client, "PING") for _ in range(2))
        for failure in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(failure, RedisError | OSError)
