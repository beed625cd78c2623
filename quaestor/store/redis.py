"""Responses in Redis, shared by every process of a deployment: one string value per entry, expiring by itself.

Keys are `quaestor:<deployment>:entry:<hash of the cache key>`, without a hash tag, so that a cluster spreads them. The cache key
is in the value and compared on reading: a collision is a miss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.ports import Guarded
from quaestor.store import entry_codec
from quaestor.store.scripts import script

_BATCH = 500


class RedisStore:
    """Implements ResponseStore. The client belongs to the caller, who also closes it; it must not decode responses."""

    def __init__(self, client: Redis, *, deployment: str) -> None:
        self._client = client
        self._prefix = f"quaestor:{deployment}:entry:"
        self._evict = script(client, "store_evicting", "store_evict", frees=True)

    def name(self, key: str) -> str:
        """What the entry of this cache key is called in Redis."""
        return self._prefix + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()

    async def get(self, key: str) -> CachedResponse | None:
        try:
            data = await self._client.get(self.name(key))
        except (RedisError, OSError) as error:
            raise StoreError(f"reading a response from Redis failed: {error}") from error
        response = entry_codec.decode(data) if isinstance(data, bytes) else None
        return response if response is not None and response.key == key else None

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        if ttl_ms <= 0:
            return
        try:
            await self._client.set(self.name(response.key), entry_codec.encode(response), px=ttl_ms)
        except (RedisError, OSError) as error:
            raise StoreError(f"writing a response to Redis failed: {error}") from error

    async def evict(self, dead: Sequence[Guarded]) -> None:
        try:
            for start in range(0, len(dead), _BATCH):
                batch = dead[start : start + _BATCH]
                guards = [entry_codec.guard(one.registrations) for one in batch]
                await self._evict(keys=[self.name(one.key) for one in batch], args=[*entry_codec.GUARD_RANGE, *guards])
        except (RedisError, OSError) as error:
            raise StoreError(f"evicting responses from Redis failed: {error}") from error

    async def clear(self) -> None:
        """Remove every entry of this deployment. O(keys in the server)."""
        try:
            batch: list[bytes] = []
            async for name in self._client.scan_iter(match=f"{_literal(self._prefix)}*", count=_BATCH):
                batch.append(name)
                if len(batch) >= _BATCH:
                    await self._client.unlink(*batch)
                    batch.clear()
            if batch:
                await self._client.unlink(*batch)
        except (RedisError, OSError) as error:
            raise StoreError(f"clearing the responses in Redis failed: {error}") from error


def _literal(text: str) -> str:
    """A glob pattern that matches this text alone."""
    return "".join(f"\\{c}" if c in "*?[]\\^-" else c for c in text)
