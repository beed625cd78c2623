"""Size of the shared store, for the metrics: measured every few seconds; no request waits for it."""

from __future__ import annotations

import asyncio

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import SharedClient
from quaestor.store.index_redis import RedisIndex

EVERY_S = 5.0
"""Pause between two measurements."""


async def measure(client: SharedClient, index: RedisIndex) -> tuple[int, int]:
    """Return the number of entries in the dependency index, and the bytes used in the server, for any purpose.

    On a cluster the bytes are those of all primaries.

    Raises RedisError, OSError.
    """
    entries = await client.hlen(index.keys[0])
    if isinstance(client, RedisCluster):
        servers = list((await client.info("memory", target_nodes=RedisCluster.PRIMARIES)).values())
    else:
        servers = [await client.info("memory")]
    return int(entries), sum(int(facts.get("used_memory", 0)) for facts in servers)


async def keep_measuring(client: SharedClient, index: RedisIndex, telemetry: Telemetry) -> None:
    """Measure until cancelled. While the server is away the last values stay."""
    while True:
        try:
            entries, used_bytes = await measure(client, index)
        except (RedisError, OSError) as error:
            telemetry.failure("store", "store.not_measured", error)
        else:
            telemetry.stores.entries.labels("redis").set(entries)
            telemetry.stores.bytes.labels("redis").set(used_bytes)
        await asyncio.sleep(EVERY_S)
