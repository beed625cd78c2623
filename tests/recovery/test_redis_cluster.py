"""A cluster loses data on one server alone, moves slots, and fails over: every part learns of each loss."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from quaestor.errors import ConfigurationError, EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.redis_cluster.layer import ClusterEventLayer
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.ports import StreamEntry
from tests.redis_cluster import RedisCluster, connect, migrate, redis_cluster, shard_of, until

D = "d"
NOTIFICATIONS = streams.notifications(D)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three primaries that keep nothing on disk."""
    with redis_cluster(tmp_path) as made:
        yield made


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[RedisCluster]:
    with redis_cluster(tmp_path, replicas=True) as made:
        yield made


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[RedisCluster], RedisPipelines]]:
    made: list[RedisPipelines] = []

    def maker(cluster: RedisCluster) -> RedisPipelines:
        made.append(event_layer(cluster.url, D))
        return made[-1]

    yield maker
    for layer in made:
        layer.close()


Make = Callable[["RedisCluster"], RedisPipelines]


def elsewhere(cluster: RedisCluster, but: int | None = None) -> tuple[str, int]:
    """A write pipeline that lies on another server than what the deployment shares, and that server."""
    shards = [shard for shard in range(3) if shard not in (shard_of(cluster, D), but)]
    shard = shards[0]
    return streams.writes(D, cluster.partition(streams.writes, D, shard)), shard


def read(layer: RedisPipelines, stream: str, after: str = "0") -> list[StreamEntry]:
    return layer.read({stream: after}, count=100, block_ms=0)


def payloads(entries: list[StreamEntry]) -> list[bytes]:
    return [entry.payload for entry in entries]


def reports_loss(act: Callable[[], object]) -> bool:
    """Whether it is said that data were lost. False: it worked. While servers are away it is tried again."""
    lost = False

    def answered() -> bool:
        nonlocal lost
        try:
            act()
        except EventLayerResetError:
            lost = True
        except EventLayerError:
            return False
        return True

    until(answered, "an answer, one way or the other")
    return lost


def test_a_server_that_comes_back_empty_is_a_loss_for_users_of_the_other_servers(
    cluster: RedisCluster, make: Make
) -> None:
    """The loss reaches parts that never read the lost pipeline,
    and readers with an offset beyond their own pipeline's end.
    """
    lost, shard = elsewhere(cluster)
    writer, reader, bystander = make(cluster), make(cluster), make(cluster)
    writer.append(lost, [b"1"])
    writer.append(NOTIFICATIONS, [b"1"])
    read(writer, NOTIFICATIONS)
    after = read(reader, NOTIFICATIONS)[-1].offset
    assert payloads(read(bystander, NOTIFICATIONS)) == [b"1"]
    cluster.primaries[shard].kill()
    cluster.primaries[shard].start()
    cluster.wait_until_whole()
    assert reports_loss(lambda: writer.append(lost, [b"2"])), "it had used what was lost"
    until(
        lambda: reports_loss(lambda: read(reader, NOTIFICATIONS, after)),
        "a reader of another stream learns of the loss",
    )
    until(lambda: reports_loss(lambda: read(bystander, NOTIFICATIONS, after)), "and every other layer")
    assert reports_loss(lambda: read(make(cluster), NOTIFICATIONS, after)), "and a later layer"
    writer.append(NOTIFICATIONS, [b"3"])
    assert payloads(read(reader, NOTIFICATIONS))[-1:] == [b"3"], "starting over works"


def test_a_new_process_that_comes_first_notices_a_server_that_came_back_empty(
    cluster: RedisCluster, make: Make
) -> None:
    """Every earlier user of the server is dead; an app that registers there for the first time must not hide the loss."""
    lost, shard = elsewhere(cluster)
    dead = make(cluster)
    dead.append(lost, [b"1"])
    kept = read(dead, lost)[-1].offset
    dead.close()
    cluster.primaries[shard].kill()
    cluster.primaries[shard].start()
    cluster.wait_until_whole()
    assert reports_loss(lambda: make(cluster).append(lost, [b"2"]))
    assert reports_loss(lambda: read(make(cluster), lost, kept))


def test_shared_keys_come_back_empty(cluster: RedisCluster, make: Make) -> None:
    elsewhere_, _ = elsewhere(cluster)
    layer, other = make(cluster), make(cluster)
    layer.append(elsewhere_, [b"1"])
    after = read(layer, elsewhere_)[-1].offset
    other.append(elsewhere_, [b"2"])
    shared = cluster.primaries[shard_of(cluster, D)]
    shared.kill()
    shared.start()
    cluster.wait_until_whole()
    until(lambda: reports_loss(lambda: read(layer, elsewhere_, after)), "its life is over")
    until(lambda: reports_loss(lambda: other.append(elsewhere_, [b"3"])), "for the other one too")
    assert reports_loss(lambda: read(make(cluster), elsewhere_, after))


