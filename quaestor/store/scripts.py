"""Lua scripts beside this file, by name. A script is one file, or fragments and then the file that uses them.

The keys of the index have one hash tag, and so have an entry and its lease. The keys of every script have one slot, except for
`invalidate`. That script takes keys of the sketch, the index and of entries together, so it is for one server.
"""

from __future__ import annotations

from importlib import resources

from quaestor.redis.clients import SharedClient
from quaestor.redis.scripts import RedisScript


def source(*names: str) -> str:
    """Return the text of lua/<name>.lua of each name, one after the other."""
    folder = resources.files(__package__).joinpath("lua")
    return "".join(folder.joinpath(f"{name}.lua").read_text() for name in names)


def script(client: SharedClient, *names: str, frees: bool = False) -> RedisScript:
    """Return the script made of lua/<name>.lua of each name, ready to be called.

    frees: the script may run above the server's memory limit (see `quaestor.redis.scripts.FREES`).
    """
    return RedisScript(client, source(*names), frees=frees)
