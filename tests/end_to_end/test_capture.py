"""What capture sees of real drivers on a real mongod: every read, of every kind of handler, and nothing else."""

from __future__ import annotations

import asyncio
import datetime
import functools
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import bson
import httpx
import pymongo
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion, TypeCodec, TypeRegistry
from bson.raw_bson import RawBSONDocument
from fastapi import BackgroundTasks, FastAPI
from pymongo import AsyncMongoClient, MongoClient
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from quaestor.capture import Capture, Outcome, Recorder, current, not_recording, recording, uncacheable
from quaestor.demo import servers
from quaestor.model import CapturedRead, Operation, Uncacheable

Client = MongoClient[dict[str, Any]]
ROWS = 250


@pytest.fixture
def capture() -> Capture:
    return Capture()


@pytest.fixture
def client(mongo_url: str, capture: Capture, prefix: str) -> Iterator[Client]:
    with MongoClient[dict[str, Any]](mongo_url, event_listeners=[capture]) as client:
        client[prefix].c.insert_many([{"_id": i, "n": i % 10, "deep": {"x": i}} for i in range(ROWS)])
        yield client
        client.drop_database(prefix)


@pytest.fixture
async def async_client(mongo_url: str, capture: Capture) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[capture]) as client:
        yield client


def outcome_of(handler: Callable[[], object]) -> Outcome:
    with recording() as recorder:
        handler()
        return recorder.outcome(now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def only_read(outcome: Outcome) -> CapturedRead:
    assert outcome.reasons == ()
    (read,) = outcome.reads
    return read


def reasons(outcome: Outcome) -> set[Uncacheable]:
    return {reason for reason, _ in outcome.reasons}


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


def test_interleaved_cursors_are_told_apart(client: Client, prefix: str) -> None:
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


def test_a_cursor_from_before_the_request_is_not_cached(client: Client, prefix: str) -> None:
    cursor = client[prefix].c.find({}, batch_size=100)
    next(cursor)
    assert reasons(outcome_of(lambda: list(cursor))) == {Uncacheable.UNREADABLE}


def test_an_exhaust_cursor_is_not_cached(client: Client, prefix: str) -> None:
    def handler() -> None:
        assert len(list(client[prefix].c.find({}, cursor_type=pymongo.CursorType.EXHAUST, batch_size=50))) == ROWS

    assert Uncacheable.UNREADABLE in reasons(outcome_of(handler))


def test_count_documents_is_a_count(client: Client, prefix: str) -> None:
    read = only_read(outcome_of(lambda: client[prefix].c.count_documents({"n": 1}, skip=2, limit=9)))
    assert read.query.operation is Operation.COUNT
    assert (read.query.filter, read.query.skip, read.query.limit) == ({"n": 1}, 2, 9)
    assert read.ids is None
    assert read.query.widened is None


def test_an_estimated_count_depends_on_the_collection(client: Client, prefix: str) -> None:
    assert only_read(outcome_of(client[prefix].c.estimated_document_count)).query.widened


def test_distinct_and_aggregate(client: Client, prefix: str) -> None:
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


def test_harmless_commands_do_not_matter(client: Client, prefix: str) -> None:
    def handler() -> None:
        client.admin.command("ping")
        client.server_info()
        client[prefix].c.find_one({"_id": 1})

    only_read(outcome_of(handler))


def test_no_read_is_a_reason(client: Client) -> None:
    assert reasons(outcome_of(lambda: None)) == {Uncacheable.NO_READS}


def test_now_in_a_filter_is_not_cached(client: Client, prefix: str) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for moment in (now, now - datetime.timedelta(days=1), now.replace(microsecond=0), time.time(), now_ms()):
        found = reasons(outcome_of(lambda moment=moment: client[prefix].c.find_one({"at": {"$gt": moment}})))  # type: ignore[misc]
        assert found == {Uncacheable.CLOCK}, moment
    only_read(outcome_of(lambda: client[prefix].c.find_one({"at": {"$gt": datetime.datetime(2013, 1, 1)}})))


def test_what_the_handler_declares(client: Client, prefix: str) -> None:
    def handler() -> None:
        client[prefix].c.find_one()
        uncacheable("reads a file")

    assert outcome_of(handler).reasons == ((Uncacheable.DECLARED, "reads a file"),)
    uncacheable("outside a request this does nothing")


def test_nothing_is_recorded_outside_a_recording(client: Client, prefix: str) -> None:
    with recording() as recorder:
        client[prefix].c.find_one()
    client[prefix].c.insert_one({})
    assert current() is None
    assert len(only_read(recorder.outcome(now_ms())).ids or ()) == 1


def test_a_recording_inside_another_makes_the_outer_one_uncacheable(client: Client, prefix: str) -> None:
    with recording() as outer:
        with recording() as inner:
            client[prefix].c.find_one()
        assert current() is outer
    only_read(inner.outcome(now_ms()))
    assert reasons(outer.outcome(now_ms())) == {Uncacheable.UNREADABLE}


@pytest.mark.anyio
async def test_async_reads_task_groups_and_threads(
    client: Client, async_client: AsyncMongoClient[dict[str, Any]], prefix: str
) -> None:
    """Everything that a handler starts is seen, wherever it runs; concurrent handlers are told apart."""
    await async_client[prefix].c.find_one()  # the client's background tasks exist before the requests

    async def handler(base: int) -> Outcome:
        with recording() as recorder:
            async with anyio.create_task_group() as group:
                group.start_soon(async_client[prefix].c.find_one, {"_id": base})
                group.start_soon(anyio.to_thread.run_sync, client[prefix].c.find_one, {"_id": base + 1})
                group.start_soon(async_client[prefix].c.find({"_id": {"$gte": base + 10}}, batch_size=50).to_list)
            return recorder.outcome(now_ms())

    outcomes: dict[int, Outcome] = {}

    async def run(base: int) -> None:
        outcomes[base] = await handler(base)

    async with anyio.create_task_group() as group:
        for base in range(0, 60, 20):
            group.start_soon(run, base)

    for base, outcome in outcomes.items():
        assert outcome.reasons == ()
        seen = sorted(list(read.ids or ()) for read in outcome.reads)
        assert seen == [[base], [base + 1], list(range(base + 10, ROWS))]


@pytest.mark.anyio
async def test_first_use_of_an_async_client_in_a_request_is_not_kept_alive(mongo_url: str, prefix: str) -> None:
    """The client's background tasks inherit the request's context; they must not find its recorder afterwards."""
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[Capture()]) as client:
        seen: list[Recorder | None] = []
        later = anyio.Event()

        async def outliving() -> None:
            await later.wait()
            await client[prefix].c.find_one()
            seen.append(current())

        async with anyio.create_task_group() as group:
            with recording() as recorder:
                await client[prefix].c.find_one()
                group.start_soon(outliving)
            later.set()
        assert seen == [None]
        only_read(recorder.outcome(now_ms()))