def test_a_flush_of_one_server_is_noticed_on_open_connections(cluster: RedisCluster, make: Make) -> None:
    lost, shard = elsewhere(cluster)
    layer = make(cluster)
    layer.append(lost, [b"1"])
    with connect(cluster.primaries[shard]) as client:
        client.flushall()
    assert reports_loss(lambda: layer.append(lost, [b"2"]))


def test_data_beside_the_pipelines_is_watched_for_loss(cluster: RedisCluster, make: Make) -> None:
    """The dependency index, on a server without pipelines, was lost while no app ran:
    the next app learns of it at its start.
    """
    beside = next(key for i in range(99) if cluster.has(key := f"quaestor:{{{D}:index{i}}}:x") != shard_of(cluster, D))
    app = event_layer(cluster.url, D, beside=(beside,))
    app.append(NOTIFICATIONS, [b"1"])
    after = read(app, NOTIFICATIONS)[-1].offset
    app.close()
    with connect(cluster.primaries[cluster.has(beside)]) as client:
        client.flushall()
    later = event_layer(cluster.url, D, beside=(beside,))
    assert reports_loss(lambda: read(later, NOTIFICATIONS, after))
    assert reports_loss(lambda: read(make(cluster), NOTIFICATIONS, after)), "a layer without a watch, too"
    later.close()


def test_a_returning_reader_of_a_dead_server_gets_an_error_like_others(cluster: RedisCluster, make: Make) -> None:
    """The reader's request is outstanding on a connection that has ended since."""
    stream, shard = elsewhere(cluster)
    layer = make(cluster)
    layer.append(stream, [b"1"])
    after = {NOTIFICATIONS: "0", stream: read(layer, stream)[-1].offset}
    assert layer.read(after, count=10, block_ms=20) == []
    cluster.primaries[shard].kill()
    for _ in range(150):  # more than the driver's pool would make connections
        with pytest.raises(EventLayerError, match=r"did not answer|is down"):
            layer.read(after, count=10, block_ms=20)


def test_a_slot_moves_while_it_is_written_and_read(cluster: RedisCluster, make: Make) -> None:
    """While half of the slot is on each server, nothing is lost, nothing is out of order, and no loss is reported."""
    moving, source = elsewhere(cluster)
    writer, reader = make(cluster), make(cluster)
    stop, failed = threading.Event(), []
    written: list[int] = []

    def write() -> None:
        try:
            while not stop.is_set():
                writer.append(moving, [b"%d" % len(written), b"%d." % len(written)])
                written.append(len(written))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    results: list[bytes] = []
    after = {moving: "0", NOTIFICATIONS: "0"}

    def reads(number: int) -> None:
        goal = len(results) + number
        while len(results) < goal:
            assert not failed
            for entry in reader.read(after, count=50, block_ms=200):
                after[entry.stream] = entry.offset
                results.append(entry.payload)

    try:
        reads(100)
        migrate(cluster, moving, source, shard_of(cluster, D), between=lambda: reads(100))
        reads(100)
    finally:
        stop.set()
        thread.join(30)
    assert not failed
    reads(2 * len(written) - len(results))
    assert results == [line for i in written for line in (b"%d" % i, b"%d." % i)]


@pytest.mark.slow
def test_a_replica_takes_over_and_everybody_reads_on(replicated: RedisCluster, make: Make) -> None:
    stream, shard = elsewhere(replicated)
    writer, reader = make(replicated), make(replicated)
    writer.append(stream, [b"1"])
    after = read(reader, stream)[-1].offset
    with connect(replicated.primaries[shard]) as client:
        assert client.wait(1, 10_000) == 1
    replicated.primaries[shard].kill()
    assert not reports_loss(lambda: writer.append(stream, [b"2"])), "nothing was lost"
    assert not reports_loss(lambda: read(reader, stream, after))
    assert b"2" in payloads(read(reader, stream, after))
    assert not reports_loss(lambda: make(replicated).append(stream, [b"3"]))


@pytest.fixture
def lagging(replicated: RedisCluster) -> Callable[[str, int, Callable[[], None]], None]:
    """Do something that the shard's replica does not hear of, and let it take over."""

    def lag(stream: str, shard: int, act: Callable[[], None]) -> None:
        primary, replica = replicated.primaries[shard], replicated.replicas[shard]
        with connect(primary) as client:
            assert client.wait(1, 10_000) == 1
            os.kill(replica.pid, signal.SIGSTOP)
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            act()
        primary.kill()
        os.kill(replica.pid, signal.SIGCONT)

        def took_over() -> bool:
            with connect(replica) as client:
                return bool(client.info("replication")["role"] == "master")

        until(took_over, "the replica takes over")

    return lag


