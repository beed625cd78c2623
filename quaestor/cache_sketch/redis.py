"""The Cache Sketch in Redis, shared by every process of a deployment. Each operation is one script, and therefore atomic.

Keys, all with the hash tag `{<deployment>:sketch}` (one slot of a cluster), and all passed to the scripts as KEYS:

    reads      zset    key, scored with the latest expiry of a copy; and '' scored inf, so that the key always exists.
    stale      zset    key, scored with its removal from the filter; and ''.
    counters   string  one u32 per position, of the union and then of each partition.
    bits       string  the flat filters as they are sent, in the same order. A snapshot is a sweep and a GETRANGE.
    meta       hash    untracked_until_ms, saturated_until_ms; latest_ms: of all callers' clocks; geometry; off: the kill switch.
                       removed: number of keys removed so far; partitions: number of partitions.
                       partition:<token>: number of its filter; keys:<number>: number of keys in the filter with that number.
                       caller:<id>: number of calls of a process, and the time of the last.
Redis may lose keys: by a restart without its data, by an older snapshot or a lagging replica, or by eviction under memory
pressure. The server then no longer knows which copies are alive. Each process notices this in its next call, because the server
has counted fewer of its calls than it answered. The same script then saturates the sketch: everything is reported as stale for as
long as a copy can live. A new process cannot distinguish a lost sketch from a new one. With `distrust_new`, every new sketch
is therefore saturated for that long, also if Redis lost its data while no process ran.
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
"""Most writes of one script, so that each script takes a few milliseconds. A longer list of writes takes several scripts."""

_LOST, _BEGUN = 1, 2


class SketchScripts:
    """Scripts of the sketch, one for each operation."""

    def __init__(self, client: SharedClient) -> None:
        self.report_read = RedisScript(client, _source("state", "report_read"))
        # The other scripts may run above the server's memory limit: they are needed most while the server has problems.
        self.report_write = RedisScript(client, _source("state", "writing", "report_write"), frees=True)
        self.saturate = RedisScript(client, _source("state", "saturate"), frees=True)
        self.snapshot = RedisScript(client, _source("state", "snapshot"), frees=True)
        self.status = RedisScript(client, _source("state", "status"), frees=True)
        self.switch = RedisScript(client, _source("state", "switch"), frees=True)


class RedisCacheSketch:
    """Implements CacheSketch in Redis.

    client: belongs to the caller, who also closes it. Responses must not be decoded. Its pool should be a BlockingConnectionPool,
        because the ordinary pool raises when more calls run than it has connections.
    deployment: name of the deployment; sketches of different deployments share nothing.
    copies_live_ms: longest life of a copy after it was handed out (the largest TTL and its slack).
    geometry: shape of the filters, the same in all processes of a deployment. A process with another geometry empties the sketch.
    distrust_new: whether a sketch that is new here may have been lost.
    telemetry: receives a failure when state was lost.

    Raises ConfigurationError for a client that decodes responses.
    """

    epoch = ""
    """None: the sketch outlives processes."""

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
        self._scripts = SketchScripts(client)

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        """See CacheSketch."""
        self._latest_ms = max(self._latest_ms, expires_at_ms)
        await self._call(self._scripts.report_read, now_ms, [key_of(resource), expires_at_ms, self._limits.max_reads])

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        """See CacheSketch. Atomic for each 200 resources."""
        lifetimes_ms: list[int] = []
        for start in range(0, max(1, len(resources)), _WRITES_A_SCRIPT):
            keys = [key_of(resource) for resource in resources[start : start + _WRITES_A_SCRIPT]]
            lifetimes_ms += await self._call(self._scripts.report_write, now_ms, [self._limits.max_stale, *keys])
        return lifetimes_ms

    def joined(self, source: str) -> RedisScript:
        """Script for run() that does what report_write does and more, in one round trip.

        source: Lua that may call written(key, max_stale). Its KEYS follow the sketch's five, and its ARGV the sketch's ten, of
            which max_stale is the last. Its reply is {calls, lost, ...}. The script may run above the server's memory limit.
        """
        return RedisScript(self.client, _source("state", "writing") + source, frees=True)

    async def run(
        self, script: RedisScript, *, keys: Sequence[str], arguments: Sequence[str | bytes | int], now_ms: int
    ) -> list[Any]:
        """Reply of a joined script without {calls, lost}. Raises SketchError."""
        return await self._call(script, now_ms, [self._limits.max_stale, *arguments], keys=keys)

    async def saturate(self, until_ms: int, *, earlier: bool = False) -> None:
        """See CacheSketch."""
        await self._call(self._scripts.saturate, self._now_ms, [until_ms])

    async def state(self, *, now_ms: int) -> SketchState:
        """See CacheSketch."""
        off, removed, *tokens = await self._call(self._scripts.status, now_ms, [])
        return SketchState(off=bool(off), partitions=frozenset(token.decode() for token in tokens), removed=removed)

    async def switch(self, *, off: bool) -> None:
        """See CacheSketch."""
        await self._call(self._scripts.switch, self._now_ms, [int(off)])

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        """See CacheSketch."""
        while True:
            reply = await self._call(self._scripts.snapshot, now_ms, [partition], sweep=self._limits.snapshot_sweep)
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
            self._caller, self._answered = (
                _new_caller(),
                0,
            )  # its copies are dead, and Redis may have removed the old id
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
