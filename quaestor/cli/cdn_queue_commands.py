"""Commands of the group `quaestor cdn queue`: purges on their way to CDNs, and purges that a CDN refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from quaestor.cli.command_settings import Deployment, LayerUrl, command_settings
from quaestor.cli.plain_text import line
from quaestor.errors import ConfigurationError

if TYPE_CHECKING:
    from quaestor.purge_ports import PurgeOutbox

commands = typer.Typer(pretty_exceptions_enable=False, no_args_is_help=True, help="Purges in the outbox.")
"""Commands of the group `quaestor cdn queue`."""

QueueName = Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="As `stats` names it; default: all.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]


@commands.command("stats")
def stats(
    queue: QueueName = None, redis_url: LayerUrl = None, deployment: Deployment = None, as_json: AsJson = False
) -> None:
    """Show how many purges are open and dead, and how old the oldest open one is. That CDN may serve answers stale for so long.

    Exit status 1: there are dead letters.
    """

    async def show(outbox: PurgeOutbox, name: str) -> int:
        size = await outbox.size(name)
        age_s = None if size.oldest_ms is None else max(0, _now_ms() - size.oldest_ms) / 1_000
        if as_json:
            fields = {"waiting": size.waiting, "taken": size.taken, "dead": size.dead, "oldest_s": age_s}
            print(json.dumps({"queue": name} | fields))
        else:
            age = "nothing is open" if age_s is None else f"the oldest is {age_s:.1f} s old"
            print(line(f"{name}: {size.waiting} waiting, {size.taken} taken, {size.dead} dead; {age}"))
        return size.dead

    raise typer.Exit(1 if _each(queue, redis_url, deployment, show) else 0)


@commands.command("ls")
def ls(
    queue: QueueName = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters instead of open purges.")] = False,
    count: Annotated[int, typer.Option(min=1, help="At most so many of each queue.")] = 100,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    as_json: AsJson = False,
) -> None:
    """List open purges, the oldest first, or dead letters, the latest first."""

    async def show(outbox: PurgeOutbox, name: str) -> int:
        rows: list[dict[str, object]]
        if dead:
            letters = await outbox.dead(name, count=count)
            rows = [{"purge": letter.member[1:], "at_ms": letter.at_ms, "reason": letter.reason} for letter in letters]
        else:
            purges = await outbox.waiting(name, count=count)
            rows = [
                {"purge": purge.member[1:], "put_at_ms": purge.put_at_ms, "attempts": purge.attempts}
                for purge in purges
            ]
        for row in rows:
            described = "  ".join(f"{field}={value}" for field, value in row.items() if field != "purge")
            print(json.dumps({"queue": name} | row) if as_json else line(f"{name}: {row['purge']}  {described}"))
        return len(rows)

    _each(queue, redis_url, deployment, show)


@commands.command("replay")
def replay(queue: QueueName = None, redis_url: LayerUrl = None, deployment: Deployment = None) -> None:
    """Send dead letters again, after the cause of the CDN's refusal was fixed."""

    async def again(outbox: PurgeOutbox, name: str) -> int:
        number = await outbox.replay(name, now_ms=_now_ms())
        print(line(f"{name}: {number} purges wait again"))
        return number

    _each(queue, redis_url, deployment, again)


@commands.command("drop")
def drop(queue: QueueName = None, redis_url: LayerUrl = None, deployment: Deployment = None) -> None:
    """Delete dead letters. Open purges cannot be dropped, because the answers that they concern would stay stale."""

    async def forget(outbox: PurgeOutbox, name: str) -> int:
        number = await outbox.drop(name)
        print(line(f"{name}: {number} dead letters dropped"))
        return number

    _each(queue, redis_url, deployment, forget)


def _each(
    queue: str | None,
    redis_url: str | None,
    deployment: str | None,
    act: Callable[[PurgeOutbox, str], Awaitable[int]],
) -> int:
    """Act on one queue or on all, and return the sum of the results. Raises ConfigurationError, StoreError."""

    async def run() -> int:
        async with _outbox(redis_url, deployment) as outbox:
            known = await outbox.queues()
            if queue is not None and queue not in known:
                raise ConfigurationError(f"there is no queue {queue!r}; known are: {', '.join(known) or 'none'}")
            return sum([await act(outbox, name) for name in (known if queue is None else [queue])])

    return asyncio.run(run())


@asynccontextmanager
async def _outbox(redis_url: str | None, deployment: str | None) -> AsyncIterator[PurgeOutbox]:
    from quaestor.redis.clients import shared_client
    from quaestor.store.outbox_redis import RedisOutbox

    settings = command_settings(redis_url=redis_url, deployment=deployment)
    if settings.redis_url is None:
        raise ConfigurationError(
            "no Redis is named (--redis-url or REDIS_URL): without one the outbox lies in the memory of the application"
        )
    client = shared_client(settings.redis_url, timeout_s=5.0)
    try:
        yield RedisOutbox(client, deployment=settings.scope)
    finally:
        await client.aclose()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
