"""Ingest on a real mongod: every write arrives, exactly described, in order, and none is lost or dated too fresh."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import Int64
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne

from quaestor.clock import system_clock
from quaestor.demo import servers
from quaestor.errors import ConfigurationError, DatabaseError, EventLayerError, EventLayerResetError
from quaestor.invalidation.event_layer import streams
from quaestor.invalidation.event_layer.codec import decode_image
from quaestor.invalidation.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.ingest import Ingest
from quaestor.invalidation.matching.partitioning import write_partition
from quaestor.model import AfterImage, GridShape, WriteKind
from quaestor.ports import EventLayer

DEADLINE_S = 30
HEARTBEAT_MS = 40
Client = pymongo.MongoClient[dict[str, Any]]


class Pipelines:
    """The far end: reads every write pipeline and remembers all images."""

    def __init__(self, layer: EventLayer, deployment: str, partitions: int) -> None:
        self.layer = layer
        self.offsets = {streams.writes(deployment, partition): "0" for partition in range(partitions)}
        self.partitions = list(self.offsets)
        self.images: list[tuple[int, AfterImage]] = []

    def until(self, enough: Callable[[list[AfterImage]], bool]) -> list[AfterImage]:
        """All images so far, once `enough` of them; ticks are left out of what it sees."""
        deadline = time.monotonic() + DEADLINE_S
        while not enough(found := [image for _, image in self.images if image.kind is not WriteKind.TICK]):
            assert time.monotonic() < deadline, found
            self.read()
        return found

    def until_tick_after(self, at_ms: int) -> AfterImage:
        """A tick of every pipeline that proves at_ms; the last of them."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            proving = {p: i for p, i in self.images if i.kind is WriteKind.TICK and i.wall_ms >= at_ms}
            if len(proving) == len(self.partitions):
                return proving[0]
            assert time.monotonic() < deadline, self.images[-10:]
            self.read()

    def read(self) -> None:
        for entry in self.layer.read(self.offsets, count=1000, block_ms=200):
            self.offsets[entry.stream] = entry.offset
            self.images.append((self.partitions.index(entry.stream), decode_image(entry.payload)))


@contextmanager
def ingesting(
    client: Client, layer: EventLayer, deployment: str, *, partitions: int = 1, wait: bool = True
) -> Iterator[Pipelines]:
    """An ingest in a thread of its own, past its start; stopped at the end."""
    shape = GridShape(query_partitions=1, write_partitions=partitions)
    ingest = Ingest(client, layer, shape, deployment=deployment, heartbeat_ms=HEARTBEAT_MS)
    stop = threading.Event()
    thread = threading.Thread(target=ingest.run, args=(stop,))
    pipelines = Pipelines(layer, deployment, partitions)
    thread.start()
    try:
        if wait:
            pipelines.until_tick_after(system_clock())
        yield pipelines
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.fixture
def client(mongo_url: str) -> Iterator[Client]:
    with pymongo.MongoClient(mongo_url) as client:
        yield client


@pytest.fixture
def database(client: Client, prefix: str) -> Iterator[Any]:
    database = client[prefix]
    database.create_collection("plain")
    database.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    yield database
    client.drop_database(prefix)


def of(images: Sequence[AfterImage], namespace: str) -> list[AfterImage]:
    return [image for image in images if image.namespace == namespace]


def summary(image: AfterImage) -> tuple[Any, ...]:
    return image.kind, image.key, image.after, image.after_exact, image.before, image.before_known


def count(namespace: str, n: int) -> Callable[[list[AfterImage]], bool]:
    return lambda images: len(of(images, namespace)) >= n


