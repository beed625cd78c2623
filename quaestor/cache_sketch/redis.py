"""The Cache Sketch in Redis, shared by every process of a deployment: one script per operation, so each is atomic.

Keys, all with the hash tag `{<deployment>:sketch}` (one slot of a cluster) and all named to the scripts:

    reads      zset    key, scored with the latest expiry of a copy; and '' scored inf, so that the key always exists
    stale      zset    key, scored with its removal from the filter; and ''
    counters   string  one u32 per position, of the union and then of each partition
    bits       string  the flat filters as they are sent, in the same order: a snapshot is a sweep and a GETRANGE
    meta       hash    untracked_until_ms, saturated_until_ms; latest_ms: of all callers' clocks; geometry; off: the kill switch;
                       removed: keys so far; partitions: how many; partition:<token>: the number of its filter; keys:<number>: in
                       it; caller:<id>: how many calls a process made, and when last

A server that was restarted without its data, that went back to an older snapshot or a lagging replica, or that threw some of
the keys away under memory pressure, no longer knows which copies are alive. Each process notices, in its next call, that
the server counted fewer of its calls than it answered, and the same script then saturates the sketch (everything is reported
as stale) for as long as a copy can live. A process that is new itself cannot tell a lost sketch from a new one: so with
`distrust_new` every new one is saturated for as long, also if Redis lost its data while no process ran.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from importlib import resources
from typing import Any

from redis.exceptions import RedisError

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.limits import Limits
from quaestor.cache_sketch.partitions import key_of
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.errors import ConfigurationError, SketchError
from quaestor.observability.event_log import EventLog
from quaestor.ports import SketchState
from quaestor.redis.clients import SharedClient
from quaestor.redis.scripts import RedisScript

_WRITES_A_SCRIPT = 200
"""Keeps each script to a few milliseconds; a longer list of writes is several scripts."""

_LOST, _BEGUN = 1, 2


class RedisCacheSketch:
    """Implements CacheSketch in Redis.

    client: belongs to the caller, who also closes it; it must not decode responses, and its pool should be a
        BlockingConnectionPool: the ordinary one raises when more calls are under way than it has connections.
    deployment: sketches of different deployments share nothing.
    copies_live_ms: no copy lives longer than this after it was handed out (the largest TTL and its slack).
    geometry: shape of the filters, the same in all processes of a deployment: whoever comes with another one begins anew.
    distrust_new: a sketch that is begun here may have been lost.
    telemetry: told of lost state.

    Raises ConfigurationError for a client that decodes responses.
    """

    epoch = ""
    """It outlives processes."""

    def __init__(
        self,
        client: SharedClient,
        *,
        deployment: str,
        copies_live_ms: int = 3_610_000,
        geometry: Geometry = DEFAULT,
        limits: Limits | None = None,
        telemetry: EventLog | None = None,
        distrust_new: bool = False,
    ) -> None:
        if client.get_connection_kwargs().get("decode_responses"):
            raise ConfigurationError(
                "the Cache Sketch needs a Redis client with decode_responses=False: digests are bytes"
            )
        self.geometry = geometry
        prefix = f"quaestor:{{{deployment}:sketch}}:"
        self.keys = [prefix + name for name in ("reads", "stale", "counters", "bits", "meta")]
        self._limits = limits or Limits()
        self._copies_live_ms = copies_live_ms
        self._latest_ms = 0
        self._now_ms = 0
        self._telemetry = telemetry
        self._distrust_new = distrust_new
        self._caller, self._answered = _new_caller(), 0
        self.client = client
        self._report_read = RedisScript(client, _source("state", "report_read"))
        # The others may run above the server's memory limit: they are needed most when something is wrong.
        self._report_write = RedisScript(client, _source("state", "writing", "report_write"), frees=True)
        self._saturate = RedisScript(client, _source("state", "saturate"), frees=True)
        self._snapshot = RedisScript(client, _source("state", "snapshot"), frees=True)
        self._status = RedisScript(client, _source("state", "status"), frees=True)
        self._switch = RedisScript(client, _source("state", "switch"), frees=True)

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        """See CacheSketch."""
        self._latest_ms = max(self._latest_ms, expires_at_ms)
        await self._call(self._report_read, now_ms, [key_of(resource), expires_at_ms, self._limits.max_reads])

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        """See CacheSketch. Atomic for each 200 resources."""
        lifetimes_ms: list[int] = []
        for start in range(0, max(1, len(resources)), _WRITES_A_SCRIPT):
            keys = [key_of(resource) for resource in resources[start : start + _WRITES_A_SCRIPT]]
            lifetimes_ms += await self._call(self._report_write, now_ms, [self._limits.max_stale, *keys])
        return lifetimes_ms

    def joined(self, source: str) -> RedisScript:
        """Script for run() that does what report_write does and more, in one round trip.

        source: Lua that may call written(key, max_stale); its KEYS follow the sketch's five, its ARGV the sketch's
            ten, of which the last is max_stale; its reply is {calls, lost, ...}. It may run above the server's
            memory limit.
        """
        return RedisScript(self.client, _source("state", "writing") + source, frees=True)

    async def run(
        self, script: RedisScript, *, keys: Sequence[str], arguments: Sequence[str | bytes | int], now_ms: int
    ) -> list[Any]:
        """Reply of a joined script without {calls, lost}. Raises SketchError."""
        return await self._call(script, now_ms, [self._limits.max_stale, *arguments], keys=keys)

    async def saturate(self, until_ms: int, *, earlier: bool = False) -> None:
        """See CacheSketch."""
        await self._call(self._saturate, self._now_ms, [until_ms])

    async def state(self, *, now_ms: int) -> SketchState:
        """See CacheSketch."""
        off, removed, *tokens = await self._call(self._status, now_ms, [])
        return SketchState(off=bool(off), partitions=frozenset(token.decode() for token in tokens), removed=removed)

    async def switch(self, *, off: bool) -> None:
        """See CacheSketch."""
        await self._call(self._switch, self._now_ms, [int(off)])

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        """See CacheSketch."""
        while True:
            reply = await self._call(self._snapshot, now_ms, [partition], sweep=self._limits.snapshot_sweep)
            if len(reply) == 1:
                return wire_format.saturated(self.geometry)
            if reply:
                keys, bits = reply
                return wire_format.encode(self.geometry, keys=keys, bits=bits.ljust(self.geometry.size_bytes, b"\0"))

    async def _call(
        self,
        script: RedisScript,
        now_ms: int,
        arguments: Sequence[str | bytes | int],
        *,
        sweep: int | None = None,
        keys: Sequence[str] = (),
    ) -> list[Any]:
        if now_ms > max(self._now_ms + 2 * self._copies_live_ms, self._latest_ms):
            self._caller, self._answered = _new_caller(), 0  # its copies are dead, and it may have been forgotten
        self._now_ms = max(self._now_ms, now_ms)
        caller = self._caller
        saturate_until_ms = max(self._now_ms + self._copies_live_ms, self._latest_ms)
        common: list[str | bytes | int] = [
            now_ms,
            caller,
            self._answered,
            saturate_until_ms,
            self.geometry.slices,
            self.geometry.bits_per_slice,
            self._limits.sweep if sweep is None else sweep,
            now_ms - 3 * self._copies_live_ms,
            int(self._distrust_new),
        ]
        try:
            answer: list[Any] = await script(keys=[*self.keys, *keys], args=[*common, *arguments])
        except (RedisError, OSError) as error:
            raise SketchError(f"the Cache Sketch in Redis did not answer: {error}") from error
        calls, lost, *reply = answer
        if caller == self._caller:
            if lost == _LOST:
                self._lost(saturate_until_ms)
            else:
                self._answered = max(self._answered, calls)
            if lost == _BEGUN and self._telemetry is not None:
                self._telemetry.event("sketch.begun", dark_until_ms=saturate_until_ms)
        return reply

    def _lost(self, saturate_until_ms: int) -> None:
        self._caller, self._answered = _new_caller(), 0
        if self._telemetry is not None:
            self._telemetry.failure(
                "sketch", "sketch.state_lost", "Redis lost the sketch's state", dark_until_ms=saturate_until_ms
            )


def _new_caller() -> str:
    return secrets.token_hex(8)


def _source(*names: str) -> str:
    folder = resources.files(__package__).joinpath("lua")
    return "".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
