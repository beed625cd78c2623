"""Response store in Redis, shared by every process of a deployment.

An entry is one string value, which expires by itself and is compressed if it is large.

All entries together have a budget of bytes (`redis_budget`), at any lifetimes, because pipelines on the same server need room.

Keys are `quaestor:<deployment>:entry:{<hash of the cache key>}`, so a cluster spreads them. The value holds the cache key,
which is compared at each read: a collision is a miss. While an entry is being fetched, a lease lies beside it in the same slot:
`quaestor:<deployment>:lease:{<the same hash>}`. The lease holds the name of the fetching process, or "solo", and expires by
itself.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress

import anyio.to_thread
from redis.exceptions import RedisError

from quaestor.clock import Clock, system_clock
from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import Guarded, Turn
from quaestor.redis.clients import SharedClient, spans_servers
from quaestor.store import compression, entry_codec
from quaestor.store.redis_budget import DEFAULT_BYTES, RedisBudget
from quaestor.store.scripts import script

MAX_FIELDS_BYTES = 1024 * 1024
"""Bytes that header fields, tags and names may add to a body."""
_BATCH = 500
_AT_ONCE = 50
"""Scripts under way at the same time."""
_TURNS = {b"mine": Turn.MINE, b"theirs": Turn.THEIRS, b"solo": Turn.UNCOALESCED}
_UNREADABLE = 3
"""Largest number of unreadable values under one name that a look-up skips."""
_MOST_TTL_MS = 86_400_000
"""Longest lifetime of an entry in Redis: a day. If the account of the entries is lost, entries unknown to it expire by then."""
_OFF_THE_LOOP_BYTES = 128 * 1024
"""Size from which an entry is compressed in a thread (about 5 ms a megabyte)."""


class RedisStore:
    """Response store in Redis. Implements ResponseStore and Leases.

    client: belongs to the caller, who also closes it; it must not decode responses.
    deployment: stores of different deployments share nothing.
    compress_above_bytes: larger entries are compressed.
    compression_level: Zstandard's, 1..19; 0: never compress.
    max_body_bytes: entries that cannot have a body this small are neither stored nor read.
    budget_bytes: of all entries together; the entries with the least benefit leave.
    telemetry: receives sizes and counts.
    """

    def __init__(
        self,
        client: SharedClient,
        *,
        deployment: str,
        compress_above_bytes: int = 4096,
        compression_level: int = 3,
        max_body_bytes: int = 64 * 1024 * 1024,
        budget_bytes: int = DEFAULT_BYTES,
        telemetry: Telemetry | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.client = client
        self._compress_above_bytes = compress_above_bytes
        self._level = compression_level
        self._max_bytes = max_body_bytes + MAX_FIELDS_BYTES
        self._telemetry = telemetry
        self._prefix = f"quaestor:{deployment}:entry:"
        self._leases = f"quaestor:{deployment}:lease:"
        self.budget = RedisBudget(
            client, deployment=deployment, budget_bytes=budget_bytes, clock=clock, name=self._name
        )
        self._put = script(client, "budget", "budget_put", "store_put")
        self._take = script(client, "lease_take")
        self._renew = script(client, "lease_renew", frees=True)
        self._release = script(client, "lease_release", frees=True)
        self._evict = script(client, "store_evicting", "store_evict", frees=True)

    def name(self, key: str) -> str:
        """Return the name of this cache key's entry in Redis."""
        return self._name(_digest(key))

    def lease_name(self, key: str) -> str:
        """Return the name of the lease of the process that fetches this cache key's entry."""
        return self._lease(_digest(key))

    def _name(self, digest: str) -> str:
        return f"{self._prefix}{{{digest}}}"

    def _lease(self, digest: str) -> str:
        return f"{self._leases}{{{digest}}}"

    async def get(self, key: str) -> CachedResponse | None:
        """See ResponseStore. Returns None also for an unreadable entry."""
        digest = _digest(key)
        try:
            data = await self.client.getrange(self._name(digest), 0, self._max_bytes)
        except (RedisError, OSError) as error:
            raise StoreError(f"reading a response from Redis failed: {error}") from error
        return self._read(data, key, digest)

    def _read(self, data: object, key: str, digest: str) -> CachedResponse | None:
        response = self._decode(data, key)
        if response is not None:
            self.budget.count_hits(digest)
        return response

    def used(self, key: str, hits: int) -> None:
        """Note hits of an entry in memory. No I/O."""
        self.budget.count_hits(_digest(key), hits)

    def _decode(self, data: object, key: str) -> CachedResponse | None:
        entry = compression.unpack(data, max_bytes=self._max_bytes) if isinstance(data, bytes) else None
        response = None if entry is None else entry_codec.decode(entry)
        return response if response is not None and response.key == key else None

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        """See ResponseStore. Refuses an entry that is too large, or of less benefit than all that would have to leave."""
        if ttl_ms <= 0:
            return
        data = await self._encode(response)
        if data is None:
            return
        try:
            await self._stored(response, data, min(ttl_ms, _MOST_TTL_MS))
        except (RedisError, OSError) as error:
            raise StoreError(f"writing a response to Redis failed: {error}") from error

    async def _stored(self, response: CachedResponse, data: bytes, ttl_ms: int) -> None:
        """Enter an entry into the account and store it, in one script where both are on one server."""
        digest = _digest(response.key)
        name = self._name(digest)
        guard = entry_codec.guard(response.registrations)
        arguments = self.budget.arguments(
            digest, size_bytes=len(data), cost_ms=response.cost_ms, guard=guard, ttl_ms=ttl_ms
        )
        if spans_servers(self.client):
            left = await self.budget.account(arguments)
            if digest in left:
                await self.client.unlink(name)
            else:
                await self._set_accounted(name, digest, data, ttl_ms, guard)
        else:
            reply = await self._put(keys=[name, *self.budget.keys], args=[data, ttl_ms, *arguments])
            left = [digest_left.decode() for digest_left in reply]
        others = [self._name(stored_digest) for stored_digest in left if stored_digest != digest]
        for start in range(0, len(others), _AT_ONCE):
            await asyncio.gather(*(self.client.unlink(name) for name in others[start : start + _AT_ONCE]))
        if self._telemetry is not None:
            self._telemetry.stores.shared_evictions.inc(len(others))
            if digest in left:
                self._telemetry.stores.refused.labels("redis", "demand").inc()

    async def _set_accounted(self, name: str, digest: str, data: bytes, ttl_ms: int, guard: bytes) -> None:
        """Store an entry that is in the account, which lies on another server.

        In between another process may have decided that the entry must leave, and removed it before it was stored. The
        account is therefore checked again. If a process dies in between, too much or too little is counted, for a day at most.
        """
        try:
            await self.client.set(name, data, px=ttl_ms)
        except (RedisError, OSError):
            with suppress(RedisError, OSError):
                await self.budget.forget([(digest, guard)])
            raise
        if not await self.budget.knows(digest):
            await self.client.unlink(name)

    async def _encode(self, response: CachedResponse) -> bytes | None:
        """Return the entry's bytes, compressed if it is large; None if it is too large."""
        entry = data = entry_codec.encode(response)
        if len(entry) > self._max_bytes:
            if self._telemetry is not None:
                self._telemetry.requests.uncacheable.labels("too-large").inc()
                self._telemetry.stores.refused.labels("redis", "too-large").inc()
            return None
        if self._level and len(entry) > self._compress_above_bytes:
            if len(entry) > _OFF_THE_LOOP_BYTES:
                data = await anyio.to_thread.run_sync(lambda: compression.pack(entry, level=self._level))
            else:
                data = compression.pack(entry, level=self._level)
        if self._telemetry is not None:
            self._telemetry.stores.stored_bytes.labels("plain").inc(len(entry))
            self._telemetry.stores.stored_bytes.labels("sent").inc(len(data))
        return data

    async def evict(self, dead: Sequence[Guarded]) -> None:
        """See ResponseStore. Some entries may have been evicted when StoreError is raised."""
        size = 1 if spans_servers(self.client) else _BATCH  # on a cluster each entry has a slot of its own
        batches = [dead[start : start + size] for start in range(0, len(dead), size)]
        try:
            for start in range(0, len(batches), _AT_ONCE):
                done = [self._evict_batch(batch) for batch in batches[start : start + _AT_ONCE]]
                for failure in await asyncio.gather(*done, return_exceptions=True):
                    if failure is not None:
                        raise failure
        except (RedisError, OSError) as error:
            raise StoreError(f"evicting responses from Redis failed: {error}") from error

    async def _evict_batch(self, batch: Sequence[Guarded]) -> None:
        guards = [entry_codec.guard(entry.registrations) for entry in batch]
        await self._evict(keys=[self.name(entry.key) for entry in batch], args=[*entry_codec.GUARD_RANGE, *guards])
        await self.budget.forget((_digest(entry.key), guard) for entry, guard in zip(batch, guards, strict=True))

    async def take(
        self, key: str, *, holder: str, lease_ms: int, passing: CachedResponse | None = None
    ) -> CachedResponse | Turn:
        """See Leases. An unreadable entry is skipped."""
        passed = None if passing is None else entry_codec.identity(passing)
        arguments: list[str | int | bytes] = [holder, lease_ms, self._max_bytes, *entry_codec.IDENTITY_RANGE]
        digest = _digest(key)
        keys = [self._name(digest), self._lease(digest)]
        try:
            for _ in range(_UNREADABLE):
                passes: list[int | bytes] = [0, b""] if passed is None else [1, passed]
                is_entry, value = await self._take(keys=keys, args=[*arguments, *passes])
                if not is_entry:
                    return _TURNS[value]
                response = self._read(value, key, digest)
                if response is not None:
                    return response
                first, last = entry_codec.IDENTITY_RANGE
                passed = value[first : last + 1]
        except (RedisError, OSError) as error:
            raise StoreError(f"taking the lease of a response in Redis failed: {error}") from error
        return Turn.UNCOALESCED

    async def renew(self, key: str, *, holder: str, lease_ms: int) -> None:
        """See Leases."""
        try:
            await self._renew(keys=[self.lease_name(key)], args=[holder, lease_ms])
        except (RedisError, OSError) as error:
            raise StoreError(f"renewing a lease in Redis failed: {error}") from error

    async def release(self, key: str, *, holder: str, uncoalesced_ms: int) -> None:
        try:
            await self._release(keys=[self.lease_name(key)], args=[holder, uncoalesced_ms])
        except (RedisError, OSError) as error:
            raise StoreError(f"releasing a lease in Redis failed: {error}") from error

    async def clear(self) -> None:
        """Remove every entry of this deployment. O(keys in the server)."""
        try:
            batch: list[bytes] = []
            async for name in self.client.scan_iter(match=f"{_literal(self._prefix)}*", count=_BATCH):
                batch.append(name)
                if len(batch) >= _BATCH:
                    await self.client.unlink(*batch)
                    batch.clear()
            if batch:
                await self.client.unlink(*batch)
            await self.client.unlink(*self.budget.keys)
        except (RedisError, OSError) as error:
            raise StoreError(f"clearing the responses in Redis failed: {error}") from error


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def _literal(text: str) -> str:
    """Return a glob pattern that matches only this text."""
    return "".join(f"\\{c}" if c in "*?[]\\^-" else c for c in text)
