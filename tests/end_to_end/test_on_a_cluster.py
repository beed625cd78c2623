"""Two app processes and a 2 x 2 grid on a Redis Cluster of which one server dies, with a replica or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from quaestor.testing import servers
from tests.end_to_end.test_distributed import Worker, grid, pages, touch, workers
from tests.redis_cluster import RedisCluster, redis_cluster, shard_of
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PAGES = range(6)


async def _all_cached(*made: Worker) -> None:
    for worker in made:
        for key in PAGES:
            await eventually(lambda worker=worker, key=key: worker.is_hit(key), within_s=60)  # type: ignore[misc]


async def _all_show(n: int, *made: Worker) -> None:
    for worker in made:
        for key in PAGES:
            await eventually(lambda worker=worker, key=key: worker.shows(key, n), within_s=60)  # type: ignore[misc]
            assert await worker.shows(key, n), "and it stays so"


def _shard(cluster: RedisCluster, deployment: str, which: str) -> int:
    """One that has what the deployment shares, or one of the others."""
    return (shard_of(cluster, deployment) + ["shared", "next", "last"].index(which)) % 3


@pytest.mark.parametrize("which", ["shared", "next", "last"])
async def test_a_server_dies_and_its_replica_takes_over(
    mongo_url: str, tmp_path: Path, prefix: str, which: str
) -> None:
    """Whichever it is: what is written meanwhile is seen, nothing old is served, and everything is cached again."""
    with (
        redis_cluster(tmp_path, replicas=True) as cluster,
        pages(mongo_url, prefix) as collection,
        grid(mongo_url, cluster.url, prefix),
    ):
        async with workers(mongo_url, cluster.url, prefix) as (first, second):
            await _all_cached(first, second)
            cluster.primaries[_shard(cluster, prefix, which)].kill()
            for key in PAGES:
                touch(collection, key, 1)
            await _all_show(1, first, second)
            await _all_cached(first, second)
            await _all_show(1, first, second)
            for key in PAGES:
                touch(collection, key, 2)
            await _all_show(2, first, second)


@pytest.mark.parametrize("which", ["shared", "next", "last"])
async def test_a_server_comes_back_without_its_data(mongo_url: str, tmp_path: Path, prefix: str, which: str) -> None:
    with (
        redis_cluster(tmp_path) as cluster,
        pages(mongo_url, prefix) as collection,
        grid(mongo_url, cluster.url, prefix),
    ):
        async with workers(mongo_url, cluster.url, prefix) as (first, second):
            await _all_cached(first, second)
            lost: servers.Server = cluster.primaries[_shard(cluster, prefix, which)]
            lost.kill()
            for key in PAGES:
                touch(collection, key, 1)
            await _all_show(1, first, second)
            lost.start()
            await _all_cached(first, second)
            await _all_show(1, first, second)
            for key in PAGES:
                touch(collection, key, 2)
            await _all_show(2, first, second)
