"""Views, time-series collections and default collations, as a real mongod defines them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pymongo
import pytest
from pymongo import MongoClient

from quaestor.capture import Capture, Outcome, recording
from quaestor.capture.catalog import POLL_MS, Catalog
from quaestor.capture.views import Kind, is_definition
from quaestor.errors import DatabaseError
from quaestor.model import CapturedRead, Operation, Uncacheable
from quaestor.planning.plan import plan_query
from tests.end_to_end import captured
from tests.end_to_end.captured import Client, reasons
from tests.support import DEADLINE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(mongo_url: str, prefix: str) -> Iterator[Client]:
    with MongoClient[dict[str, Any]](mongo_url, event_listeners=[Capture()]) as client:
        client[prefix].c.insert_many([{"_id": i, "n": i % 3, "secret": i} for i in range(9)])
        client[prefix].other.insert_many([{"_id": i, "c": i} for i in range(9)])
        yield client
        client.drop_database(prefix)


class Commands(pymongo.monitoring.CommandListener):
    """Names of the commands that a client sends."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: pymongo.monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: pymongo.monitoring.CommandFailedEvent) -> None: ...


class Changes(list[frozenset[str]]):
    """The changes that a catalog reported."""


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def now() -> list[int]:
    """The catalog's clock: set now[0]."""
    return [1_000_000]


@pytest.fixture
def catalog(mongo_url: str, prefix: str, changes: Changes, now: list[int]) -> Iterator[Catalog]:
    with MongoClient[dict[str, Any]](mongo_url) as own:
        yield Catalog(own, on_changed=changes.append, clock=lambda: now[0])


async def examined(catalog: Catalog, handler: Callable[[], object]) -> Outcome:
    with recording() as recorder:
        handler()
        outcome = recorder.outcome(0)
    assert outcome.reasons == ()
    return await catalog.examine(outcome.reads)


async def only_read(catalog: Catalog, handler: Callable[[], object]) -> CapturedRead:
    """The only read of records, beside those of definitions."""
    outcome = await examined(catalog, handler)
    return captured.only_read(replace(outcome, reads=_of_records(outcome.reads)))


def _of_records(reads: Sequence[CapturedRead]) -> tuple[CapturedRead, ...]:
    return tuple(read for read in reads if not is_definition(read.query))


async def test_a_plain_collection_is_left_alone(client: Client, prefix: str, catalog: Catalog) -> None:
    with recording() as recorder:
        client[prefix].c.find({"n": 1}).limit(2).to_list()
        client[prefix].never_created.find_one()
        reads = recorder.outcome(0).reads
    assert await catalog.resolve(reads) == (reads, ())