def test_every_kind_of_write_arrives_with_exact_images_where_the_collection_records_them(
    client: Client, database: Any, prefix: str
) -> None:
    collection, namespace = database.images, f"{prefix}.images"
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        collection.insert_one({"_id": 1, "x": Int64(1)})
        collection.update_one({"_id": 1}, {"$inc": {"x": 1}})
        collection.replace_one({"_id": 1}, {"x": 3})
        collection.find_one_and_update({"_id": 1}, {"$set": {"x": 4}})
        collection.delete_one({"_id": 1})
        images = of(pipelines.until(count(namespace, 5)), namespace)
    assert [summary(image) for image in images] == [
        (WriteKind.INSERT, 1, {"_id": 1, "x": 1}, True, None, True),
        (WriteKind.UPDATE, 1, {"_id": 1, "x": 2}, True, {"_id": 1, "x": 1}, True),
        (WriteKind.REPLACE, 1, {"_id": 1, "x": 3}, True, {"_id": 1, "x": 2}, True),
        (WriteKind.UPDATE, 1, {"_id": 1, "x": 4}, True, {"_id": 1, "x": 3}, True),
        (WriteKind.DELETE, 1, None, False, {"_id": 1, "x": 4}, True),
    ]
    assert isinstance(images[0].after["x"], Int64)  # type: ignore[index]
    versions = [image.version for image in images]
    assert versions == sorted(set(versions))
    assert all(abs(image.wall_ms - system_clock()) < 60_000 for image in images)


def test_without_recorded_images_an_update_carries_the_current_record_marked_as_such(
    client: Client, database: Any, prefix: str
) -> None:
    collection, namespace = database.plain, f"{prefix}.plain"
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        collection.insert_one({"_id": {"a": 1}, "x": 1})
        collection.update_one({"_id": {"a": 1}}, {"$set": {"x": 2}})
        images = of(pipelines.until(count(namespace, 2)), namespace)
        assert summary(images[0]) == (WriteKind.INSERT, {"a": 1}, {"_id": {"a": 1}, "x": 1}, True, None, True)
        assert summary(images[1]) == (WriteKind.UPDATE, {"a": 1}, {"_id": {"a": 1}, "x": 2}, False, None, False)
        collection.replace_one({"_id": {"a": 1}}, {"x": 3})
        collection.delete_one({"_id": {"a": 1}})
        images = of(pipelines.until(count(namespace, 4)), namespace)
        assert summary(images[2]) == (WriteKind.REPLACE, {"a": 1}, {"_id": {"a": 1}, "x": 3}, True, None, False)
        assert summary(images[3]) == (WriteKind.DELETE, {"a": 1}, None, False, None, False)


