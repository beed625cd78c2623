"""Operations of a handler on a real mongod that make its answer uncacheable, and the reason that is given."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo import MongoClient

from quaestor.capture import Capture, uncacheable
from quaestor.model import Uncacheable
from quaestor.testing import servers
from tests.end_to_end.captured import ROWS, Client, capture, client, now_ms, only_read, outcome_of, reasons

__all__ = ["capture", "client"]


def test_a_cursor_from_before_the_request_is_not_cached(client: Client, prefix: str) -> None:
    cursor = client[prefix].c.find({}, batch_size=100)
    next(cursor)
    assert reasons(outcome_of(lambda: list(cursor))) == {Uncacheable.UNREADABLE}


def test_an_exhaust_cursor_is_not_cached(client: Client, prefix: str) -> None:
    def handler() -> None:
        assert len(list(client[prefix].c.find({}, cursor_type=pymongo.CursorType.EXHAUST, batch_size=50))) == ROWS

    assert Uncacheable.UNREADABLE in reasons(outcome_of(handler))


@pytest.mark.parametrize(
    "write",
    [
        lambda c: c.insert_one({}),
        lambda c: c.insert_many([{}, {}]),
        lambda c: c.update_one({"_id": 1}, {"$set": {"a": 1}}),
        lambda c: c.update_many({"n": 1}, {"$set": {"a": 1}}),
        lambda c: c.replace_one({"_id": 1}, {"a": 1}),
        lambda c: c.delete_one({"_id": 1}),
        lambda c: c.find_one_and_update({"_id": 2}, {"$set": {"a": 1}}),
        lambda c: c.find_one_and_delete({"_id": 3}),
        lambda c: c.bulk_write([pymongo.InsertOne({}), pymongo.DeleteOne({"_id": 4})]),
        lambda c: c.aggregate([{"$match": {"_id": 1}}, {"$out": "other"}]),
        lambda c: c.aggregate([{"$match": {"_id": 1}}, {"$merge": "other"}]),
        lambda c: c.create_index("n"),
        lambda c: c.with_options(write_concern=pymongo.WriteConcern(w=0)).insert_one({}),
        lambda c: c.drop(),
        lambda c: c.database.create_collection("another"),
    ],
)
def test_a_request_that_writes_is_not_cached(client: Client, prefix: str, write: Callable[[Any], object]) -> None:
    def handler() -> None:
        client[prefix].c.find_one()
        write(client[prefix].c)

    # The driver lists the collections before it creates one, hence "among".
    assert Uncacheable.WROTE in reasons(outcome_of(handler))


def test_reads_in_a_transaction_are_not_cached(client: Client, prefix: str) -> None:
    def handler() -> None:
        with client.start_session() as session, session.start_transaction():
            client[prefix].c.find_one(session=session)

    assert reasons(outcome_of(handler)) == {Uncacheable.TRANSACTION}


def test_snapshot_reads_are_not_cached(client: Client, prefix: str) -> None:
    def handler() -> None:
        with client.start_session(snapshot=True) as session:
            client[prefix].c.find_one(session=session)
            client[prefix].c.find_one(session=session)

    assert reasons(outcome_of(handler)) == {Uncacheable.SNAPSHOT}


def test_a_failed_read_is_not_cached(client: Client, prefix: str) -> None:
    def handler() -> None:
        with pytest.raises(pymongo.errors.OperationFailure):
            client[prefix].c.find_one({"$nonsense": 1})

    assert reasons(outcome_of(handler)) == {Uncacheable.READ_FAILED}


def test_a_read_that_the_driver_retried_is_cached() -> None:
    """The first attempt fails on the server, the driver's second one succeeds: one good read."""

    def with_fail_points(folder: Path) -> servers.Server:
        server = servers.mongod_server(folder)
        return replace(server, arguments=[*server.arguments, "--setParameter", "enableTestCommands=1"])

    fail = {"configureFailPoint": "failCommand", "mode": {"times": 1}}
    fail |= {"data": {"failCommands": ["find"], "errorCode": 11602}}
    with (
        servers.running(with_fail_points, "mongod") as server,
        MongoClient[dict[str, Any]](server.url, event_listeners=[Capture()]) as client,
    ):
        client.d.c.insert_one({"_id": 1})
        client.admin.command(fail)
        assert list(only_read(outcome_of(client.d.c.find_one)).ids or ()) == [1]
        client.admin.command(fail | {"mode": {"times": 2}})

        def handler() -> None:
            with pytest.raises(pymongo.errors.PyMongoError):
                client.d.c.find_one()

        assert reasons(outcome_of(handler)) == {Uncacheable.READ_FAILED}


def test_tailable_cursors_and_unknown_commands_are_not_cached(client: Client, prefix: str) -> None:
    client[prefix].create_collection("capped", capped=True, size=4096)
    client[prefix].capped.insert_one({})
    tail = outcome_of(lambda: next(client[prefix].capped.find({}, cursor_type=pymongo.CursorType.TAILABLE)))
    assert Uncacheable.UNREADABLE in reasons(tail)
    assert reasons(outcome_of(lambda: client[prefix].command("dbStats"))) == {Uncacheable.UNREADABLE}
    assert reasons(outcome_of(lambda: list(client[prefix].list_collections()))) == {Uncacheable.UNREADABLE}


def test_no_read_is_a_reason(client: Client) -> None:
    assert reasons(outcome_of(lambda: None)) == {Uncacheable.NO_READS}


def test_now_in_a_filter_is_not_cached(client: Client, prefix: str) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for moment in (now, now - datetime.timedelta(days=1), now.replace(microsecond=0), time.time(), now_ms()):
        refusals = reasons(outcome_of(lambda moment=moment: client[prefix].c.find_one({"at": {"$gt": moment}})))  # type: ignore[misc]
        assert refusals == {Uncacheable.CLOCK}, moment
    only_read(outcome_of(lambda: client[prefix].c.find_one({"at": {"$gt": datetime.datetime(2013, 1, 1)}})))


def test_declarations_of_the_handler(client: Client, prefix: str) -> None:
    def handler() -> None:
        client[prefix].c.find_one()
        uncacheable("reads a file")

    assert outcome_of(handler).reasons == ((Uncacheable.DECLARED, "reads a file"),)
    uncacheable("outside a request this does nothing")
