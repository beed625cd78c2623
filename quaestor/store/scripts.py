"""The Lua scripts beside this file, by name: one atomic round trip each.

A script is one file, or fragments and then the file that uses them. Every key a script touches is passed to it. Those of the
index and of the sketch carry a hash tag each, entries none: a Redis Cluster, which is not supported yet, would let every
script run but `strike`, which would have to become one script a slot.
"""

from __future__ import annotations

from importlib import resources

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

FREES = "#!lua flags=allow-oom\n"
"""First line of a script that may run while the server is above its memory limit, because in the end it frees memory: were
it refused, nothing dead would ever make room. Needs Redis 7 or any Valkey."""


def source(*names: str) -> str:
    """lua/<name>.lua of each, one after the other."""
    folder = resources.files(__package__).joinpath("lua")
    return "".join(folder.joinpath(f"{name}.lua").read_text() for name in names)


def script(client: Redis, *names: str, frees: bool = False) -> AsyncScript:
    """Sent to the server on first use and called by its digest from then on."""
    return client.register_script((FREES if frees else "") + source(*names))
