"""Records of updates: from the server's look-up while few events come, from ingest's own while many do, or from post-images."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.ingest import record_source
from quaestor.model import WriteKind
from tests.recovery.ingesting import Client, Commands, count, ingesting, of, summary


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def own(mongo_url: str, commands: Commands) -> Iterator[Client]:
    """The client of ingest alone."""
    with pymongo.MongoClient[Any](mongo_url, event_listeners=[commands]) as client:
        yield client


def test_single_updates_cost_ingest_no_read_of_their_own(
    own: Client, commands: Commands, database: Any, prefix: str
) -> None:
    namespace = f"{prefix}.plain"
    with ingesting(own, MemoryEventLayer(), prefix) as pipelines:
        database.plain.insert_one({"_id": 1, "x": 0})
        for x in range(1, 6):
            database.plain.update_one({"_id": 1}, {"$set": {"x": x}})
            images = of(pipelines.until(count(namespace, 1 + x)), namespace)
            assert summary(images[x]) == (WriteKind.UPDATE, 1, {"_id": 1, "x": x}, False, None, False)
    assert "find" not in commands.names


def test_a_record_that_is_gone_before_its_update_is_read_is_reported_as_gone(
    own: Client, commands: Commands, database: Any, prefix: str
) -> None:
    namespace, layer = f"{prefix}.plain", MemoryEventLayer()
    with ingesting(own, layer, prefix):
        pass
    database.plain.insert_one({"_id": 1, "x": 0})
    database.plain.update_one({"_id": 1}, {"$set": {"x": 1}})
    database.plain.delete_one({"_id": 1})
    with ingesting(own, layer, prefix, wait=False) as pipelines:
        images = of(pipelines.until(count(namespace, 3)), namespace)
    assert summary(images[1]) == (WriteKind.UPDATE, 1, None, False, None, False)
    assert "find" not in commands.names


def test_the_first_update_of_a_collection_that_records_images_is_exact(own: Client, database: Any, prefix: str) -> None:
    """Its event is read again with its images. That changes no other event."""
    plain, recorded = f"{prefix}.plain", f"{prefix}.images"
    database.plain.insert_one({"_id": 1, "x": 0})
    database.images.insert_one({"_id": 1, "x": 0})
    with ingesting(own, MemoryEventLayer(), prefix) as pipelines:
        database.plain.update_one({"_id": 1}, {"$set": {"x": 1}})
        pipelines.until(count(plain, 1))
        for x in range(1, 4):
            database.images.update_one({"_id": 1}, {"$set": {"x": x}})
        images = of(pipelines.until(count(recorded, 3)), recorded)
        database.plain.update_one({"_id": 1}, {"$set": {"x": 2}})
        updates = of(pipelines.until(count(plain, 2)), plain)
    assert [summary(image)[2:5] for image in images] == [
        ({"_id": 1, "x": x}, True, {"_id": 1, "x": x - 1}) for x in range(1, 4)
    ]
    assert [summary(image)[2:4] for image in updates] == [({"_id": 1, "x": 1}, False), ({"_id": 1, "x": 2}, False)]


def test_ingest_looks_up_while_many_events_come_and_the_server_afterwards(
    own: Client, commands: Commands, database: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would look a thousand records up one by one before it returns the first event."""
    monkeypatch.setattr(record_source, "_STAYS_S", 0.3)
    namespace, number = f"{prefix}.plain", 500
    database.plain.insert_many([{"_id": key, "x": 0} for key in range(number)])
    with ingesting(own, MemoryEventLayer(), prefix) as pipelines:
        database.plain.update_many({}, {"$set": {"x": 1}})
        images = of(pipelines.until(count(namespace, number)), namespace)
        assert {image.key: image.after for image in images} == {key: {"_id": key, "x": 1} for key in range(number)}
        finds = commands.names.count("find")
        assert 0 < finds < 20
        for more in range(1, 200):
            commands.names.clear()
            database.plain.update_one({"_id": more}, {"$set": {"x": 2}})
            pipelines.until(count(namespace, number + more))
            if "find" not in commands.names:
                break
        else:
            pytest.fail("ingest went on looking records up")


@pytest.mark.parametrize("seed", range(3))
def test_random_writes_arrive_once_and_in_order_whoever_looks_up(
    own: Client, client: Client, database: Any, prefix: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source changes every few writes. Records of images are those of the write, others no older."""
    monkeypatch.setattr(record_source, "_STAYS_S", 0.02)
    monkeypatch.setattr(record_source, "LOOKED_UP_AT_ONCE", 3)
    rng, expected = random.Random(seed), dict[str, list[tuple[int, int]]](plain=[], images=[])
    collections = ["plain"] * 3 + ["images"] * (seed > 0)
    for name in ("plain", "images"):
        database[name].insert_many([{"_id": key, "x": 0} for key in range(5)])
    with ingesting(own, MemoryEventLayer(), prefix) as pipelines:
        for x in range(1, 300):
            name, key = rng.choice(collections), rng.randrange(5)
            if rng.random() < 0.1:  # a transaction, whose writes share their version
                with client.start_session() as session, session.start_transaction():
                    for each in range(5):
                        database[name].update_one({"_id": each}, {"$set": {"x": x}}, session=session)
                expected[name] += [(each, x) for each in range(5)]
            else:
                database[name].update_one({"_id": key}, {"$set": {"x": x}})
                expected[name].append((key, x))
            if rng.random() < 0.05:
                pipelines.until(count(f"{prefix}.{name}", len(expected[name])))
        for name, writes in expected.items():
            images = of(pipelines.until(count(f"{prefix}.{name}", len(writes))), f"{prefix}.{name}")
            assert [image.key for image in images] == [key for key, _ in writes]
            for image, (_, x) in zip(images, writes, strict=True):
                assert image.after is not None
                assert image.after["x"] == x if name == "images" else image.after["x"] >= x
                assert image.after_exact == (name == "images")
    assert expected["plain"]
    told = 0
    for _, image in pipelines.images:
        if image.kind is WriteKind.TICK:
            told = max(told, image.version)
        else:
            assert image.version > told, "a tick had said that every write up to this version was delivered"
    assert told
