"""Ingest, when it, the event layer or the database is away, lost something, or is another one: no write is lost unsaid."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.errors import OperationFailure

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError, DatabaseError, EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.model import GridShape, WriteKind
from quaestor.testing import servers
from tests.recovery.ingesting import DEADLINE_S, Client, count, ingesting, of

CAPPED_POSITION_LOST = 136
"""The server's number for it."""


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
    """An event layer that fails on command, like a server that went away, or came back empty."""

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
        error = self.error  # mended by another thread, perhaps between any two of these lines
        if error is not None:
            self.failed.set()
            raise error


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
        assert images[0].version > future, "whatever was read so far is older than the gap"


def test_a_standalone_mongod_is_refused_with_the_remedy(tmp_path: Path) -> None:
    server = servers.mongod_server(tmp_path, replica_set=False)
    server.start()
    try:
        with pymongo.MongoClient(server.url) as client:
            ingest = ChangeStreamFollower(
                client,
                MemoryEventLayer(),
                GridShape(query_partitions=1, write_partitions=1),
                LoopContext(deployment="t", heartbeat_ms=50),
            )
            with pytest.raises(ConfigurationError, match=r"--replSet rs0, run rs\.initiate"):
                ingest.check()
            with pytest.raises(ConfigurationError):
                ingest.run(threading.Event())
    finally:
        server.stop()


def test_a_database_that_is_away_is_waited_for_and_nothing_is_lost(tmp_path: Path, prefix: str) -> None:
    """While mongod is dead, ticks stop; after its restart on its data they continue, and a write in between arrives.

    Earlier reads are not trusted: they may have shown writes that mongod had not yet written down.
    """
    server = servers.mongod_server(tmp_path)
    server.start()
    try:
        # Ingest's client gives up soon; the one that writes waits until it has noticed that mongod is back.
        with (
            pymongo.MongoClient(server.url, serverSelectionTimeoutMS=500) as client,
            pymongo.MongoClient[dict[str, Any]](server.url) as writer,
        ):
            layer = MemoryEventLayer()
            with ingesting(client, layer, prefix) as pipelines:
                writer.db.c.with_options(write_concern=pymongo.WriteConcern(w=1, j=True)).insert_one({"_id": 1})
                server.kill()
                with pytest.raises(DatabaseError):
                    ChangeStreamFollower(
                        client,
                        layer,
                        GridShape(query_partitions=1, write_partitions=1),
                        LoopContext(deployment=prefix, heartbeat_ms=50),
                    ).check()
                down_ms = system_clock()
                server.start()
                writer.db.c.insert_one({"_id": 2})
                images = pipelines.until(lambda images: {1, 2} <= {image.key for image in of(images, "db.c")})
                pipelines.until_tick_after(down_ms)
            relevant = [image for image in images if image.kind is WriteKind.GAP or image.key in (1, 2)]
            kinds = [image.kind for image in relevant]
            assert kinds in (
                [WriteKind.GAP, WriteKind.INSERT, WriteKind.GAP, WriteKind.INSERT],
                [WriteKind.GAP, WriteKind.GAP, WriteKind.INSERT, WriteKind.INSERT],  # killed before it was read
            )
            # The gap is as new as what the primary had, also if some of that is still to come.
            gap = relevant[2 if kinds[2] is WriteKind.GAP else 1]
            assert all(image.version <= gap.version for image in relevant[: relevant.index(gap)])
            assert [image.key for image in relevant if image.kind is WriteKind.INSERT] == [1, 2]
    finally:
        server.stop()


def oldest_in_oplog(client: Client) -> int | None:
    """Version of the oldest entry; None: it was cut off while it was read."""
    try:
        first = next(client.local["oplog.rs"].find().sort("$natural", 1).limit(1))["ts"]
    except OperationFailure as error:
        if error.code != CAPPED_POSITION_LOST:
            raise
        return None
    return int(first.time << 32 | first.inc)


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
                oldest = oldest_in_oplog(client) or oldest
            with ingesting(client, layer, prefix):
                client.db.c.insert_one({"_id": "after"})
                images = pipelines.until(lambda images: any(image.key == "after" for image in images))
            kinds = [image.kind for image in images if image.kind is WriteKind.GAP or image.key in ("seen", "after")]
            assert kinds == [WriteKind.GAP, WriteKind.INSERT, WriteKind.GAP, WriteKind.INSERT]
    finally:
        server.stop()


def test_while_no_cell_runs_what_is_too_old_for_the_bound_goes(client: Client, database: Any, prefix: str) -> None:
    """Only cells trim by time, so that one that comes back finds what it has not read; Redis must not fill up for that."""
    layer, stream = MemoryEventLayer(), streams.writes(prefix, 0)
    with ingesting(client, layer, prefix, bounds=PipelineBounds(entries=50)) as pipelines:
        database.plain.insert_many([{"_id": i} for i in range(500)])
        pipelines.until(count(f"{prefix}.plain", 500))
        deadline = time.monotonic() + DEADLINE_S
        while layer.measure(stream).entries > 200:  # those of the last two seconds are spared
            assert time.monotonic() < deadline
            pipelines.until_tick_after(system_clock())
