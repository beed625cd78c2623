"""App workers and the grid on Spark on a Redis Cluster, under load, while its servers die one after the other.

Every response is compared with the database's history.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.setups.faults.world import DEPLOYMENT, Outcome, World, world
from tests.redis_cluster import RedisCluster, connect, redis_cluster, shard_of, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with redis_cluster(tmp_path_factory.mktemp("cluster"), replicas=True) as made:
        yield made


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, cluster: RedisCluster) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world"), redis_url=cluster.url) as made:
        yield made
        made.settle()
        assert made.checker.violations == []


def shard(cluster: RedisCluster, which: str) -> int:
    return (shard_of(cluster, DEPLOYMENT) + ["shared", "next", "last"].index(which)) % 3


def tell(which: str, how: str, outcome: Outcome) -> None:
    print(f"{which} {how}: {outcome.document()}")
    assert outcome.violations == 0
    assert outcome.hits > 0


@pytest.mark.parametrize("which", ["shared", "next", "last"])
def test_a_primary_is_killed_and_its_replica_takes_over(deployment: World, cluster: RedisCluster, which: str) -> None:
    i = shard(cluster, which)
    primary, replica = cluster.primaries[i], cluster.replicas[i]
    with deployment.failure(within_s=120) as outcome:
        primary.kill()
    tell(which, "is replaced", outcome)
    with connect(replica) as client:
        assert client.info("replication")["role"] == "master"
    primary.start()  # a replica from now on, of the one that took over
    cluster.primaries[i], cluster.replicas[i] = replica, primary

    def follows() -> bool:
        with connect(primary) as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    until(follows, "it follows")


@pytest.mark.parametrize("which", ["shared", "next", "last"])
def test_a_server_loses_its_data(deployment: World, cluster: RedisCluster, which: str) -> None:
    with deployment.failure(within_s=120) as outcome, connect(cluster.primaries[shard(cluster, which)]) as client:
        client.flushall()
    tell(which, "is emptied", outcome)
