"""Lua scripts on the shared Redis, by their digest: each is atomic and one round trip, shared with those of other requests that
come in the same moment, on one server as on a cluster.

Every key that a script touches is passed to it, and on a cluster all of them must have one slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import NoScriptError

from quaestor.redis.clients import SharedClient
from quaestor.redis.pipelining import pipeline_of

FREES: Final = "#!lua flags=allow-oom\n"
"""First line of a script that may run while the server is above its memory limit, because in the end it frees memory, or is
needed most when something is wrong: were it refused, nothing dead would ever make room. Needs Redis 7 or any Valkey."""

Argument = str | bytes | int


class RedisScript:
    """A script on the shared Redis.

    Sent to the server that has its keys when that one does not know it yet: the driver's own object would send it to all
    servers of a cluster, and fail if any of them is away."""

    def __init__(self, client: SharedClient, source: str, *, frees: bool = False) -> None:
        self._client = client
        self._pipeline = pipeline_of(client)
        self._source = (FREES if frees else "") + source
        self._digest = hashlib.sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Its reply. Raises RedisError, OSError."""
        try:
            return await self._pipeline.execute(self._client, "EVALSHA", self._digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._pipeline.execute(self._client, "EVAL", self._source, len(keys), *keys, *args)