def test_a_server_before_6_0_looks_the_record_up_itself(
    client: Client, database: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No recorded images and no collection options there: updates are never exact, what is gone stays unknown."""
    monkeypatch.setattr("quaestor.invalidation.ingest._WIRE_VERSION_6_0", 10_000)
    namespace = f"{prefix}.images"
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        database.images.insert_one({"_id": 1, "x": 1})
        database.images.update_one({"_id": 1}, {"$set": {"x": 2}})
        images = of(pipelines.until(count(namespace, 2)), namespace)
        assert summary(images[1]) == (WriteKind.UPDATE, 1, {"_id": 1, "x": 2}, False, None, False)
        database.images.drop()
        pipelines.until(lambda images: _collections(images, prefix) == [namespace])


def test_an_update_says_what_it_touched_by_name_only(client: Client, database: Any, prefix: str) -> None:
    """The values are in the record; here they would travel twice."""
    collection, namespace = database.plain, f"{prefix}.plain"
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        collection.insert_one({"_id": 1, "old": 1, "list": [{"x": 1}, 2, 3], "deep": {}})
        collection.update_one(
            {"_id": 1}, {"$set": {"list.0.x": 2, "deep.er": {"y": 1}, "made.here": 1}, "$unset": {"old": 1}}
        )
        collection.update_one({"_id": 1}, [{"$set": {"list": {"$slice": ["$list", 1]}}}])
        collection.replace_one({"_id": 1}, {"x": 3})
        images = of(pipelines.until(count(namespace, 4)), namespace)
    touched = [None if image.changed is None else set(image.changed) for image in images]
    assert touched == [None, {"list.0.x", "deep.er", "made", "old"}, {"list"}, None]


def test_writes_of_many_records_arrive_one_by_one(client: Client, database: Any, prefix: str) -> None:
    """insert_many, update_many, a bulk of everything and delete_many; across four pipelines, each record always in one."""
    namespace = f"{prefix}.plain"
    with ingesting(client, MemoryEventLayer(), prefix, partitions=4) as pipelines:
        database.plain.insert_many([{"_id": i, "x": 0} for i in range(500)])
        database.plain.update_many({}, {"$set": {"x": 1}})
        database.plain.bulk_write(
            [InsertOne({"_id": "b"}), UpdateOne({"_id": "b"}, {"$set": {"x": 2}}), ReplaceOne({"_id": "b"}, {"x": 3}),
             UpdateMany({"_id": {"$lt": 10}}, {"$set": {"x": 2}}), DeleteOne({"_id": "b"})]
        )  # fmt: skip
        database.plain.delete_many({"_id": {"$gte": 100}})
        expected = 500 + 500 + 4 + 10 + 400
        images = of(pipelines.until(count(namespace, expected)), namespace)
        assert len(images) == expected
        for partition, image in pipelines.images:
            if image.namespace == namespace:
                assert partition == write_partition(image.key, 4)
        assert {partition for partition, image in pipelines.images if image.namespace == namespace} == {0, 1, 2, 3}
    assert sum(image.kind is WriteKind.UPDATE for image in images) == 511
    last = {image.key: image for image in images}
    assert {key for key, image in last.items() if image.kind is not WriteKind.DELETE} == set(range(100))
    assert all(last[key].after == {"_id": key, "x": 2 if key < 10 else 1} for key in range(100))


def test_a_transaction_arrives_whole_and_only_after_its_commit(client: Client, database: Any, prefix: str) -> None:
    namespace = f"{prefix}.images"
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines, client.start_session() as session:
        with session.start_transaction():
            for i in range(300):
                database.images.insert_one({"_id": i}, session=session)
            database.images.update_one({"_id": 0}, {"$set": {"x": 1}}, session=session)
            pipelines.until_tick_after(system_clock())
            assert of(pipelines.until(lambda _: True), namespace) == []
        images = of(pipelines.until(count(namespace, 301)), namespace)
    assert [image.key for image in images] == [*range(300), 0]
    assert len({image.version for image in images}) == 1


def test_what_changes_a_collection_as_a_whole_reaches_every_pipeline(
    client: Client, database: Any, prefix: str
) -> None:
    with ingesting(client, MemoryEventLayer(), prefix, partitions=2) as pipelines:
        steps: list[tuple[Callable[[], Any], list[str]]] = [
            (lambda: database.create_collection("new"), ["new"]),
            (lambda: database.command("collMod", "new", validator={"x": {"$exists": True}}), ["new"]),
            (lambda: database.new.rename("renamed"), ["new", "renamed"]),
            (lambda: database.create_collection("view", viewOn="renamed", pipeline=[]), ["view"]),
            (lambda: database.command("collMod", "view", viewOn="renamed", pipeline=[{"$limit": 1}]), ["view"]),
            (lambda: database.renamed.create_index([("t", "text")]), ["renamed"]),
            (lambda: database.renamed.drop(), ["renamed"]),
        ]
        expected: list[str] = []
        for step, names in steps:
            step()
            expected += [f"{prefix}.{name}" for name in names]
            wanted = sorted(expected * 2)
            pipelines.until(lambda images, wanted=wanted: sorted(_collections(images, prefix)) == wanted)
        for partition in (0, 1):
            own = [image for p, image in pipelines.images if p == partition]
            assert _collections(own, prefix) == expected
        client.drop_database(prefix)
        pipelines.until(lambda images: _collections(images, prefix).count(f"{prefix}.*") == 2)


def _collections(images: Sequence[AfterImage], prefix: str) -> list[str]:
    own = [image for image in images if image.namespace.startswith(f"{prefix}.")]
    return [image.namespace for image in own if image.kind is WriteKind.COLLECTION]


def test_an_index_that_changes_no_result_is_no_event(client: Client, database: Any, prefix: str) -> None:
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        database.plain.create_index("x")
        database.plain.drop_index("x_1")
        database.plain.insert_one({"_id": 1})
        images = pipelines.until(count(f"{prefix}.plain", 1))
    assert [image.kind for image in of(images, f"{prefix}.plain")] == [WriteKind.INSERT]


def test_a_fresh_start_declares_a_gap_before_anything_else(client: Client, prefix: str) -> None:
    """Nobody knows what happened before: whatever was cached under this deployment may be outdated."""
    with ingesting(client, MemoryEventLayer(), prefix, partitions=2) as pipelines:
        for partition in (0, 1):
            first = next(image for p, image in pipelines.images if p == partition)
            assert first.kind is WriteKind.GAP
            assert first.version > 0


def test_the_first_watermark_is_usable_before_any_write(client: Client, prefix: str) -> None:
    """A database that nobody writes to can be cached: the version ticks carry is that of the fresh start."""
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        before = client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
        tick = pipelines.until_tick_after(system_clock())
    assert 0 < tick.version <= before.time << 32 | before.inc


def test_the_watermark_goes_on_with_the_database_while_nobody_writes(client: Client, prefix: str) -> None:
    """Reads are dated by the database's time, which moves without events too; whoever compares the two needs both to move."""
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        client.admin.command({"appendOplogNote": 1, "data": {"nothing": "happened"}})
        noted = client.admin.command("hello")["operationTime"]
        while pipelines.until_tick_after(system_clock()).version < noted.time << 32 | noted.inc:
            pass  # until_tick_after has a deadline, and so has the whole run
    images = [image for _, image in pipelines.images if image.kind not in (WriteKind.TICK, WriteKind.GAP)]
    assert not of(images, f"{prefix}.plain")


def test_a_tick_never_claims_a_moment_whose_writes_are_still_missing(
    client: Client, database: Any, prefix: str
) -> None:
    """For each acknowledged write: no pipeline holds a tick for a later moment in front of the write."""
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        acknowledged: dict[int, int] = {}
        for i in range(300):
            database.plain.insert_one({"_id": i})
            acknowledged[i] = system_clock()
        pipelines.until(count(f"{prefix}.plain", 300))
        pipelines.until_tick_after(system_clock())
    proven_ms = 0
    for _, image in pipelines.images:
        if image.kind is WriteKind.TICK:
            assert image.wall_ms >= proven_ms
            proven_ms = image.wall_ms
        elif image.namespace == f"{prefix}.plain":
            assert proven_ms <= acknowledged[image.key]


def test_a_restart_goes_on_where_it_was_and_loses_nothing(client: Client, database: Any, prefix: str) -> None:
    layer, namespace = MemoryEventLayer(), f"{prefix}.plain"
    with ingesting(client, layer, prefix) as pipelines:
        database.plain.insert_one({"_id": 0})
        pipelines.until(count(namespace, 1))
    database.plain.insert_many([{"_id": i} for i in range(1, 50)])
    with ingesting(client, layer, prefix):
        database.plain.insert_one({"_id": 50})
        images = pipelines.until(count(namespace, 51))
    assert list(dict.fromkeys(image.key for image in of(images, namespace))) == list(range(51))
    assert sum(image.kind is WriteKind.GAP for image in images) == 1  # that of the very first start


class Faulty(MemoryEventLayer):
    """Fails when told to, as a server that went away, or came back empty, does."""

    def __init__(self) -> None:
        super().__init__()
        self.error: EventLayerError | None = None
        self.failed = threading.Event()

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        self._fail()
        super().append(stream, payloads)

    def put(self, name: str, value: bytes) -> None:
        self._fail()
        super().put(name, value)

    def _fail(self) -> None:
        if self.error is not None:
            self.failed.set()
            raise self.error


def test_nothing_is_lost_while_the_event_layer_is_away(client: Client, database: Any, prefix: str) -> None:
    layer, namespace = Faulty(), f"{prefix}.plain"
    with ingesting(client, layer, prefix) as pipelines:
        layer.error = EventLayerError("away")
        database.plain.insert_many([{"_id": i} for i in range(50)])
        assert layer.failed.wait(DEADLINE_S)
        layer.error = None
        images = pipelines.until(count(namespace, 50))
        pipelines.until_tick_after(system_clock())
    assert list(dict.fromkeys(image.key for image in of(images, namespace))) == list(range(50))


def test_an_event_layer_that_lost_its_data_gets_a_gap_and_no_hole(client: Client, database: Any, prefix: str) -> None:
    layer, namespace = Faulty(), f"{prefix}.plain"
    with ingesting(client, layer, prefix) as pipelines:
        layer.error = EventLayerResetError("lost everything")
        database.plain.insert_one({"_id": 1})
        assert layer.failed.wait(DEADLINE_S)
        layer.error = None
        images = pipelines.until(count(namespace, 1))
    assert [image.kind for image in images] == [WriteKind.GAP, WriteKind.GAP, WriteKind.INSERT]


@pytest.mark.parametrize("token", [{"_data": "zz"}, {"_data": "82"}, {"odd": 1}], ids=str)
def test_an_unusable_token_becomes_a_gap(client: Client, database: Any, prefix: str, token: dict[str, Any]) -> None:
    layer = MemoryEventLayer()
    saved = {"v": 1, "token": bson.encode(token), "version": 1, "database": None}
    layer.put(streams.resume_position(prefix), bson.encode(saved))
    with ingesting(client, layer, prefix) as pipelines:
        database.plain.insert_one({"_id": 1})
        images = pipelines.until(count(f"{prefix}.plain", 1))
    assert [image.kind for image in images] == [WriteKind.GAP, WriteKind.INSERT]


def test_a_position_in_another_replica_set_becomes_a_gap(client: Client, database: Any, prefix: str) -> None:
    """The database was wiped or exchanged, the event layer was not: an old token would be accepted, and mean nothing."""
    layer = MemoryEventLayer()
    saved = {"v": 1, "token": None, "version": 1 << 32, "database": "000000000000000000000000"}
    layer.put(streams.resume_position(prefix), bson.encode(saved))
    with ingesting(client, layer, prefix) as pipelines:
        images = pipelines.until(lambda images: len(images) >= 1)
    assert images[0].kind is WriteKind.GAP


def test_a_database_behind_our_position_is_not_waited_for_in_silence(client: Client, prefix: str) -> None:
    """As after a restore from a backup: a token of the future would make the server skip every write until then."""
    layer = MemoryEventLayer()
    future = (int(time.time()) + 3600) << 32
    layer.put(
        streams.resume_position(prefix), bson.encode({"v": 1, "token": None, "version": future, "database": None})
    )
    with ingesting(client, layer, prefix) as pipelines:
        images = pipelines.until(lambda images: len(images) >= 1)
        assert images[0].kind is WriteKind.GAP
        assert images[0].version < future


def test_an_event_too_large_for_its_images_is_delivered_without_them(
    client: Client, database: Any, prefix: str
) -> None:
    """Record, pre-image and post-image together pass mongod's 16 MB; the stream must not stop there."""
    namespace = f"{prefix}.images"
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        database.images.insert_one({"_id": 1, "large": "x" * (9 << 20)})
        database.images.update_one({"_id": 1}, {"$set": {"x": 1}})
        pipelines.until(count(namespace, 2))
        database.images.insert_one({"_id": 2})
        database.images.update_one({"_id": 2}, {"$set": {"x": 1}})
        images = of(pipelines.until(count(namespace, 4)), namespace)
    assert not images[1].after_exact
    assert images[1].after is not None
    assert images[1].after["x"] == 1
    assert summary(images[3]) == (WriteKind.UPDATE, 2, {"_id": 2, "x": 1}, True, {"_id": 2}, True)


def test_a_standalone_mongod_is_refused_with_the_remedy(tmp_path: Path) -> None:
    server = servers.mongod_server(tmp_path, replica_set=False)
    server.start()
    try:
        with pymongo.MongoClient(server.url) as client:
            ingest = Ingest(
                client,
                MemoryEventLayer(),
                GridShape(query_partitions=1, write_partitions=1),
                deployment="t",
                heartbeat_ms=50,
            )
            with pytest.raises(ConfigurationError, match=r"--replSet rs0, run rs\.initiate"):
                ingest.check()
            with pytest.raises(ConfigurationError):
                ingest.run(threading.Event())
    finally:
        server.stop()


def test_a_database_that_is_away_is_waited_for_and_nothing_is_lost(tmp_path: Path, prefix: str) -> None:
    """mongod killed and started again on its data: ticks stop, then go on; a write in between arrives. What was read before is
    not trusted: it may have shown what mongod had not written down yet."""
    server = servers.mongod_server(tmp_path)
    server.start()
    try:
        with pymongo.MongoClient(server.url, serverSelectionTimeoutMS=500) as client:
            layer = MemoryEventLayer()
            with ingesting(client, layer, prefix) as pipelines:
                client.db.c.with_options(write_concern=pymongo.WriteConcern(w=1, j=True)).insert_one({"_id": 1})
                server.kill()
                with pytest.raises(DatabaseError):
                    Ingest(
                        client,
                        layer,
                        GridShape(query_partitions=1, write_partitions=1),
                        deployment=prefix,
                        heartbeat_ms=50,
                    ).check()
                down_ms = system_clock()
                server.start()
                client.db.c.insert_one({"_id": 2})
                images = pipelines.until(lambda images: {1, 2} <= {image.key for image in of(images, "db.c")})
                pipelines.until_tick_after(down_ms)
            told = [image for image in images if image.kind is WriteKind.GAP or image.key in (1, 2)]
            kinds = [image.kind for image in told]
            assert kinds in (
                [WriteKind.GAP, WriteKind.INSERT, WriteKind.GAP, WriteKind.INSERT],
                [WriteKind.GAP, WriteKind.GAP, WriteKind.INSERT, WriteKind.INSERT],  # killed before it was read
            )
            assert [image.version for image in told] == sorted({image.version for image in told})
    finally:
        server.stop()


def test_a_position_that_the_oplog_no_longer_reaches_becomes_a_gap(tmp_path: Path, prefix: str) -> None:
    """More was written while ingest was away than the oplog holds."""
    server = servers.mongod_server(tmp_path)
    server.arguments = [*server.arguments, "--syncdelay", "1"]  # the oplog is only shortened behind a checkpoint
    server.start()
    try:
        with pymongo.MongoClient(server.url) as client:
            layer = MemoryEventLayer()
            client.db.c.insert_one({"_id": "before"})
            with ingesting(client, layer, prefix) as pipelines:
                client.db.c.insert_one({"_id": "seen"})
                images = pipelines.until(count("db.c", 1))
            seen = next(image.version for image in images if image.key == "seen")
            oldest, deadline = 0, time.monotonic() + DEADLINE_S
            while oldest <= seen:
                assert time.monotonic() < deadline
                client.db.c.insert_one({"x": "x" * (4 << 20)})
                first = next(client.local["oplog.rs"].find().sort("$natural", 1).limit(1))["ts"]
                oldest = first.time << 32 | first.inc
            with ingesting(client, layer, prefix):
                client.db.c.insert_one({"_id": "after"})
                images = pipelines.until(lambda images: any(image.key == "after" for image in images))
            kinds = [image.kind for image in images if image.kind is WriteKind.GAP or image.key in ("seen", "after")]
            assert kinds == [WriteKind.GAP, WriteKind.INSERT, WriteKind.GAP, WriteKind.INSERT]
    finally:
        server.stop()
