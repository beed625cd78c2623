"""Random writes on real collections and random subscriptions through a whole grid.

After every write, the list that a subscriber makes of its events equals the query executed again on the database.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pymongo
import pytest

from quaestor.model import GridShape, Operation, Query
from tests.oracle.maintained_generator import Document, Generator
from tests.oracle.maintained_world import World
from tests.oracle.standing_world import Grid, StandingWorld
from tests.property.test_standing_orders import EVERYWHERE, LONGER
from tests.standing_orders.database import execute
from tests.support import eventually

ONE = GridShape(query_partitions=1, write_partitions=1)
FOUR = GridShape(query_partitions=2, write_partitions=2)
QUERIES = 12
WRITES = 40


def opened(
    client: pymongo.MongoClient[Document], prefix: str, seed: int, shape: GridShape, *, images: bool
) -> StandingWorld:
    name = f"{prefix}_{seed}"
    world = World(client, name, images, Generator(seed, name))
    standing = StandingWorld(world, Grid(client, shape))
    standing.feed()
    return standing


async def run(standing: StandingWorld, seed: int, *, burst: bool) -> Counter[str]:
    """Subscribers of two app processes come and go while it goes on."""
    counts: Counter[str] = Counter()
    apps = [standing.grid.app(), standing.grid.app()]
    try:
        for number in range(WRITES):
            if len(standing.subscribers) < QUERIES:
                await standing.subscribe(standing.world.random.choice(apps))
                if standing.subscribers and standing.world.random.random() < 0.3:
                    query = standing.world.random.choice(standing.subscribers).live.query
                    await standing.subscribe(standing.world.random.choice(apps), query)
            if standing.world.random.random() < 0.1:
                await standing.cancel(standing.world.random.choice(standing.subscribers))
            standing.write(standing.world.random.randint(1, 6) if burst else 1)
            await standing.check(f"seed {seed}, write {number}")
        for subscriber in standing.subscribers:
            assert subscriber.wholes == 1
            counts["events"] += subscriber.events
            counts["changed"] += subscriber.events > 0
        return counts
    finally:
        standing.close()


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [ONE, FOUR], ids=["1x1", "2x2"])
@pytest.mark.parametrize("images", [False, True], ids=["membership", "before-images"])
async def test_after_every_write_each_subscriber_has_what_the_database_returns(
    client: pymongo.MongoClient[Document], prefix: str, shape: GridShape, images: bool
) -> None:
    """Filtered, sorted, limited, offset, grouped and joined queries, also in bursts of writes."""
    counts: Counter[str] = Counter()
    for seed in (10, 11):
        standing = opened(client, prefix, seed, shape, images=images)
        counts += await run(standing, seed, burst=seed % 2 == 1)
    assert counts["changed"] >= QUERIES, f"too little happened to mean much: {counts}"


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [ONE, FOUR], ids=["1x1", "2x2"])
@pytest.mark.parametrize("images", [False, True], ids=["membership", "before-images"])
async def test_writes_between_a_read_and_its_announcement_are_not_missed(
    client: pymongo.MongoClient[Document], prefix: str, shape: GridShape, images: bool
) -> None:
    """The races of writes with subscriptions and renewals, lost each time.

    Writes come behind every read, and reach the cells before the cells know the query.
    """
    standing = opened(client, prefix, 20, shape, images=images)
    standing.race()
    try:
        app = standing.grid.app()
        for number in range(QUERIES):
            standing.race()
            await standing.subscribe(app)
            await standing.subscribe(app)
            with standing.racing:
                standing.write(3)
            await standing.settle()
            standing.calm()
            await standing.check(f"round {number}")
    finally:
        standing.close()


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [ONE, FOUR], ids=["1x1", "2x2"])
@pytest.mark.parametrize("seed", [41, 45])
@pytest.mark.parametrize("images", [False, True], ids=["membership", "before-images"])
async def test_reads_from_before_the_cells_have_seen_the_writes_are_not_undone(
    client: pymongo.MongoClient[Document], prefix: str, shape: GridShape, images: bool, seed: int
) -> None:
    """The race won by each read: it contains writes that the cells see later, with records looked up later still."""
    standing = opened(client, prefix, seed, shape, images=images)
    try:
        app = standing.grid.app()
        for number in range(QUERIES):
            for _ in range(4):
                standing.world.write()
            await standing.subscribe(app)
            await standing.subscribe(app)
            for _ in range(8):
                standing.world.write()
            standing.feed()
            await standing.check(f"round {number}")
    finally:
        standing.close()


@pytest.mark.anyio
@pytest.mark.parametrize("last", ["delete", "leave"])
async def test_reads_may_be_newer_than_the_writes_that_the_cells_have_seen(
    client: pymongo.MongoClient[Document], prefix: str, last: str
) -> None:
    """An update that the read contains, whose record was looked up after the next write: that one counts nevertheless."""
    standing = opened(client, prefix, 38, ONE, images=False)
    try:
        things = standing.world.database["things"]
        things.replace_one({"_id": 0}, {"a": 1, "w": "ant"}, upsert=True)
        standing.feed()
        things.update_one({"_id": 0}, {"$set": {"w": "bee"}})
        query = Query(namespace=f"{standing.world.name}.things", operation=Operation.FIND, filter={"a": 1})
        subscriber = await standing.subscribe(standing.grid.app(), query)
        assert subscriber is not None
        await subscriber.take()
        await eventually(lambda: standing.grid.queries() == (1, 1))
        if last == "delete":
            things.delete_one({"_id": 0})
        else:
            things.update_one({"_id": 0}, {"$set": {"a": 2}})
        standing.feed()
        await standing.check("written after it was read")
        assert subscriber.events > 0, "it was there when it was read"
    finally:
        standing.close()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.anyio
@pytest.mark.parametrize("images", [False, True], ids=["membership", "before-images"])
@pytest.mark.parametrize("burst", [False, True], ids=["singly", "in bursts"])
async def test_in_many_more_worlds(
    client: pymongo.MongoClient[Document], prefix: str, images: bool, burst: bool
) -> None:
    for seed in range(1_000, 1_020):
        standing = opened(client, prefix, seed, FOUR if seed % 2 else ONE, images=images)
        await run(standing, seed, burst=burst)


@pytest.mark.parametrize("images", [False, True], ids=["as they are", "with before-images"])
def test_the_small_worlds_of_every_order_answer_as_the_database_does(
    client: pymongo.MongoClient[Document], prefix: str, images: bool
) -> None:
    """The expected answers of test_standing_orders.py equal mongod's, after each of the same writes."""
    compared = 0
    for case in [*(case for case, _ in EVERYWHERE.values()), *LONGER.values()]:
        database, queries = case.database(), case.queries
        things = client[prefix].create_collection("c", changeStreamPreAndPostImages={"enabled": images})
        things.insert_many([dict(record) for record in case.start.values()])
        for number, state in enumerate(database.states):
            if number:
                image = database.log[number - 1]
                if image.after is None:
                    things.delete_one({"_id": image.key})
                else:
                    things.replace_one({"_id": image.key}, dict(image.after), upsert=True)
            for query in queries:
                if query.operation is Operation.COUNT:
                    answer: list[Any] = [things.count_documents(query.filter)]
                else:
                    answer = list(things.find(query.filter).sort([*query.sort, ("_id", 1)]).limit(query.limit))
                assert answer == execute(query, state), (query, number)
                compared += 1
        things.drop()
    client.drop_database(prefix)
    assert compared > 50
