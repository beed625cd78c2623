"""Capture on real drivers and a real mongod: every read is seen, whole, and as the handler wrote it."""

from __future__ import annotations

from typing import Any

import pymongo
from pymongo import MongoClient

from quaestor.capture import Capture
from quaestor.model import Operation
from tests.end_to_end.captured import ROWS, Client, capture, client, only_read, outcome_of

__all__ = ["capture", "client"]


def test_a_find_is_read_whole(client: Client, prefix: str) -> None:
    read = only_read(
        outcome_of(lambda: client[prefix].c.find({"n": 3}).sort([("n", 1), ("_id", -1)]).limit(4).to_list())
    )
    assert read.query.namespace == f"{prefix}.c"
    assert read.query.operation is Operation.FIND
    assert (read.query.filter, read.query.sort, read.query.limit) == ({"n": 3}, (("n", 1), ("_id", -1)), 4)
    assert list(read.ids or ()) == [243, 233, 223, 213]
    assert read.primary
    assert read.duration_ms > 0


def test_find_one_is_a_find_with_limit_one(client: Client, prefix: str) -> None:
    read = only_read(outcome_of(lambda: client[prefix].c.find_one({"_id": 7})))
    assert (read.query.filter, read.query.limit) == ({"_id": 7}, 1)
    assert list(read.ids or ()) == [7]


def test_the_read_is_dated_by_the_reply(client: Client, prefix: str) -> None:
    """read_at is at least the version of a write that was acknowledged before the read."""
    with client.start_session() as session:
        client[prefix].c.insert_one({"_id": "w"}, session=session)
        written = session.operation_time
        assert written is not None
        read = only_read(outcome_of(lambda: client[prefix].c.find_one({"_id": "w"}, session=session)))
    assert read.read_at >= written.time << 32 | written.inc


def test_get_mores_belong_to_their_find(client: Client, prefix: str) -> None:
    read = only_read(outcome_of(lambda: client[prefix].c.find({}, batch_size=60).sort("_id", 1).to_list()))
    assert list(read.ids or ()) == list(range(ROWS))


def test_interleaved_cursors_are_kept_apart(client: Client, prefix: str) -> None:
    def handler() -> None:
        up = client[prefix].c.find({"n": {"$lt": 5}}, batch_size=30).sort("_id", 1)
        down = client[prefix].c.find({"n": {"$gte": 5}}, batch_size=30).sort("_id", -1)
        for _ in zip(up, down, strict=True):
            pass
        assert list(up) == list(down) == []

    up, down = outcome_of(handler).reads
    assert list(up.ids or ()) == [i for i in range(ROWS) if i % 10 < 5]
    assert list(down.ids or ()) == [i for i in reversed(range(ROWS)) if i % 10 >= 5]


def test_an_unfinished_cursor_leaves_the_result_unknown(client: Client, prefix: str) -> None:
    def handler() -> None:
        with client[prefix].c.find({}, batch_size=10) as cursor:
            next(cursor)

    assert only_read(outcome_of(handler)).ids is None


def test_count_documents_is_a_count(client: Client, prefix: str) -> None:
    read = only_read(outcome_of(lambda: client[prefix].c.count_documents({"n": 1}, skip=2, limit=9)))
    assert read.query.operation is Operation.COUNT
    assert (read.query.filter, read.query.skip, read.query.limit) == ({"n": 1}, 2, 9)
    assert read.ids is None
    assert read.query.widened is None


def test_an_estimated_count_depends_on_the_collection(client: Client, prefix: str) -> None:
    assert only_read(outcome_of(client[prefix].c.estimated_document_count)).query.widened


def test_distinct_and_aggregate_are_captured_whole(client: Client, prefix: str) -> None:
    distinct = only_read(outcome_of(lambda: client[prefix].c.distinct("n", {"_id": {"$lt": 5}})))
    assert (distinct.query.operation, distinct.query.distinct_key) == (Operation.DISTINCT, "n")
    pipeline: list[dict[str, Any]] = [{"$match": {"n": 1}}, {"$group": {"_id": "$n", "sum": {"$sum": 1}}}]
    aggregate = only_read(outcome_of(lambda: client[prefix].c.aggregate(pipeline).to_list()))
    assert (aggregate.query.operation, aggregate.query.pipeline) == (Operation.AGGREGATE, tuple(pipeline))
    assert distinct.ids is aggregate.ids is None
    assert distinct.read_at
    assert aggregate.read_at


def test_the_handler_may_change_its_filter_and_its_documents(client: Client, prefix: str) -> None:
    def handler() -> None:
        query: dict[str, Any] = {"n": {"$in": [3]}}
        for document in client[prefix].c.find(query).sort("deep.x", 1).limit(50):
            document["_id"] = str(document["_id"])
            document["deep"]["x"] = None
        query["n"]["$in"].append(4)
        query["more"] = 1

    read = only_read(outcome_of(handler))
    assert read.query.filter == {"n": {"$in": [3]}}
    assert list(read.ids or ()) == list(range(3, ROWS, 10))
    assert (read.last or {})["deep"] == {"x": 243}


def test_harmless_commands_do_not_matter(client: Client, prefix: str) -> None:
    def handler() -> None:
        client.admin.command("ping")
        client.server_info()
        client[prefix].c.find_one({"_id": 1})

    only_read(outcome_of(handler))


def test_raw_batches_are_read_without_members(client: Client, prefix: str) -> None:
    assert only_read(outcome_of(lambda: list(client[prefix].c.find_raw_batches({"n": 1})))).ids is None


def test_a_direct_connection_to_the_primary_reads_from_the_primary(mongo_url: str, prefix: str) -> None:
    """The driver then sends primaryPreferred; only the heartbeat tells that the server is the primary."""
    with MongoClient[dict[str, Any]](
        mongo_url.split("?")[0], directConnection=True, event_listeners=[Capture()]
    ) as client:
        assert only_read(outcome_of(client[prefix].c.find_one)).primary
        nearest = client[prefix].c.with_options(read_preference=pymongo.ReadPreference.NEAREST)
        assert only_read(outcome_of(nearest.find_one)).primary