async def test_a_view_that_filters_is_its_collection_with_one_more_condition(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    client[prefix].create_collection("v", viewOn="c", pipeline=[{"$match": {"n": 1}}])
    catalog.definition(f"{prefix}.v")
    read = await only_read(catalog, lambda: client[prefix].v.find({"_id": {"$gt": 2}}).sort("_id", 1).to_list())
    assert (read.query.namespace, read.query.operation) == (f"{prefix}.c", Operation.FIND)
    assert read.query.filter == {"$and": [{"n": 1}, {"_id": {"$gt": 2}}]}
    assert read.query.sort == (("_id", 1),)
    assert list(read.ids or ()) == [4, 7]
    assert read.query.widened is None


@pytest.mark.parametrize(
    "run",
    [
        lambda view: view.find({"n": {"$gt": 0}}).sort([("n", -1), ("_id", 1)]).skip(1).limit(3).to_list(),
        lambda view: view.find({}, {"n": 1}).to_list(),
        lambda view: view.count_documents({"n": 1}),
        lambda view: view.distinct("n", {"_id": {"$lt": 5}}),
        lambda view: view.aggregate(
            [{"$group": {"_id": "$n", "sum": {"$sum": "$_id"}}}, {"$sort": {"_id": 1}}]
        ).to_list(),
        lambda view: view.aggregate([{"$match": {"n": 1}}, {"$limit": 2}]).to_list(),
    ],
)
async def test_a_read_through_a_view_reads_like_the_rewritten_query(
    client: Client, prefix: str, catalog: Catalog, run: Callable[[Any], Any]
) -> None:
    """Any operation, through a view on a view that also shapes records: run as rewritten it gives the same."""
    client[prefix].create_collection("low", viewOn="c", pipeline=[{"$match": {"_id": {"$lt": 8}}}])
    client[prefix].create_collection(
        "v", viewOn="low", pipeline=[{"$set": {"n": {"$add": ["$n", 0]}}}, {"$unset": "secret"}]
    )
    catalog.definition(f"{prefix}.v")
    answers: list[Any] = []
    read = await only_read(catalog, lambda: answers.append(run(client[prefix].v)))
    assert (read.query.namespace, read.query.operation) == (f"{prefix}.c", Operation.AGGREGATE)
    again = client[prefix].c.aggregate(list(read.query.pipeline)).to_list()
    (answer,) = answers
    if isinstance(answer, int):
        assert again == [{"_id": 1, "n": answer}]
    elif answer and not isinstance(answer[0], dict):
        assert sorted(group["_id"] for group in again) == sorted(answer)
    else:
        assert again == answer


async def test_collections_behind_views_in_a_pipeline_are_dependencies_too(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    """$lookup from a view that itself joins: every collection that takes part is among the reads."""
    database = client[prefix]
    database.create_collection("third")
    join_third = {"$lookup": {"from": "third", "localField": "_id", "foreignField": "_id", "as": "t"}}
    database.create_collection("joined", viewOn="other", pipeline=[join_third])
    catalog.definition(f"{prefix}.joined")
    join = {"$lookup": {"from": "joined", "localField": "_id", "foreignField": "c", "as": "j"}}
    outcome = await examined(catalog, lambda: database.c.aggregate([join]).to_list())
    assert outcome.reasons == ()
    main, *foreign = _of_records(outcome.reads)
    assert main.query.pipeline == (join,)
    assert {read.query.namespace for read in foreign} == {f"{prefix}.other", f"{prefix}.third"}
    assert all(read.query.widened for read in foreign)


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        ([{"$match": {"$expr": {"$lt": ["$at", "$$NOW"]}}}], Uncacheable.CLOCK),
        ([{"$set": {"x": {"$rand": {}}}}], Uncacheable.RANDOM),
        ([{"$sample": {"size": 2}}], Uncacheable.RANDOM),
    ],
)
async def test_a_view_that_no_write_invalidates_is_not_cached(
    client: Client, prefix: str, catalog: Catalog, pipeline: list[dict[str, Any]], reason: Uncacheable
) -> None:
    client[prefix].create_collection("v", viewOn="c", pipeline=pipeline)
    catalog.definition(f"{prefix}.v")
    outcome = await examined(catalog, lambda: client[prefix].v.find_one())
    assert reasons(outcome) == {reason}
    reads, values = await catalog.resolve(outcome.reads)
    assert values == () or values == (reason.value,)
    assert reads


