"""The Lua scripts beside this file, by name. A script is one file, or fragments and then the file that uses them.

The keys of the index have one hash tag, an entry and its lease too; of one slot each are the keys of every script but
`invalidate`, which takes those of the sketch, the index and of entries together: it is for one server.
"""

from __future__ import annotations

from importlib import resources

from quaestor.redis.clients import SharedClient
from quaestor.redis.scripts import RedisScript


def source(*names: str) -> str:
    """The text of lua/<name>.lua of each, one after the other."""
    folder = resources.files(__package__).joinpath("lua")
    return "".join(folder.joinpath(f"{name}.lua").read_text() for name in names)


def script(client: SharedClient, *names: str, frees: bool = False) -> RedisScript:
    """The script made of lua/<name>.lua of each, ready to be called.

    frees: it may run above the server's memory limit (see `quaestor.redis.scripts.FREES`).
    """
    return RedisScript(client, source(*names), frees=frees)