class RecordingMiddleware:
    """The smallest middleware that records: what the real one does around a miss."""

    def __init__(self, app: ASGIApp, outcomes: dict[str, Outcome]) -> None:
        self.app = app
        self.outcomes = outcomes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with recording() as recorder:

            async def noting(message: Any) -> None:
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    self.outcomes[scope["path"]] = recorder.outcome(now_ms())
                await send(message)

            await self.app(scope, receive, noting)


@pytest.mark.anyio
async def test_fastapi_handlers_of_every_kind(
    client: Client, async_client: AsyncMongoClient[dict[str, Any]], prefix: str
) -> None:
    outcomes: dict[str, Outcome] = {}
    app = FastAPI(middleware=[Middleware(RecordingMiddleware, outcomes=outcomes)])

    @app.get("/async")
    async def in_loop() -> Any:
        return await async_client[prefix].c.find({"n": 1}).to_list()

    @app.get("/def")
    def in_thread() -> Any:
        return client[prefix].c.find({"n": 1}).to_list()

    @app.get("/background")
    def with_background(tasks: BackgroundTasks) -> Any:
        tasks.add_task(client[prefix].c.insert_one, {"_id": "after the response"})
        return client[prefix].c.find({"n": 1}).to_list()

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        for path in ("/async", "/def", "/background"):
            assert len((await http.get(path)).json()) == 25
            assert len(only_read(outcomes[path]).ids or ()) == 25


