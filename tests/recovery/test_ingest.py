"""Ingest on a real mongod: every write arrives, exactly described, in order, and none is dated too fresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pymongo
import pytest
from bson import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne

from quaestor.clock import system_clock
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import write_partition
from quaestor.invalidation.ingest.change_stream import ChangeStream
from quaestor.invalidation.ingest.primary_probes import probe_primary
from quaestor.invalidation.ingest.raw_change_events import LackingRecord, payload_of
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.invalidation.ingest.write_pipelines import WritePipelines
from quaestor.model import AfterImage, WriteKind
from quaestor.observability.telemetry import Telemetry
from tests.recovery.ingesting import Client, Commands, count, ingesting, of, summary


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
    monkeypatch.setattr("quaestor.invalidation.ingest.primary_probes._WIRE_VERSION_6_0", 10_000)
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


def test_changes_of_a_whole_collection_reach_every_pipeline(client: Client, database: Any, prefix: str) -> None:
    with ingesting(client, MemoryEventLayer(), prefix, partitions=2) as pipelines:
        steps: list[tuple[Callable[[], Any], list[str]]] = [
            (lambda: database.create_collection("new"), ["new"]),
            (lambda: database.command("collMod", "new", validator={"x": {"$exists": True}}), []),  # no result
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


def test_an_index_is_one_event_with_its_first_field(client: Client, database: Any, prefix: str) -> None:
    """An index on a collection with records is reported once, when it is built."""
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        database.plain.insert_one({"_id": 0})
        database.plain.create_index([("x", 1), ("y", 1)])
        database.plain.create_index("z", hidden=True)
        database.plain.drop_index("x_1_y_1")
        database.plain.insert_one({"_id": 1})
        images = pipelines.until(count(f"{prefix}.plain", 4))
    kinds = [(image.kind, image.changed) for image in of(images, f"{prefix}.plain")]
    write, index = (WriteKind.INSERT, None), (WriteKind.COLLECTION, ("x",))
    assert kinds == [write, index, index, write]


def test_a_fresh_start_declares_a_gap_before_anything_else(client: Client, prefix: str) -> None:
    """Earlier events are unknown, so any entry cached under this deployment may be outdated."""
    with ingesting(client, MemoryEventLayer(), prefix, partitions=2) as pipelines:
        for partition in (0, 1):
            first = next(image for p, image in pipelines.images if p == partition)
            assert first.kind is WriteKind.GAP
            assert first.version > 0


def test_the_first_watermark_is_usable_before_any_write(client: Client, prefix: str) -> None:
    """A database without writes can be cached: ticks carry the version of the fresh start, and no later read is older.

    (mongod itself writes now and then.)
    """
    with ingesting(client, MemoryEventLayer(), prefix) as pipelines:
        tick = pipelines.until_tick_after(system_clock())
        newest = client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
    assert 0 < tick.version <= newest.time << 32 | newest.inc


def test_the_watermark_goes_on_with_the_database_while_nobody_writes(client: Client, prefix: str) -> None:
    """Reads carry the database's time, which moves without events too;
    the watermark must move with it to be comparable.
    """
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


def test_bursts_take_the_fast_path_and_one_look_up(client: Client, mongo_url: str, database: Any, prefix: str) -> None:
    """Updates without images and writes of transactions come in thousands: none is decoded, and one find reads the records of a
    whole batch."""
    number = 1_000
    database.plain.insert_many([{"_id": key, "text": "x" * 100} for key in range(number)])
    seen = Commands()
    position = ResumePosition(None, probe_primary(client, system_clock).applied, None)
    with client.start_session() as session, session.start_transaction():
        database.plain.update_many({}, {"$set": {"n": 1}}, session=session)
        database.images.insert_one({"_id": 1}, session=session)
        database.images.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        database.images.delete_one({"_id": 1}, session=session)
    with closing(ChangeStream.open(client, position, records=RecordSource.IMAGES, await_ms=200)) as stream:
        events: list[RawBSONDocument] = []
        while len(events) < number + 3:
            events += stream.read()
    made = [payload_of(bytes(event.raw), 1) for event in events]
    assert None not in made
    assert sum(isinstance(write, LackingRecord) for write in made) == number
    with pymongo.MongoClient[dict[str, Any]](mongo_url, event_listeners=[seen]) as own:
        layer = MemoryEventLayer()
        WritePipelines(own, layer, ["writes"], Telemetry(), PipelineBounds()).deliver(
            events, records=RecordSource.IMAGES
        )
        assert seen.names == ["find"]
    images = [decode_image(entry.payload) for entry in layer.read({"writes": "0"}, count=2 * number, block_ms=0)]
    assert [image.kind for image in images[number:]] == [WriteKind.INSERT, WriteKind.UPDATE, WriteKind.DELETE]
    assert {image.key: image.after for image in images[:number]} == {
        key: {"_id": key, "text": "x" * 100, "n": 1} for key in range(number)
    }
    assert not any(image.after_exact for image in images[:number])
