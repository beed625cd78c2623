"""Equal queries with other members: one answer's registration guards its own members, and nobody relies on it who has others."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from tests.inputs.app import App, Asynchronous, Page, app

pytestmark = pytest.mark.anyio


async def batch(items: Asynchronous, request: Request) -> list[Any]:
    """Return so many records in a single batch, by the same `find` for every number of them."""
    reply = await items.database.command(
        {
            "find": items.name,
            "filter": {"x": {"$gt": 0}},
            "batchSize": int(request.query_params["n"]),
            "singleBatch": True,
        }
    )
    return [record["_id"] for record in reply["cursor"]["firstBatch"]]


async def any_one(items: Asynchronous, request: Request) -> Any:
    record = await items.find_one({"x": {"$gt": 0}})
    return record and record["_id"]


async def any_two(items: Asynchronous, request: Request) -> list[Any]:
    return [record["_id"] for record in await items.find({"x": {"$gt": 0}}).limit(2).to_list()]


async def tied(items: Asynchronous, request: Request) -> list[Any]:
    return [record["_id"] for record in await items.find({"tie": 1}).sort("tie", 1).limit(1).to_list()]


PAGES: dict[str, Page] = {"/batch": batch, "/any": any_one, "/two": any_two, "/tied": tied}


async def asked(cached: App, path: str) -> list[Any]:
    members = await cached.warm(path)
    return members if isinstance(members, list) else [members]


RECORDS = [{"_id": name, "x": x, "tie": 1, "y": x} for name, x in (("a", 4), ("b", 3), ("c", 2), ("d", 1))]


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize(
    ("first", "second", "index"),
    [
        ("/batch?n=2", "/batch?n=4", None),
        ("/any", "/any?again=1", "x"),
        ("/two", "/two?again=1", "x"),
        ("/tied", "/tied?again=1", "tie y"),
    ],
)
async def test_a_record_that_only_the_second_answer_shows_is_not_served_after_its_deletion(
    mongo_url: str, prefix: str, settings: dict[str, Any], first: str, second: str, index: str | None
) -> None:
    """An index made in between lets the database choose other records: nothing was written, and both answers are right."""
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        cached.items.insert_many(RECORDS)
        first_answer = await asked(cached, first)
        if index is not None:
            cached.items.create_index([(field, 1) for field in index.split()])
        other = await asked(cached, second)
        only = [key for key in other if key not in first_answer]
        assert only, "the database chose the same records: this test shows nothing"
        cached.items.delete_one({"_id": only[-1]})
        await cached.until_true(second)
        assert only[-1] not in await asked(cached, second)


@pytest.mark.usefixtures("patient_redis")
async def test_answers_with_the_same_members_still_share(mongo_url: str, prefix: str, settings: dict[str, Any]) -> None:
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        cached.items.insert_many(RECORDS)
        await cached.warm("/two")

        shared = False
        for turn in range(200):
            response = await cached.http.get(f"/two?turn={turn}")
            assert response.status_code == 200
            entries = list(cached.quaestor.parts.storage.memory._entries.values())
            shared = len(entries[-1].response.registrations) == 2
            if shared:
                break
        assert shared
