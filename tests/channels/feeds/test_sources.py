"""Redis Streams and MongoDB's change streams as sources, on a real Valkey and a real mongod."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from bson import DatetimeMS, MinKey, ObjectId
from pymongo import MongoClient

from quaestor.channels.datasets import Mode
from quaestor.channels.feeds.feed import OffsetSource
from quaestor.channels.feeds.records import SourceLostError
from quaestor.channels.feeds.sources import MongoSource, RedisSource
from quaestor.errors import DependencyError
from tests.channels.feeds.world import World
from tests.support import becomes


@pytest.fixture
def stream() -> str:
    return f"stream-{uuid.uuid4().hex}"


@pytest.fixture
def valkey(redis_url: str, stream: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.delete(stream)


@pytest.fixture
def collection(mongo_url: str) -> Iterator[Any]:
    client: MongoClient[Any] = MongoClient(mongo_url)
    name = f"feeds_{uuid.uuid4().hex[:8]}"
    yield client[name]["notes"]
    client.drop_database(name)
    client.close()


def feed_until(world: World, source: OffsetSource, records: dict[int, str], *, most: int = 2) -> None:
    """Let the feed step until the dataset has these records."""
    feed = world.feed()
    becomes(lambda: feed.step(source, most) == 0 and world.records().keys() >= records.keys())
    assert world.records() == records


def test_entries_of_a_stream_become_records_and_a_new_process_goes_on(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str
) -> None:
    world = World(tmp_path)
    world.define(type="redis", stream=stream)
    source = RedisSource(redis_url, stream)
    for number in range(1, 4):
        valkey.xadd(stream, {"record": json.dumps({"id": number, "text": "a"})})
    feed_until(world, source, {1: "a", 2: "a", 3: "a"})
    source.close()
    valkey.xadd(stream, {"record": json.dumps({"id": 4, "text": "b"})})
    valkey.xadd(stream, {"id": "x", "text": "c"})
    again = RedisSource(redis_url, stream)
    feed_until(World(tmp_path), again, {1: "a", 2: "a", 3: "a", 4: "b"})
    again.close()
    ((data, reason),) = world.letters()
    assert (json.loads(data), "id" in reason) == ({"id": "x", "text": "c"}, True)


def test_entries_that_were_deleted_before_they_were_read_are_a_loss(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str
) -> None:
    """Entries that the feed has read may be deleted."""
    world = World(tmp_path)
    world.define(type="redis", stream=stream)
    source = RedisSource(redis_url, stream)
    first = valkey.xadd(stream, {"record": json.dumps({"id": 1, "text": "a"})})
    feed = world.feed()
    assert feed.step(source) == 1
    valkey.xdel(stream, first)
    assert feed.step(source) == 0
    second = valkey.xadd(stream, {"record": json.dumps({"id": 2, "text": "a"})})
    valkey.xdel(stream, second)
    with pytest.raises(SourceLostError, match="were deleted"):
        feed.step(source)
    source.close()


def test_a_server_that_is_away_is_an_error_that_passes() -> None:
    source = RedisSource("redis://127.0.0.1:1", "s")
    with pytest.raises(DependencyError) as raised:
        source.read("", 10)
    assert raised.value.retryable
    source.close()


def test_writes_of_a_collection_become_records_and_a_new_process_goes_on(
    tmp_path: Path, mongo_url: str, collection: Any
) -> None:
    """From the beginning: present records first, then inserts, updates and replacements."""
    world = World(tmp_path)
    collection.insert_many([{"_id": number, "id": number, "text": "a"} for number in range(1, 6)])
    names = {"database": collection.database.name, "collection": collection.name}
    world.define(Mode.UPSERT, type="mongodb", **{**names, "from": "beginning"})
    source = MongoSource(mongo_url, *names.values(), start="beginning")
    feed_until(world, source, dict.fromkeys(range(1, 6), "a"))
    collection.insert_one({"_id": 6, "id": 6, "text": "b", "at": datetime(2026, 1, 1, tzinfo=UTC)})
    feed_until(world, source, {**dict.fromkeys(range(1, 6), "a"), 6: "b"})
    source.close()
    collection.update_one({"_id": 1}, {"$set": {"text": "c"}})
    collection.replace_one({"_id": 2}, {"id": 2, "text": "d"})
    collection.delete_one({"_id": 3})
    again = MongoSource(mongo_url, *names.values(), start="beginning")
    feed_until(World(tmp_path), again, {1: "c", 2: "d", 3: "a", 4: "a", 5: "a", 6: "b"})
    again.close()
    assert world.letters() == []


def test_a_dropped_collection_is_a_loss(tmp_path: Path, mongo_url: str, collection: Any) -> None:
    world = World(tmp_path)
    names = (collection.database.name, collection.name)
    world.define(type="mongodb", database=names[0], collection=names[1])
    source = MongoSource(mongo_url, *names)
    feed = world.feed()
    assert feed.step(source) == 0
    collection.insert_one({"id": 1, "text": "a"})
    becomes(lambda: feed.step(source) == 0 and world.records() == {1: "a"})
    collection.drop()
    with pytest.raises(SourceLostError, match="drop"):
        becomes(lambda: feed.step(source) < 0)
    source.close()


def test_a_new_feed_begins_where_it_first_stood_also_after_failures(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str, mongo_url: str, collection: Any
) -> None:
    """With `from: now`, writes between the first start and the first record are not passed over; earlier ones are."""
    names = (collection.database.name, collection.name)
    collection.insert_one({"id": 1, "text": "before"})
    valkey.xadd(stream, {"record": json.dumps({"id": 1, "text": "before"})})
    for folder, source, fields, write in (
        (
            tmp_path / "redis", lambda: RedisSource(redis_url, stream, start="now"), {"type": "redis", "stream": stream},
            lambda record: valkey.xadd(stream, {"record": json.dumps(record)}),
        ),
        (
            tmp_path / "mongodb", lambda: MongoSource(mongo_url, *names, start="now"),
            {"type": "mongodb", "database": names[0], "collection": names[1]}, collection.insert_one,
        ),
    ):  # fmt: skip
        world = World(folder)
        world.define(**fields)
        first = source()
        assert world.feed().step(first) == 0
        first.close()  # the process ends before the first record
        write({"id": 2, "text": "between"})
        again = source()
        feed_until(World(folder), again, {2: "between"})
        again.close()


def test_a_feed_from_now_on_whose_stream_is_made_later_misses_nothing(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str
) -> None:
    world = World(tmp_path)
    world.define(type="redis", stream=stream, **{"from": "now"})
    source = RedisSource(redis_url, stream, start="now")
    assert world.feed().step(source) == 0
    valkey.xadd(stream, {"record": json.dumps({"id": 1, "text": "a"})})
    feed_until(world, source, {1: "a"})
    source.close()


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("left", [0, 2])
def test_trimmed_entries_are_a_loss_unless_they_were_read(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str, left: int, *, is_read: bool
) -> None:
    """Trimming leaves no trace but the numbers of entries that were added and that are there."""
    world = World(tmp_path)
    world.define(type="redis", stream=stream)
    source = RedisSource(redis_url, stream)
    for number in range(1, 6):
        valkey.xadd(stream, {"record": json.dumps({"id": number, "text": "a"})})
    read = 5 - left if is_read else 2
    feed = world.feed()
    assert feed.step(source, read) == read
    valkey.xtrim(stream, maxlen=left, approximate=False)
    valkey.xadd(stream, {"record": json.dumps({"id": 6, "text": "a"})})
    if is_read:
        feed_until(world, source, dict.fromkeys(range(1, 7), "a"))
    else:
        for known in (feed, World(tmp_path).feed()):
            with pytest.raises(SourceLostError, match="were deleted"):
                known.step(source)
        assert world.records() == {1: "a", 2: "a"}
    source.close()


def test_entries_that_were_deleted_before_the_feed_began_are_no_loss(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str
) -> None:
    """Also when the feed needs several batches to come to the place of the deleted entry."""
    world = World(tmp_path)
    world.define(type="redis", stream=stream)
    ids = [valkey.xadd(stream, {"record": json.dumps({"id": number, "text": "a"})}) for number in range(1, 8)]
    valkey.xdel(stream, ids[0], ids[5])
    source = RedisSource(redis_url, stream)
    feed_until(world, source, dict.fromkeys((2, 3, 4, 5, 7), "a"))
    valkey.xadd(stream, {"record": json.dumps({"id": 8, "text": "a"})})
    feed_until(world, source, dict.fromkeys((2, 3, 4, 5, 7, 8), "a"))
    source.close()


def test_a_stream_that_was_deleted_and_made_again_is_a_loss(
    tmp_path: Path, redis_url: str, valkey: redis.Redis, stream: str
) -> None:
    world = World(tmp_path)
    world.define(type="redis", stream=stream)
    source = RedisSource(redis_url, stream)
    valkey.xadd(stream, {"record": json.dumps({"id": 1, "text": "a"})})
    feed = world.feed()
    assert feed.step(source) == 1
    valkey.xadd(stream, {"record": json.dumps({"id": 2, "text": "a"})})
    valkey.delete(stream)
    assert feed.step(source) == 0
    valkey.xadd(stream, {"record": json.dumps({"id": 3, "text": "a"})})
    with pytest.raises(SourceLostError, match="were deleted"):
        feed.step(source)
    source.close()


@pytest.mark.parametrize("is_clustered", [False, True], ids=["plain", "clustered"])
def test_present_records_are_read_whatever_the_types_of_their_ids(
    tmp_path: Path, mongo_url: str, collection: Any, *, is_clustered: bool
) -> None:
    """A comparison in a query of MongoDB ends with the type of its operand."""
    if is_clustered:
        collection.database.create_collection(
            collection.name, clusteredIndex={"key": {"_id": 1}, "unique": True, "name": "by id"}
        )
    ids = [
        None, -1, 0, 1.5, "a", "b", {"a": 1}, {"a": 2}, b"x", ObjectId(), True, False, datetime(2026, 1, 1, tzinfo=UTC),
        DatetimeMS(10**15), MinKey(),
    ]  # fmt: skip
    world = World(tmp_path)
    collection.insert_many([{"_id": value, "id": number, "text": "a"} for number, value in enumerate(ids)])
    names = {"database": collection.database.name, "collection": collection.name}
    world.define(type="mongodb", **{**names, "from": "beginning"})
    source = MongoSource(mongo_url, *names.values(), start="beginning")
    feed_until(world, source, dict.fromkeys(range(len(ids)), "a"), most=1)
    source.close()
    assert world.letters() == []