@pytest.mark.slow
def test_a_replica_that_lagged_is_noticed_by_each_part_that_had_seen_more(
    replicated: RedisCluster, make: Make, lagging: Callable[..., None]
) -> None:
    stream, shard = elsewhere(replicated)
    writer, bystander = make(replicated), make(replicated)
    writer.append(stream, [b"1"])
    bystander.append(NOTIFICATIONS, [b"1"])
    after = read(bystander, NOTIFICATIONS)[-1].offset
    lagging(stream, shard, lambda: writer.append(stream, [b"lost"]))
    assert not reports_loss(lambda: make(replicated).append(stream, [b"hides the hole"])), "it cannot know"
    assert reports_loss(lambda: writer.append(stream, [b"2"]))
    until(lambda: reports_loss(lambda: read(bystander, NOTIFICATIONS, after)), "every layer learns of the loss")


@pytest.mark.slow
def test_a_position_is_not_handed_out_when_what_it_stands_for_was_lost(
    replicated: RedisCluster, make: Make, lagging: Callable[..., None]
) -> None:
    """Ingest appends a write, saves its position and dies; the position is on another server, which lost nothing."""
    stream, shard = elsewhere(replicated)
    ingest = make(replicated)
    ingest.append(stream, [b"1"])
    ingest.put(streams.resume_position(D), b"before")

    def act() -> None:
        ingest.append(stream, [b"lost"])
        ingest.put(streams.resume_position(D), b"after")

    lagging(stream, shard, act)
    ingest.close()
    assert reports_loss(lambda: make(replicated).get(streams.resume_position(D)))


@pytest.mark.slow
def test_no_part_relies_on_consequences_of_a_lost_entry(
    replicated: RedisCluster, make: Make, lagging: Callable[..., None]
) -> None:
    """A cell reads a registration, reports it active, and dies; the registration dies with its server.

    The receiver of the activation never saw the registration itself.
    """
    registrations, shard = elsewhere(replicated)
    app, cell, listener = make(replicated), make(replicated), make(replicated)
    app.append(registrations, [b"0"])
    after = read(cell, registrations)[-1].offset

    def act() -> None:
        app.append(registrations, [b"registration"])
        assert payloads(read(cell, registrations, after)) == [b"registration"]
        cell.append(NOTIFICATIONS, [b"active"])
        assert payloads(read(listener, NOTIFICATIONS)) == [b"active"]

    lagging(registrations, shard, act)
    app.close()
    cell.close()
    until(lambda: reports_loss(lambda: read(listener, NOTIFICATIONS)), "the listener notices by itself")


def test_an_earlier_entry_comes_no_later_than_a_later_one_of_another_pipeline(
    redis_cluster_url: str, prefix: str
) -> None:
    """A reader of two pipelines on two servers never has the later entry without the earlier one."""
    first = streams.writes(prefix, 0)
    second = next(name for i in range(99) if _apart(first, name := streams.queries(prefix, i)))
    writer, reader = event_layer(redis_cluster_url, prefix), event_layer(redis_cluster_url, prefix)
    rounds = 400

    def write() -> None:
        for i in range(rounds):
            writer.append(first, [b"%d" % i])
            writer.append(second, [b"%d" % i])

    thread = threading.Thread(target=write)
    thread.start()
    after = {first: "0", second: "0"}
    newest = {first: -1, second: -1}
    waits = False
    while newest[second] < rounds - 1:
        waits = not waits
        for entry in reader.read(after, count=1_000, block_ms=500 if waits else 0):
            after[entry.stream] = entry.offset
            assert int(entry.payload) == newest[entry.stream] + 1
            newest[entry.stream] += 1
        assert newest[first] >= newest[second]
    thread.join()
    writer.close()
    reader.close()


def _apart(name: str, other: str) -> bool:
    return redis.crc.key_slot(name.encode()) // 5_462 != redis.crc.key_slot(other.encode()) // 5_462


def test_one_url_for_the_other_kind_of_server_is_refused_with_the_remedy(
    redis_url: str, redis_cluster_url: str, prefix: str
) -> None:
    node = redis_cluster_url.replace("redis+cluster", "redis").partition(",")[0]
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
        event_layer(node, prefix).append(streams.writes(prefix, 0), [b"1"])
    server = redis_url.replace("redis://", "redis+cluster://")
    with pytest.raises(ConfigurationError, match="redis://"):
        event_layer(server, prefix).append(streams.writes(prefix, 0), [b"1"])
    assert isinstance(event_layer(redis_cluster_url, prefix), ClusterEventLayer)
