"""Queries that cannot be maintained, followed through a whole grid.

After every write, the list that a subscriber makes of its events equals the query executed again on the database.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pymongo
import pytest

from quaestor.errors import SubscriptionError, UnsupportedQueryError
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.incremental import RenewalSettings, ResultEvent, plan_following
from quaestor.incremental.recomputation import rows_of
from quaestor.model import GridShape, MatchType, Operation, Query, WriteKind
from quaestor.query.bson_order import order_key
from quaestor.realtime.notices import DeliveryMode
from tests.oracle.maintained_generator import Document, Generator
from tests.oracle.maintained_world import World
from tests.oracle.standing_world import Grid, StandingWorld, Subscriber
from tests.support import eventually

ONE = GridShape(query_partitions=1, write_partitions=1)
FOUR = GridShape(query_partitions=2, write_partitions=2)
WRITES = 25
FRENCH = {"locale": "fr", "strength": 1}
SUM = {"_id": "$a", "n": {"$sum": 1}}
ZERO = {"type": "Point", "coordinates": [0, 0]}
CONTINUED = {"coll": "others", "pipeline": [{"$match": {"a": 2}}, {"$project": {"w": 1}}]}
NUMBERED = {"partitionBy": "$a", "sortBy": {"_id": 1}, "output": {"rank": {"$documentNumber": {}}}}
PATHS = {
    "from": "others",
    "startWith": "$a",
    "connectFromField": "v",
    "connectToField": "a",
    "as": "path",
    "maxDepth": 2,
}
TOP = {"$topN": {"n": 2, "sortBy": {"w": 1, "_id": 1}, "output": "$_id"}}
PIPELINES: dict[str, list[Document]] = {
    "facet": [
        {"$match": {"a": {"$gte": 1}}},
        {"$facet": {"all": [{"$count": "n"}], "by": [{"$sortByCount": "$w"}, {"$sort": {"_id": 1}}]}},
    ],
    "bucket": [{"$bucket": {"groupBy": "$a", "boundaries": [0, 2, 4], "output": {"n": {"$sum": 1}}}}],
    "union": [{"$match": {"a": 1}}, {"$project": {"w": 1}}, {"$unionWith": CONTINUED}, {"$sort": {"_id": 1, "w": 1}}],
    "graph": [{"$match": {"a": 1}}, {"$graphLookup": PATHS}, {"$project": {"n": {"$size": "$path"}}}],
    "window fields": [{"$match": {"a": {"$lt": 3}}}, {"$setWindowFields": NUMBERED}, {"$project": {"rank": 1}}],
    "top n": [{"$group": {"_id": "$a", "top": TOP}}],
    "deviation": [{"$match": {"_id": {"$type": "int"}}}, {"$group": {"_id": "$a", "spread": {"$stdDevPop": "$_id"}}}],
    "group after limit": [{"$sort": {"w": 1}}, {"$limit": 5}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}],
    "without identities": [
        {"$match": {"a": 2}},
        {"$sort": {"_id": 1}},
        {"$skip": 1},
        {"$unwind": "$tags"},
        {"$project": {"_id": 0, "tags": 1}},
    ],
    "same identities": [
        {"$sort": {"_id": 1}},
        {"$limit": 6},
        {"$unwind": "$tags"},
        {"$match": {"tags": {"$ne": "ant"}}},
        {"$sort": {"_id": 1, "tags": 1}},
    ],
    "geo near": [{"$geoNear": {"near": ZERO, "distanceField": "far", "key": "at"}}, {"$limit": 3}],
}


def near(metres: int) -> Document:
    """The filter of places within a distance."""
    return {"at": {"$near": {"$geometry": ZERO, "$maxDistance": metres}}}


def shapes(database: str) -> dict[str, Query]:
    """One query of each kind that cannot be maintained, by the name of the kind."""
    find = Query(namespace=f"{database}.things", operation=Operation.FIND, filter={})
    count = replace(find, operation=Operation.COUNT)
    pipelines = {
        name: replace(find, operation=Operation.AGGREGATE, pipeline=tuple(stages)) for name, stages in PIPELINES.items()
    }
    return pipelines | {
        "collated filter": replace(find, filter={"w": "ANT"}, collation=FRENCH),
        "collated order": replace(find, sort=(("w", 1),), limit=5, collation=FRENCH),
        "collated count": replace(count, filter={"w": "ANT"}, collation=FRENCH),
        "collated distinct": replace(find, operation=Operation.DISTINCT, distinct_key="w", collation=FRENCH),
        "let": replace(find, filter={"$expr": {"$eq": ["$a", "$$wanted"]}}, let={"wanted": 1}),
        "distance": replace(find, filter=near(500_000), limit=4),
        "near count": replace(count, filter=near(300_000)),
        "score": replace(
            find, filter={"$text": {"$search": "ant bee"}}, sort=(("score", {"$meta": "textScore"}),), limit=4
        ),
    }


class Places(Generator):
    """Records that also have a place."""

    def thing(self) -> Document:
        coordinates = [self.random.randrange(6), self.random.randrange(6)]
        return super().thing() | {"at": {"type": "Point", "coordinates": coordinates}}


def opened(
    client: pymongo.MongoClient[Document],
    name: str,
    seed: int,
    shape: GridShape,
    *,
    images: bool = False,
    poll_ms: int = 1,
) -> StandingWorld:
    world = World(client, name, images, Places(seed, name))
    world.database["things"].create_index([("at", "2dsphere")])
    world.database["things"].create_index([("w", "text")])
    renewal = RenewalSettings(poll_interval_ms=poll_ms)
    standing = StandingWorld(world, Grid(client, shape, renewal=renewal, poll_interval_ms=max(poll_ms, 1)))
    standing.feed()
    return standing


def answer(standing: StandingWorld, query: Query) -> list[tuple[Any, Any]]:
    """Key and document of each row that the database returns."""
    plan = plan_following(query)
    own = plan.own
    command: Document
    options: Document = {} if query.collation is None else {"collation": query.collation}
    options |= {} if query.let is None else {"let": query.let}
    collection = standing.world.database["things"]
    if own.operation is Operation.DISTINCT:
        command = {"distinct": "things", "key": own.distinct_key, "query": own.filter} | options
        documents = standing.world.database.command(command)["values"]
    elif own.operation is Operation.AGGREGATE:
        command = {"aggregate": "things", "pipeline": list(own.pipeline), "cursor": {}} | options
        documents = list(collection.database.cursor_command(command, codec_options=BSON_OPTIONS))
    else:
        command = {"find": "things", "filter": own.filter, "limit": own.limit} | options
        command |= {"sort": dict(own.sort)} if own.sort else {}
        command |= {"projection": own.projection} if own.projection else {}
        documents = list(collection.database.cursor_command(command, codec_options=BSON_OPTIONS))
    return [(row.id, row.document) for row in rows_of(plan, documents)]


def comparable(rows: list[tuple[Any, Any]], *, ordered: bool) -> list[Any]:
    keyed = [order_key(document) for _, document in rows]
    return keyed if ordered else sorted(keyed)


async def check(standing: StandingWorld, followed: dict[str, Subscriber], note: str) -> None:
    """Each list is what the database returns now."""
    await standing.settle()
    for name, subscriber in followed.items():
        await subscriber.take()
        query, ordered = subscriber.live.query, subscriber.live.ordered
        expected = comparable(answer(standing, query), ordered=ordered)
        assert comparable(subscriber.rows, ordered=ordered) == expected, f"{name}, {note}: {subscriber.rows}"


async def follow(standing: StandingWorld, queries: dict[str, Query]) -> dict[str, Subscriber]:
    app = standing.grid.app()
    followed = {}
    for name, query in queries.items():
        live = await app.subscribe(query)
        assert (live.delivery, bool(live.recomputation)) == (DeliveryMode.RECOMPUTED, True), name
        followed[name] = Subscriber(live, live.ordered)
        standing.subscribers.append(followed[name])
    return followed


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [ONE, FOUR], ids=["1x1", "2x2"])
@pytest.mark.parametrize("images", [False, True], ids=["without images", "with images"])
async def test_after_every_write_each_list_is_what_the_database_returns(
    client: pymongo.MongoClient[Document], prefix: str, shape: GridShape, images: bool
) -> None:
    """Each kind of query that cannot be maintained is read again and reported as the difference."""
    standing = opened(client, prefix, 7, shape, images=images)
    try:
        followed = await follow(standing, shapes(standing.world.name))
        await check(standing, followed, "at first")
        for number in range(WRITES):
            standing.write()
            await check(standing, followed, f"write {number}")
        silent = [name for name, subscriber in followed.items() if not subscriber.events]
        assert not silent, "nothing happened to these results"
        assert all(subscriber.wholes == 1 for subscriber in followed.values())
    finally:
        standing.close()


@pytest.mark.anyio
async def test_events_of_a_reading_have_the_operations_of_the_writes(
    client: pymongo.MongoClient[Document], prefix: str
) -> None:
    """An insert, an update and a delete are reported as such; a record that another one pushes out has no operation."""
    standing = opened(client, prefix, 3, ONE)
    try:
        things = standing.world.database["things"]
        things.delete_many({})
        things.insert_many([{"_id": 1, "w": "b"}, {"_id": 2, "w": "d"}])
        standing.feed()
        (subscriber,) = (await follow(standing, {"": shapes(standing.world.name)["collated order"]})).values()
        live = subscriber.live
        notified: list[tuple[Any, ...]] = []

        async def events() -> list[tuple[Any, ...]]:
            standing.feed()
            await standing.settle()
            notified.clear()
            while live.waiting:
                event = await anext(live)
                if isinstance(event, ResultEvent):
                    notified.append((event.match_type, event.operation, event.key))
            return notified

        await events()
        things.insert_one({"_id": 3, "w": "c"})
        assert await events() == [(MatchType.ADD, WriteKind.INSERT, 3)]
        things.insert_many([{"_id": 4, "w": "a"}, {"_id": 5, "w": "aa"}])
        things.update_one({"_id": 4}, {"$set": {"n": 1}})
        assert set(await events()) == {(MatchType.ADD, WriteKind.INSERT, 4), (MatchType.ADD, WriteKind.INSERT, 5)}
        things.update_one({"_id": 3}, {"$set": {"n": 1}})
        assert await events() == [(MatchType.CHANGE, WriteKind.UPDATE, 3)]
        things.insert_one({"_id": 6, "w": "ab"})
        assert await events() == [(MatchType.REMOVE, None, 2), (MatchType.ADD, WriteKind.INSERT, 6)]
        things.delete_one({"_id": 1})
        assert await events() == [(MatchType.REMOVE, WriteKind.DELETE, 1), (MatchType.ADD, None, 2)]
    finally:
        standing.close()


@pytest.mark.anyio
async def test_the_smallest_poll_interval_of_all_subscriptions_counts(
    client: pymongo.MongoClient[Document], prefix: str
) -> None:
    """Under an hour's interval a second write waits; a subscriber with a smaller interval sees it, and so does the first."""
    standing = opened(client, prefix, 5, ONE, poll_ms=3_600_000)
    try:
        things, query = standing.world.database["things"], shapes(standing.world.name)["facet"]
        app = standing.grid.app()
        slow = Subscriber(await app.subscribe(query), ordered=False)
        await eventually(lambda: slow.live.fresh_as_of_ms > 0)
        things.insert_one({"_id": "new", "a": 3})
        standing.feed()
        await eventually(lambda: slow.live.version >= standing.world.version)
        first = slow.live.rows()
        things.insert_one({"_id": "newer", "a": 3})
        standing.feed()
        standing.grid.wait(standing.world.version)
        assert slow.live.rows() == first, "the poll interval is over only in an hour"
        quick = Subscriber(await standing.grid.app().subscribe(query, poll_interval_ms=1), ordered=False)
        things.insert_one({"_id": "newest", "a": 3})
        standing.feed()
        for subscriber in (slow, quick):
            await eventually(lambda live=subscriber.live: live.version >= standing.world.version)  # type: ignore[misc]
            await subscriber.take()
            assert comparable(subscriber.rows, ordered=False) == comparable(answer(standing, query), ordered=False)
    finally:
        standing.close()


