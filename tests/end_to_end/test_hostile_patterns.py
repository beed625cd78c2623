"""Regular expressions as anybody types them into a search box: through the whole app, and through a cell of the grid."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import psutil
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.event_layer.codec import encode_query_event
from quaestor.explain.explanation import explain
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Operation, Query
from quaestor.planning.plan import plan_query
from quaestor.query.regex import ENGINES
from tests.support import PATIENT, eventually
from tests.unit.query.test_pattern_bounds import HOSTILE
from tests.unit.test_hostile_query_events import Driven, registration

pytestmark = pytest.mark.anyio

BOXES = ["(a{999}){998}\\1", "(b{999}){998}\\1", "(c{999}){998}\\1", "(d{999}){998}\\1"]
"""Patterns that one anonymous request sent. The cost was 1.8 s of a standing event loop, and 550 MB that never came back."""
GROWTH_BYTES = 40 * 1024 * 1024


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.fixture
async def site(mongo_url: str, prefix: str) -> AsyncIterator[httpx.AsyncClient]:
    quaestor = Quaestor(debug_header=True, **PATIENT)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    collection = client[prefix].things

    @app.get("/search")
    async def search(box: str) -> list[Any]:
        """Four fields, as search boxes ask: each with the expression, a little different."""
        return await collection.find({"$or": [{"name": {"$regex": part}} for part in box.split(" ")]}).to_list()

    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        other[prefix].things.insert_one({"_id": 1, "name": "found"})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
            yield http
        await quaestor.stop()
        await client.close()
        other.drop_database(prefix)


async def test_a_hostile_search_costs_no_memory_and_its_answer_is_invalidated_all_the_same(
    site: httpx.AsyncClient, mongo_url: str, prefix: str
) -> None:
    """A hostile search is widened to its collection, and the header shows that; answers of ordinary searches stay
    exact.
    """

    async def warm(box: str) -> httpx.Response:
        async def hit() -> bool:
            nonlocal response
            response = await site.get("/search", params={"box": box})
            assert response.status_code == 200, response.text
            return "; hit" in response.headers.get("cache-status", "")

        response: httpx.Response | None = None
        await eventually(hit)
        assert response is not None
        return response

    await warm("^fou")
    before = resident_bytes()
    hostile = await warm(" ".join(BOXES))
    assert resident_bytes() - before < GROWTH_BYTES
    assert "widened (regular-expression)" in hostile.headers["x-quaestor-explain"]
    assert hostile.json() == []
    name = "d" * 5
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        other[prefix].things.insert_one({"_id": 2, "name": name})

    async def anew() -> bool:
        response = await site.get("/search", params={"box": " ".join(BOXES)})
        return "; hit" not in response.headers.get("cache-status", "")

    await eventually(anew)


@pytest.mark.parametrize("source", HOSTILE, ids=lambda source: source[:24])
def test_explain_says_what_the_plan_says(source: str) -> None:
    query = Query(namespace="db.c", operation=Operation.FIND, filter={"a": {"$regex": source}})
    plan, explanation = plan_query(query), explain(query)
    assert (explanation.match, explanation.reason) == (plan.match, plan.reason)
    assert plan.match == "widened"
    assert str(plan.reason).startswith("a regular expression")


def test_a_pipeline_whose_stages_are_too_much_together_is_planned_all_the_same() -> None:
    stages: list[dict[str, Any]] = [{"$match": {"a": 1}}]
    stages += [{"$match": {"b": {"$regex": f"(a{{9}}){{200}}{number}"}}} for number in range(10)]
    query = Query(namespace="db.c", operation=Operation.AGGREGATE, filter={}, pipeline=tuple(stages))
    assert plan_query(query).match == "widened"


@pytest.mark.slow
def test_a_cell_takes_hostile_patterns_and_stays_small() -> None:
    """A writer to a query pipeline may send any pattern.

    Each is registered, and dies with the next write to its collection.
    """
    driven = Driven()
    many = [f"^(?!{number})(a{{9}}){{300}}" for number in range(200)]
    filters = [{"a": {"$regex": source}} for source in HOSTILE + many]
    filters.append({"$or": [{"a": {"$regex": source}} for source in BOXES]})
    names = [f"{number}" for number in range(len(filters))]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        resident = resident_bytes()
        for name, filter_ in zip(names, filters, strict=True):
            wanted = registration(name, 0)
            driven.send(encode_query_event(replace(wanted, query_id=name, query=replace(wanted.query, filter=filter_))))
        driven.step(30)
        assert driven.activated() == set(names)
        driven.write(6, 1, a="a" * 2_700)
        driven.step(5)
        after, peak = tracemalloc.get_traced_memory()
        assert peak - before < GROWTH_BYTES
        assert after - before < GROWTH_BYTES
    finally:
        tracemalloc.stop()
    assert ENGINES.used_bytes <= 64 * 1024 * 1024
    assert resident_bytes() - resident < 64 * 1024 * 1024 + GROWTH_BYTES
    assert {"0", names[-1]} <= driven.dead()
