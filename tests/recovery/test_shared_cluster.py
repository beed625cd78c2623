"""Store, index and sketch on a cluster of which a server dies, loses its data, or gives slots away."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from quaestor.errors import StoreError
from quaestor.model import Dependent
from quaestor.redis.clients import shared_client
from quaestor.store.index_redis import RedisIndex
from quaestor.store.redis import RedisStore
from tests.conformance.test_response_store import ENTRY
from tests.redis_cluster import connect, migrate, redis_cluster
from tests.support import eventually

pytestmark = pytest.mark.anyio
NOW_MS = 1_700_000_000_000


def dependent(key: str) -> Dependent:
    return Dependent(
        key=key, registrations=("o:1",), resource="/x", urls=(f"http://a/{key}",), tags=("t",), copies_until_ms=NOW_MS + 60_000
    )  # fmt: skip


async def answers(store: RedisStore) -> bool:
    try:
        await store.put(ENTRY, ttl_ms=60_000)
        return await store.get(ENTRY.key) == ENTRY
    except StoreError:
        return False


async def test_a_slot_that_moves_keeps_its_entries(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as cluster:
        client = shared_client(cluster.url, timeout_s=10)
        store = RedisStore(client, deployment="d")
        await store.put(ENTRY, ttl_ms=60_000)
        name = store.name(ENTRY.key)
        source = cluster.has(name)
        migrate(cluster, name, source, (source + 1) % 3, between=lambda: None)
        assert await store.get(ENTRY.key) == ENTRY
        await store.evict([ENTRY])
        assert await store.get(ENTRY.key) is None
        await client.aclose()


async def test_a_server_that_dies_is_a_store_error_and_its_replica_an_answer(tmp_path: Path) -> None:
    with redis_cluster(tmp_path, replicas=True) as cluster:
        client = shared_client(cluster.url)
        store = RedisStore(client, deployment="d")
        await eventually(lambda: answers(store))
        shard = cluster.has(store.name(ENTRY.key))
        cluster.primaries[shard].kill()
        with pytest.raises(StoreError):
            await store.get(ENTRY.key)
        await eventually(lambda: answers(store))
        await client.aclose()


@pytest.mark.parametrize("how", ["comes back empty", "is replaced by a replica that lagged"])
async def test_an_index_that_forgot_what_was_added_says_so_once(tmp_path: Path, how: str) -> None:
    """Else what depends on what would be lost, and nothing purged: no copy would be taken back."""
    with redis_cluster(tmp_path, replicas=how != "comes back empty") as cluster:
        lost: list[int] = []
        client = shared_client(cluster.url, timeout_s=10)  # who is dead refuses at once
        index = RedisIndex(client, deployment="d", on_lost=lambda: lost.append(1))
        shard = cluster.has(index.keys[0])
        primary = cluster.primaries[shard]
        await index.add(dependent("one"))
        if how == "comes back empty":
            primary.kill()
            primary.start()
        else:
            replica = cluster.replicas[shard]
            with connect(primary) as direct:
                assert direct.wait(1, 10_000) == 1
                os.kill(replica.pid, signal.SIGSTOP)
                direct.execute_command("CLIENT", "KILL", "TYPE", "replica")
            await index.add(dependent("two"))
            primary.kill()
            os.kill(replica.pid, signal.SIGCONT)

        async def swept() -> bool:
            try:
                await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS)
            except StoreError:
                return False
            return True

        await eventually(swept)
        assert lost == [1]
        await index.add(dependent("three"))
        await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS)
        assert lost == [1]
        await client.aclose()