async def test_time_series_collections_are_not_cached_even_behind_a_view(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    client[prefix].create_collection("ts", timeseries={"timeField": "at"})
    client[prefix].create_collection("v", viewOn="ts", pipeline=[])
    catalog.definition(f"{prefix}.v")
    for name in ("ts", "v"):
        outcome = await examined(catalog, lambda name=name: client[prefix][name].find_one())  # type: ignore[misc]
        assert reasons(outcome) == {Uncacheable.TIME_SERIES}


async def test_a_default_collation_applies_unless_the_command_says_otherwise(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    german = {"locale": "de", "strength": 2}
    collection = client[prefix].create_collection("g", collation=german)
    default = await only_read(catalog, lambda: collection.find_one({"name": "x"}))
    assert default.query.collation is not None
    assert (default.query.collation["locale"], default.query.collation["strength"]) == ("de", 2)
    simple = await only_read(catalog, lambda: collection.find({}).collation({"locale": "simple"}).to_list())
    assert simple.query.collation is None
    english = await only_read(catalog, lambda: collection.find({}).collation({"locale": "en"}).to_list())
    assert english.query.collation == {"locale": "en"}


async def test_a_view_seen_for_the_first_time_is_cached_from_the_second_read_on(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    """Its definition was looked up after the read: it may have been another one then."""
    client[prefix].create_collection("v", viewOn="c", pipeline=[])
    assert reasons(await examined(catalog, lambda: client[prefix].v.find_one())) == {Uncacheable.VIEW}
    await only_read(catalog, lambda: client[prefix].v.find_one())


async def test_each_view_on_the_way_is_a_dependency_by_its_own_name(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    """A view below another view or inside a pipeline is a dependency too, and each view once for any number of reads."""
    client[prefix].create_collection("low", viewOn="c", pipeline=[{"$match": {"_id": {"$lt": 8}}}])
    client[prefix].create_collection("v", viewOn="low", pipeline=[{"$match": {"n": 1}}])
    client[prefix].create_collection("side", viewOn="other", pipeline=[])
    lookup: list[dict[str, Any]] = [{"$lookup": {"from": "side", "localField": "n", "foreignField": "c", "as": "s"}}]
    catalog.definition(f"{prefix}.v")

    def handler() -> None:
        client[prefix].v.find_one()
        client[prefix].v.find().to_list()
        client[prefix].c.aggregate(lookup).to_list()

    reads = (await examined(catalog, handler)).reads
    views = [read.query.namespace for read in reads if is_definition(read.query)]
    assert sorted(views) == [f"{prefix}.low", f"{prefix}.side", f"{prefix}.v"]


async def test_nothing_is_listed_while_nobody_reads_and_events_report_definitions(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    """A read may have been resolved by what was listed before a change, so it calls for one poll; a change for another."""
    catalog.definition(f"{prefix}.c")
    assert catalog.is_poll_due
    catalog.poll()
    assert not catalog.is_poll_due
    await examined(catalog, lambda: client[prefix].c.find_one({"_id": 1}))
    assert catalog.is_poll_due
    client[prefix].create_collection("v", viewOn="c", pipeline=[])
    catalog.poll()
    assert catalog.is_poll_due
    catalog.poll()
    assert not catalog.is_poll_due


async def test_keys_of_indexes_are_listed_while_somebody_reads_and_anew_after_a_rest(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    """Events report index builds, so nobody lists indexes at rest; a read after it never goes by the keys before it."""

    def left_to_the_database() -> None:
        client[prefix].c.find({"n": 1}).limit(2).to_list()

    client[prefix].c.create_index("n")
    assert (await only_read(catalog, left_to_the_database)).query.index_keys == (("n",),)
    catalog.poll()
    assert not catalog.is_poll_due
    catalog.rest()
    client[prefix].c.create_index([("n", 1), ("secret", 1)])
    assert (await only_read(catalog, left_to_the_database)).query.index_keys == (("n",), ("n", "secret"))


async def test_a_catalog_at_rest_sends_no_command(client: Client, prefix: str, mongo_url: str) -> None:
    """Its loop goes on, and asks the database nothing, however many namespaces were read from before."""
    commands, rests = Commands(), list[int]()
    enough = anyio.Event()

    def polled() -> None:
        rests.append(len(commands.names))
        if len(rests) >= 8 and len(set(rests[-4:])) == 1:
            enough.set()

    with MongoClient[dict[str, Any]](mongo_url, event_listeners=[commands]) as own:
        catalog = Catalog(own, poll_ms=1)
        client[prefix].c.create_index("n")
        await only_read(catalog, lambda: client[prefix].c.find({"n": 1}).limit(2).to_list())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(catalog.run, on_polled=polled))
            with anyio.fail_after(DEADLINE_S):
                await enough.wait()
            tasks.cancel_scope.cancel()
    assert "listIndexes" in commands.names


async def test_a_changed_view_is_reported_twice_with_its_collections(
    client: Client, prefix: str, catalog: Catalog, changes: Changes
) -> None:
    database = client[prefix]
    database.create_collection("v", viewOn="c", pipeline=[{"$match": {"n": 1}}])
    catalog.definition(f"{prefix}.v")
    catalog.poll()
    assert changes == []
    database.command("collMod", "v", viewOn="other", pipeline=[])
    for _ in range(4):
        catalog.poll()
    assert changes == [frozenset({f"{prefix}.v", f"{prefix}.c", f"{prefix}.other"})] * 2


async def test_a_collection_that_becomes_a_view_is_reported(
    client: Client, prefix: str, catalog: Catalog, changes: Changes
) -> None:
    catalog.definition(f"{prefix}.c")
    client[prefix].c.rename("below")
    client[prefix].create_collection("c", viewOn="below", pipeline=[])
    catalog.poll()
    assert changes == [frozenset({f"{prefix}.c", f"{prefix}.below"})]


async def test_a_change_is_reported_even_if_a_read_noticed_it_first(
    client: Client, prefix: str, catalog: Catalog, changes: Changes, now: list[int]
) -> None:
    """After an outage longer than definitions are trusted, the next read lists them again."""
    client[prefix].create_collection("v", viewOn="c", pipeline=[{"$match": {"n": 1}}])
    catalog.definition(f"{prefix}.v")
    client[prefix].command("collMod", "v", viewOn="c", pipeline=[{"$match": {"n": 2}}])
    now[0] += POLL_MS * 10
    assert reasons(await examined(catalog, lambda: client[prefix].v.find_one())) == {Uncacheable.VIEW}
    catalog.poll()
    assert changes == [frozenset({f"{prefix}.v", f"{prefix}.c"})]


SEARCH: dict[str, Any] = {"$text": {"$search": "dogs"}}
BY_SCORE: list[Any] = [("score", {"$meta": "textScore"})]


@pytest.mark.parametrize(
    "run",
    [
        lambda d: d.c.find(SEARCH).to_list(),
        lambda d: d.c.find({"$or": [SEARCH, {"_id": 1}]}).to_list(),
        lambda d: d.c.find(SEARCH, {"score": {"$meta": "textScore"}}).sort(BY_SCORE).limit(2).to_list(),
        lambda d: d.c.aggregate([{"$match": SEARCH}, {"$group": {"_id": "$n"}}]).to_list(),
        lambda d: d.c.count_documents(SEARCH),
        lambda d: d.v.find({"n": 1}).to_list(),
        lambda d: d.shaped.find({"n": 1}).to_list(),
    ],
)
async def test_a_search_carries_the_definition_of_its_text_index(
    client: Client, prefix: str, catalog: Catalog, run: Callable[[Any], Any]
) -> None:
    """In a find, a pipeline or a view: with the definition the plan follows the words, without it the collection."""
    database = client[prefix]
    database.c.create_index([("name", "text"), ("title", "text")], weights={"title": 3}, default_language="none")
    for key in (1, 4):
        database.c.update_one({"_id": key}, {"$set": {"title": "dogs and cats"}})
    database.create_collection("v", viewOn="c", pipeline=[{"$match": SEARCH}])
    database.create_collection("shaped", viewOn="v", pipeline=[{"$set": {"m": "$n"}}])
    catalog.definition(f"{prefix}.v")
    read = await only_read(catalog, lambda: run(database))
    assert read.query.text_index is not None
    assert read.query.text_index["weights"] == {"name": 1, "title": 3}
    plan = plan_query(read.query)
    assert plan.predicate is not None
    assert plan.predicate.matches({"_id": 4, "n": 1, "title": "dogs"})
    assert not plan.predicate.matches({"_id": 5, "n": 1, "title": "a dog"})


async def test_the_definition_of_a_text_index_is_the_one_after_the_read(
    client: Client, prefix: str, catalog: Catalog
) -> None:
    """A change of the index before the read is known; a change after the read comes by the change stream."""
    collection = client[prefix].c
    name = collection.create_index([("name", "text")])
    assert (await only_read(catalog, lambda: collection.find(SEARCH).to_list())).query.text_index
    collection.drop_index(name)
    collection.create_index([("title", "text")])
    read = await only_read(catalog, lambda: collection.find(SEARCH).to_list())
    assert read.query.text_index is not None
    assert read.query.text_index["weights"] == {"title": 1}


async def test_an_older_server_is_asked_again_and_again_for_its_text_indexes(
    client: Client, prefix: str, catalog: Catalog, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its change stream does not tell of them: the first read is not cached, and a change is reported twice."""
    monkeypatch.setattr("quaestor.capture.catalog._DEFINITIONS_REPORTED", 10_000)
    collection = client[prefix].c
    name = collection.create_index([("name", "text")])
    assert reasons(await examined(catalog, lambda: collection.find(SEARCH).to_list())) == {Uncacheable.VIEW}
    assert (await only_read(catalog, lambda: collection.find(SEARCH).to_list())).query.text_index
    catalog.poll()
    assert changes == []
    collection.drop_index(name)
    for _ in range(3):
        catalog.poll()
    assert changes == [frozenset({f"{prefix}.c"})] * 2
    within = {"$unionWith": {"coll": "c", "pipeline": [{"$match": SEARCH}]}}
    collection.create_index([("name", "text")])
    outcome = await examined(catalog, lambda: client[prefix].other.aggregate([within]).to_list())
    assert reasons(outcome) == {Uncacheable.UNREADABLE}


async def test_known_definitions_cost_no_command(client: Client, prefix: str, mongo_url: str) -> None:
    commands = Commands()
    with MongoClient[dict[str, Any]](mongo_url, event_listeners=[commands]) as own:
        catalog = Catalog(own)
        for _ in range(5):
            await only_read(catalog, lambda: client[prefix].c.find_one())
    assert commands.names.count("listCollections") == 1


async def test_reads_of_unknown_collections_are_not_cached(client: Client, prefix: str) -> None:
    with MongoClient[dict[str, Any]]("127.0.0.1", 1, serverSelectionTimeoutMS=50) as nobody:
        catalog = Catalog(nobody)
        assert reasons(await examined(catalog, lambda: client[prefix].c.find_one())) == {Uncacheable.VIEW}
        with pytest.raises(DatabaseError, match="MongoDB cannot be reached"):
            catalog.definition(f"{prefix}.c")


async def test_definitions_tell_images_and_kind(client: Client, prefix: str, catalog: Catalog) -> None:
    client[prefix].create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    client[prefix].create_collection("capped", capped=True, size=4096)
    assert catalog.definition(f"{prefix}.images").images
    assert catalog.definition(f"{prefix}.capped").capped
    assert catalog.definition(f"{prefix}.c").kind is Kind.COLLECTION
