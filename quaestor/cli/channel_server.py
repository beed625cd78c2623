"""Server of `quaestor channels run --listen`: posts to feeds, and results for brokers and subscribers."""

from __future__ import annotations

import asyncio

import uvicorn
from starlette.applications import Starlette

from quaestor.channels.running import RunningChannels
from quaestor.errors import ConfigurationError
from quaestor.live.results.endpoint import channel_results


def address_of(text: str) -> tuple[str, int]:
    """Return host and port. Raises ConfigurationError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"{text[:80]!r} is no address: write HOST:PORT, like 127.0.0.1:8070")
    return host, int(port)


async def served(running: RunningChannels, host: str, port: int) -> None:
    """Run channels, feeds and the server until a signal ends the server."""
    app = Starlette(routes=[*channel_results(running.results), *running.posts.routes()])
    server = uvicorn.Server(
        uvicorn.Config(app, host=host, port=port, lifespan="off", log_level="warning", access_log=False)
    )
    async with asyncio.TaskGroup() as tasks:
        kept = [tasks.create_task(running.keep_running()), tasks.create_task(running.posts.keep_running())]
        await server.serve()
        for task in kept:
            task.cancel()
