"""The two promises, on random queries and random writes through the real database.

Nothing stale is ever served, and a result that a write did not change stays in the cache.
Catches: missed matches, races between registration and replay, wrong window boundaries, false invalidations.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Record = dict[str, Any]
WRITES_PER_SEED = 40
RECORDS = 14


@dataclass(frozen=True)
class Case:
    """One cached query. exact: whether an unchanged result has to stay a hit."""

    path: str
    truth: Callable[[pymongo.collection.Collection[Record]], Any]
    exact: bool


def random_filter(rng: random.Random) -> Record:
    kinds: list[Callable[[], Record]] = [
        lambda: {"a": rng.randrange(4)},
        lambda: {"a": {"$in": rng.sample(range(5), 2)}},
        lambda: {"b": {"$gte": rng.randrange(5), "$lt": 5 + rng.randrange(5)}},
        lambda: {"tags": rng.choice("xyz")},
        lambda: {"nested.n": {"$gt": rng.randrange(3)}},
        lambda: {"a": {"$ne": rng.randrange(4)}},
        lambda: {"missing": {"$exists": False}, "b": {"$lt": rng.randrange(10)}},
        lambda: {"$or": [{"a": rng.randrange(4)}, {"b": {"$gt": 6}}]},
        lambda: {"name": {"$regex": f"^{rng.choice('pq')}"}},
        lambda: {"$nor": [{"a": rng.randrange(4)}, {"tags": {"$size": 2}}]},
        lambda: {"tags": {"$not": {"$in": ["x"]}}},
        dict,
    ]
    clause = rng.choice(kinds)()
    return {"$and": [clause, rng.choice(kinds)()]} if rng.random() < 0.3 else clause


def random_case(rng: random.Random) -> Case:
    where = random_filter(rng)
    if rng.random() < 0.15:
        return Case(f"/count?filter={json.dumps(where)}", lambda c: c.count_documents(where), exact=False)
    if rng.random() < 0.4:
        return Case(
            f"/find?filter={json.dumps(where)}&limit=0&skip=0", lambda c: list(c.find(where).sort("_id")), exact=True
        )
    limit, skip = rng.randrange(1, 6), rng.choice((0, 0, 0, 2))
    field, direction = rng.choice(("b", "a", "nested.n")), rng.choice((1, -1))
    return Case(
        f"/find?filter={json.dumps(where)}&sort={field}&direction={direction}&limit={limit}&skip={skip}",
        lambda c: list(c.find(where).sort([(field, direction), ("_id", 1)]).skip(skip).limit(limit)),
        exact=not skip,
    )


def random_record(rng: random.Random) -> Record:
    record: Record = {"a": rng.randrange(4), "b": rng.randrange(10), "name": rng.choice("pqr") + rng.choice("st")}
    if rng.random() < 0.8:
        record["tags"] = rng.sample("xyz", rng.randrange(3))
    if rng.random() < 0.8:
        record["nested"] = {"n": rng.choice((0, 1, 2, 3, None, "s"))}
    if rng.random() < 0.2:
        record["missing"] = None
    return record


def random_write(rng: random.Random, c: pymongo.collection.Collection[Record], session: Any) -> str:
    key = rng.randrange(RECORDS + 6)
    kind = rng.choice(("insert", "update", "update", "update", "replace", "delete", "update_many", "unset", "push"))
    if kind == "insert":
        c.replace_one({"_id": key}, random_record(rng), upsert=True, session=session)
    elif kind == "update":
        field = rng.choice(("a", "b"))
        c.update_one({"_id": key}, {"$set": {field: rng.randrange(10)}}, session=session)
    elif kind == "replace":
        c.replace_one({"_id": key}, random_record(rng), session=session)
    elif kind == "delete":
        c.delete_one({"_id": key}, session=session)
    elif kind == "update_many":
        c.update_many({"a": rng.randrange(4)}, {"$inc": {"b": 1}}, session=session)
    elif kind == "unset":
        c.update_one({"_id": key}, {"$unset": {rng.choice(("a", "tags", "nested")): 1}}, session=session)
    else:
        c.update_one({"_id": key, "tags": {"$type": "array"}}, {"$push": {"tags": rng.choice("xyz")}}, session=session)
    return f"{kind} {key}"


def application(mongo_url: str, database: str) -> tuple[FastAPI, Quaestor]:
    app = FastAPI()
    quaestor = Quaestor(ttl_min_ms=600_000, **PATIENT | {"heartbeat_ms": 20})  # nothing may expire by itself
    client: AsyncMongoClient[Record] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    items = client[database].items

    @app.get("/find")
    async def find(filter: str, limit: int, skip: int, sort: str | None = None, direction: int = 1) -> list[Record]:  # noqa: A002
        order = ([(sort, direction)] if sort else []) + [("_id", 1)]
        return await items.find(json.loads(filter)).sort(order).skip(skip).limit(limit).to_list()

    @app.get("/count")
    async def count(filter: str) -> int:  # noqa: A002
        return await items.count_documents(json.loads(filter))

    return app, quaestor


@pytest.mark.parametrize("before_images", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
async def test_never_stale_and_never_evicted_in_vain(
    mongo_url: str, prefix: str, seed: int, before_images: bool
) -> None:
    await run(mongo_url, prefix, seed, before_images)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 140))
async def test_never_stale_on_many_seeds(mongo_url: str, prefix: str, seed: int) -> None:
    await run(mongo_url, prefix, seed, bool(seed % 2))


async def run(mongo_url: str, database: str, seed: int, before_images: bool) -> None:
    print(f"seed {seed}, before-images {before_images}")
    rng = random.Random(seed)
    app, quaestor = application(mongo_url, database)
    with pymongo.MongoClient[Record](mongo_url) as other:
        items = other[database].create_collection("items", changeStreamPreAndPostImages={"enabled": before_images})
        items.insert_many([{"_id": key} | random_record(rng) for key in range(RECORDS)])
        cases = [random_case(rng) for _ in range(12)]
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")
        try:
            await check(rng, http, quaestor, other, items, cases)
        finally:
            await http.aclose()
            await quaestor.stop()
            other.drop_database(database)


async def check(
    rng: random.Random,
    http: httpx.AsyncClient,
    quaestor: Quaestor,
    other: pymongo.MongoClient[Record],
    items: pymongo.collection.Collection[Record],
    cases: list[Case],
) -> None:
    async def get(case: Case) -> tuple[Any, bool, str]:
        response = await http.get(case.path)
        assert response.status_code == 200, response.text
        how = response.headers.get("cache-status", "")
        return response.json(), "; hit" in how, how

    async def warm(case: Case) -> Any:
        truth = case.truth(items)

        async def hit() -> bool:
            served, is_hit, _ = await get(case)
            assert served == truth, case.path
            return is_hit

        await eventually(hit)
        return truth

    known = [await warm(case) for case in cases]
    kept = evicted = 0
    for _ in range(WRITES_PER_SEED):
        with other.start_session() as session:
            what = random_write(rng, items, session)
            other[items.database.name].markers.insert_one(
                {}, session=session
            )  # a write that changes nothing has no event
            time = session.operation_time
        assert time is not None
        version = time.time << 32 | time.inc
        await eventually(lambda version=version: quaestor.registry.watermark() >= version)  # type: ignore[misc]
        for i, case in enumerate(cases):
            truth = case.truth(items)
            served, is_hit, how = await get(case)
            assert served == truth, f"stale after {what}: {case.path}"
            if case.exact and truth == known[i]:
                assert is_hit, f"evicted in vain by {what}: {case.path}: {how}"
            kept += is_hit
            evicted += not is_hit
            known[i] = truth if is_hit else await warm(case)
    assert kept
    assert evicted
