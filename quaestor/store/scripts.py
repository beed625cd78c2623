"""The Lua scripts beside this file, by name: one atomic round trip each."""

from __future__ import annotations

from importlib import resources

from redis.asyncio import Redis
from redis.commands.core import AsyncScript


def script(client: Redis, name: str) -> AsyncScript:
    """lua/<name>.lua, sent to the server on first use and called by its digest from then on."""
    return client.register_script(resources.files(__package__).joinpath("lua", f"{name}.lua").read_text())
