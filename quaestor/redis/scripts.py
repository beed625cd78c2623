"""Lua scripts on the shared Redis, by their digest: each is atomic and one round trip, on one server as on a cluster.

The round trip is shared with commands of other requests at the same moment. Every key that a script touches is passed to it,
and on a cluster all of them must have one slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import NoScriptError

from quaestor.redis.clients import SharedClient
from quaestor.redis.pipelining import pipeline_of

FREES: Final = "#!lua flags=allow-oom\n"
"""First line of a script that may run while the server is above its memory limit. Such a script frees memory in the end, or is
needed most during a fault. If it were refused, dead entries would never make room. Needs Redis 7 or any Valkey."""

Argument = str | bytes | int


class RedisScript:
    """Script on the shared Redis.

    A script unknown to the server of its keys is sent to that server. The driver's own object would send it to all servers
    of a cluster, and fail if any of them is away."""

    def __init__(self, client: SharedClient, source: str, *, frees: bool = False) -> None:
        self._client = client
        self._pipeline = pipeline_of(client)
        self._source = (FREES if frees else "") + source
        self._digest = hashlib.sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Return the script's reply. Raises RedisError, OSError."""
        try:
            return await self._pipeline.execute(self._client, "EVALSHA", self._digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._pipeline.execute(self._client, "EVAL", self._source, len(keys), *keys, *args)