def test_a_read_in_a_thread_that_carries_no_context_makes_the_requests_uncacheable(client: Client, prefix: str) -> None:
    """It may be a part of any of them: `loop.run_in_executor` does not hand over the context."""

    def handler(elsewhere: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            client[prefix].c.find_one()
            with ThreadPoolExecutor(1) as pool:
                pool.submit(elsewhere).result()

        return run

    def in_background_work() -> None:
        with not_recording():
            client[prefix].c.find_one()

    assert reasons(outcome_of(handler(client[prefix].c.find_one))) == {Uncacheable.UNREADABLE}
    assert reasons(outcome_of(handler(client[prefix].c.find({}).to_list))) == {Uncacheable.UNREADABLE}
    assert reasons(outcome_of(handler(lambda: client[prefix].c.insert_one({})))) == set()
    assert reasons(outcome_of(handler(in_background_work))) == set()
    assert reasons(outcome_of(handler(functools.partial(copy_context().run, client[prefix].c.find_one)))) == {
        Uncacheable.UNREADABLE
    }


@pytest.mark.anyio
async def test_threads_of_the_event_loop_are_told_apart(client: Client, prefix: str) -> None:
    """asyncio.to_thread hands over the context, run_in_executor does not; anyio's workers for other requests do no harm."""
    read = client[prefix].c.find_one
    with recording() as recorder:
        await asyncio.to_thread(read)
        assert only_read(recorder.outcome(now_ms()))
        elsewhere = anyio.Event()

        async def other_request() -> None:
            await elsewhere.wait()
            await anyio.to_thread.run_sync(read)

        with not_recording():
            other = asyncio.ensure_future(other_request())
        elsewhere.set()
        await other
        assert only_read(recorder.outcome(now_ms()))
        await asyncio.get_running_loop().run_in_executor(None, read)
        assert reasons(recorder.outcome(now_ms())) == {Uncacheable.UNREADABLE}


def re_encoded(read: CapturedRead) -> list[bytes]:
    assert read.ids is not None
    return [bson.encode({"_id": key}) for key in read.ids]


IDS: list[Any] = [
    1, bson.Int64(2), 2**40, 2.5, "text", b"bytes", bson.ObjectId(), datetime.datetime(2013, 1, 1, 5, 0, 0, 7000),
    {"a": 1, "b": {"c": [1, 2]}}, bson.Decimal128("1.50"), bson.Binary(b"\x01" * 16, 4), bson.Binary(b"\x02" * 16, 3),
    True, bson.Timestamp(5, 6), bson.MinKey(), bson.MaxKey(),
]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        CodecOptions(),
        CodecOptions(tz_aware=True, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        CodecOptions(document_class=bson.SON),
        CodecOptions(document_class=RawBSONDocument),
        CodecOptions(document_class=RawBSONDocument, tz_aware=True, uuid_representation=4),
        CodecOptions(uuid_representation=4),
        CodecOptions(uuid_representation=3),
        CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS),
    ],
    ids=str,
)
def test_ids_are_the_same_bytes_whatever_the_codec_options(client: Client, prefix: str, options: Any) -> None:
    client[prefix].ids.insert_many([{"_id": identity} for identity in IDS])
    collection = client[prefix].ids.with_options(codec_options=options)
    read = only_read(outcome_of(lambda: collection.find({}).to_list()))
    assert sorted(re_encoded(read)) == sorted(bson.encode({"_id": identity}) for identity in IDS)


@pytest.mark.parametrize("representation", [3, 4, 5, 6])
@pytest.mark.anyio
async def test_native_uuids_in_filters_are_the_bytes_that_mongod_got(
    client: Client, async_client: AsyncMongoClient[dict[str, Any]], prefix: str, representation: int
) -> None:
    options: Any = CodecOptions(uuid_representation=representation)
    value = uuid.uuid4()
    expected = bson.Binary.from_uuid(value, representation)
    client[prefix].u.insert_one({"_id": expected})
    collection = client[prefix].u.with_options(codec_options=options)
    awaitable = async_client[prefix].u.with_options(codec_options=options)
    with recording() as recorder:
        assert collection.count_documents({"_id": value}) == 1
        assert collection.find_one({"_id": value}) == {"_id": value}
        assert await awaitable.find_one({"_id": value}) == {"_id": value}
        outcome = recorder.outcome(now_ms())
    assert outcome.reasons == ()
    for read in outcome.reads:
        assert read.query.filter == {"_id": expected}
        assert read.query.widened is None
        assert read.ids is None or re_encoded(read) == [bson.encode({"_id": expected})]


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


class MoneyCodec(TypeCodec):
    python_type = Money
    bson_type = bson.Int64

    def transform_python(self, value: Money) -> bson.Int64:
        return bson.Int64(value.cents)

    def transform_bson(self, value: bson.Int64) -> Money:
        return Money(value)


def test_types_of_the_applications_own_are_never_matched_exactly(client: Client, prefix: str) -> None:
    options: Any = CodecOptions(type_registry=TypeRegistry([MoneyCodec()]))
    client[prefix].m.insert_one({"_id": bson.Int64(5)})
    collection = client[prefix].m.with_options(codec_options=options)
    assert reasons(outcome_of(lambda: collection.find_one({"_id": Money(5)}))) == {Uncacheable.UNREADABLE}
    read = only_read(outcome_of(lambda: collection.find_one({})))
    assert read.ids is None


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