@pytest.mark.anyio
async def test_under_constant_writes_a_result_advances(client: pymongo.MongoClient[Document], prefix: str) -> None:
    """A write behind each reading leaves the result behind for ever; each reading is shown nevertheless, with its version."""
    standing = opened(client, prefix, 9, ONE)
    try:
        (subscriber,) = (await follow(standing, {"": shapes(standing.world.name)["union"]})).values()
        await check(standing, {"": subscriber}, "at first")

        def write() -> None:
            with standing.racing:
                if standing.grid.snapshots.meanwhile is not None:
                    standing.world.database["things"].insert_one({"a": 1})
                    standing.feed()
                    standing.grid.wait(standing.world.version)

        standing.grid.snapshots.meanwhile = write
        write()
        live, seen = subscriber.live, subscriber.live.version
        for _ in range(5):
            await eventually(lambda before=seen: live.version > before)  # type: ignore[misc]
            seen = live.version
        assert live.proven == 0, "it is never proved to be the newest result"
        standing.calm()
        await check(standing, {"": subscriber}, "at last")
        assert subscriber.wholes == 1
    finally:
        standing.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ([{"$merge": "others"}], r"\$merge"),
        ([{"$facet": {"x": [{"$out": "others"}]}}], r"\$out"),
        ([{"$sample": {"size": 1}}], r"\$sample"),
        ([{"$match": {"$expr": {"$lt": ["$a", {"$rand": {}}]}}}], r"\$rand"),
        ([{"$project": {"at": "$$NOW"}}, {"$facet": {"x": []}}], r"\$\$NOW"),
        ([{"$collStats": {"count": {}}}], r"\$collStats"),
    ],
)
async def test_a_result_that_does_not_follow_from_writes_is_refused(
    client: pymongo.MongoClient[Document], prefix: str, stages: list[Document], reason: str
) -> None:
    """Writing, random and clock-dependent queries are refused before the database receives them."""
    query = Query(namespace=f"{prefix}.things", operation=Operation.AGGREGATE, filter={}, pipeline=tuple(stages))
    grid = Grid(client, ONE)
    try:
        with pytest.raises(UnsupportedQueryError, match=reason):
            await grid.app().subscribe(query)
        assert client[prefix].list_collection_names() == []
    finally:
        grid.stop()


@pytest.mark.anyio
async def test_exact_delivery_of_a_recomputed_query_is_refused(
    client: pymongo.MongoClient[Document], prefix: str
) -> None:
    """The reason names the stage, and the delivery that is possible."""
    grid = Grid(client, ONE)
    try:
        with pytest.raises(SubscriptionError, match=r"\$facet.*delivery='state'"):
            await grid.app().subscribe(shapes(prefix)["facet"], delivery=DeliveryMode.EXACT)
    finally:
        grid.stop()
