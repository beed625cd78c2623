"""Hash tags of a Redis Cluster: names of data that belong together always lie in one slot.

On one server the event layer reads several pipelines at once. No other request has keys of several slots, and a
cluster's event layer does not make this one. The conformance tests run on a cluster, which refuses requests with keys
of several slots. The tests show that every request and script of store, index and sketch has keys of one slot: see
tests/conformance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import redis.asyncio
from redis.crc import key_slot

from quaestor.cache_sketch import RedisCacheSketch
from quaestor.event_layer import redis_requests, streams
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.model import Cell
from quaestor.observability.telemetry import Telemetry
from quaestor.store.index_redis import RedisIndex

CELL = Cell(query_partition=1, write_partition=2)
GENERATIONS = [0, 3]
KEYS_OF = {"XADD": slice(1, 2), "XTRIM": slice(1, 2), "XRANGE": slice(1, 2), "XLEN": slice(1, 2), "GET": slice(1, 2),
           "SET": slice(1, 2), "MEMORY": slice(2, 3), "XINFO": slice(2, 3), "EXISTS": slice(1, None)}  # fmt: skip


def slots(keys: Iterable[str | bytes]) -> set[int]:
    return {key_slot(key.encode() if isinstance(key, str) else key) for key in keys}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_keys_of_one_query_partition_have_one_slot(generation: int) -> None:
    names = [name("d", 1, generation) for name in (streams.queries, streams.matched, streams.results)]
    assert len(set(names)) == 3
    assert len(slots(names)) == 1


@pytest.mark.parametrize("generation", GENERATIONS)
def test_keys_that_the_whole_deployment_shares_have_one_slot(generation: int) -> None:
    names = [
        streams.notifications("d"), streams.heartbeats("d"), streams.epoch("d"), streams.grid("d"), streams.attended("d"),
        streams.resume_position("d", generation), streams.handover("d", generation),
        *(name("d", CELL, generation) for name in (streams.checkpoint, streams.process, streams.stats, streams.presence)),
    ]  # fmt: skip
    assert len(set(names)) == len(names)
    assert len(slots(names)) == 1


def test_a_tenants_pipeline_and_its_mark_have_one_slot() -> None:
    assert len(slots([streams.notifications("d", "shop"), streams.attended("d", "shop")])) == 1


def test_no_two_pipelines_have_one_name() -> None:
    """Neither of partitions, nor of generations, nor of tenants that are named like a part of another name."""
    names = [
        name("d", partition, generation)
        for name in (streams.writes, streams.queries, streams.matched, streams.results)
        for partition in range(12)
        for generation in range(12)
    ]
    tenants = [streams.notifications("d", tenant) for tenant in (None, "n", "w0", "q0", "g1", "shop")]
    assert len({*names, *tenants}) == len(names) + len(tenants)
    assert len(slots(names)) > 250, "and they are spread"


def test_every_request_of_the_event_layer_but_the_waiting_read_has_keys_of_one_slot(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    exchange = redis_requests.exchange

    def recording(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        sent.extend(commands)
        return exchange(connection, commands)

    monkeypatch.setattr("quaestor.event_layer.redis.exchange", recording)
    layer = RedisEventLayer(redis_url, prefix)
    stream = streams.writes(prefix, 0)
    layer.append(stream, [b"1", b"2"])
    layer.read({stream: "0", streams.queries(prefix, 0): "0"}, count=10, block_ms=0)
    layer.first_offset(stream)
    layer.measure(stream)
    layer.trim(stream, before_ms=1)
    layer.put(streams.grid(prefix), b"x")
    layer.get(streams.grid(prefix))
    layer._drop_idle()
    layer.get(streams.grid(prefix))  # a new connection is verified
    layer.close()
    names = {command[0] for command in sent}
    assert names >= {"XADD", "XREAD", "XRANGE", "XTRIM", "XLEN", "MEMORY", "SET", "GET", "XINFO"}
    transaction: list[Any] = []
    for command in sent:
        if command[0] in ("MULTI", "EXEC"):
            assert len(slots(transaction)) <= 1
            transaction = []
        elif command[0] in KEYS_OF:
            keys = command[KEYS_OF[command[0]]]
            transaction += keys if command[0] == "XADD" else []
            assert len(slots(keys)) == 1
        else:
            assert command[0] in ("XREAD", "INFO", "TIME")


@pytest.mark.anyio
async def test_each_script_of_the_index_and_of_the_sketch_has_keys_of_one_slot(redis_url: str, prefix: str) -> None:
    client = redis.asyncio.Redis.from_url(redis_url)
    index = RedisIndex(client, deployment=prefix)
    sketch = RedisCacheSketch(client, deployment=prefix, copies_live_ms=1_000, telemetry=Telemetry())
    assert len(index.keys) > 1
    assert len(slots(index.keys)) == 1
    assert len(sketch.keys) > 1
    assert len(slots(sketch.keys)) == 1
    await client.aclose()
