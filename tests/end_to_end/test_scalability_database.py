"""The benchmark's writer: what it says was acknowledged is in MongoDB, and what was refused is not passed over."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import bson
import pymongo
import pytest

from benchmarks.scalability import workload
from benchmarks.scalability.database import DatabaseWriter
from benchmarks.scalability.wire import Insert, InsertConnection, require_inserted
from benchmarks.scalability.workload import Collections, Load


@pytest.mark.parametrize(("rate_hz", "collections"), [(1_000, 1), (10_000, 1), (4_000, 3)])
def test_every_record_is_written_as_it_is_and_each_measured_one_has_its_moment(
    mongo_url: str, rate_hz: int, collections: int
) -> None:
    load = Load(
        experiment=rate_hz // 1_000, rate_hz=rate_hz, seconds=0.2, background=100, write_partitions=1, measured=10,
        collections=Collections(count=collections),
    )  # fmt: skip
    records = list(workload.records(load))
    with closing(DatabaseWriter(mongo_url)) as writer, pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        for number in range(collections):
            _drop(client, load.collections.namespace(number))
        writer.pipe.send(load)
        acknowledged, achieved_hz = writer.pipe.recv()
        for which, record, _ in records:
            database, _, name = load.collections.namespace(which).partition(".")
            assert client[database][name].find_one({"_id": record["_id"]}) == record
        for number in range(collections):
            _drop(client, load.collections.namespace(number))
    assert len(acknowledged) == load.measured
    assert all(acknowledged)
    assert 0 < achieved_hz <= rate_hz


def test_an_insert_that_is_refused_is_an_error(mongo_url: str, prefix: str) -> None:
    twice = Insert(f"{prefix}.c", [bson.encode({"_id": 1}), bson.encode({"_id": 1})])
    with closing(InsertConnection(mongo_url)) as connection:
        connection.send(twice)
        with pytest.raises(RuntimeError, match="E11000"):
            require_inserted(connection.reply(), twice.documents)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(prefix)


def test_an_insert_belongs_to_a_session_and_can_be_retried_as_a_drivers(mongo_url: str, prefix: str) -> None:
    """Sent again under the same number, it is answered as before and not performed again."""
    insert = Insert(f"{prefix}.c", [bson.encode({"_id": 1})])
    with closing(InsertConnection(mongo_url)) as connection:
        connection.send(insert)
        require_inserted(connection.reply(), 1)
        connection.socket.sendall(insert.message)
        require_inserted(connection.reply(), 1)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        assert client[prefix].c.count_documents({}) == 1
        client.drop_database(prefix)


def _drop(client: pymongo.MongoClient[dict[str, Any]], namespace: str) -> None:
    database, _, name = namespace.partition(".")
    client[database][name].drop()
