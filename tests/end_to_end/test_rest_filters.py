"""Hostile lists: refused before the database is asked, or stopped by it in time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quaestor.rest import Access, Limits
from tests.end_to_end.rest_site import limits, rest_site

pytestmark = pytest.mark.anyio

REFUSED: list[tuple[str, str, str]] = [
    ('filter={"$where":"1"}', "filter", "filter-operator"),
    ("filter={", "filter", "filter-malformed"),
    ("filter=", "filter", "filter-malformed"),
    ('filter={"a":{"$in":1}}', "filter", "filter-malformed"),
    ("filter=" + "[" * 3000, "filter", "filter-malformed"),
    ('filter={"a":"' + "x" * 9000 + '"}', "filter", "filter-too-large"),
    ("filter={}&filter={}", "filter", "parameter-twice"),
    ("fliter={}", "fliter", "parameter-unknown"),
    ('sort={"a":"x"}', "sort", "sort-malformed"),
    ("skip=-1", "skip", "skip-out-of-range"),
    ("skip=10001", "skip", "skip-out-of-range"),
    ("limit=0", "limit", "limit-out-of-range"),
    ("limit=1001", "limit", "limit-out-of-range"),
    ("limit=1e3", "limit", "limit-out-of-range"),
    ("limit=" + "9" * 4000, "limit", "limit-out-of-range"),
    ("representation=xml", "representation", "representation-unknown"),
]


@pytest.mark.parametrize(("query", "parameter", "name"), REFUSED, ids=[query[:30] for query, *_ in REFUSED])
async def test_a_refused_filter_never_reaches_the_database(
    mongo_url: str, prefix: str, query: str, parameter: str, name: str
) -> None:
    async with rest_site(mongo_url, prefix) as site:
        await site.find()
        assert site.heard.finds()
        site.heard.commands.clear()
        refused = await site.http.get(f"/db/items?{query}")
        assert refused.status_code == 400
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == f"urn:quaestor:problem:{name}"
        assert refused.json()["parameter"] == parameter
        assert len(refused.content) < 2_000
        assert site.heard.commands == []


async def test_a_filter_that_takes_too_long_is_503_with_retry_after(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, limits=Limits(time_ms=1)) as site:
        for method, path, body in (
            ("GET", "/items", None), ("GET", "/items/1", None), ("PATCH", "/items/1", {"x": 1}), ("POST", "/items", {}),
        ):  # fmt: skip
            slow = await site.ask(method, path, body)
            assert (slow.status_code, slow.headers["retry-after"]) == (503, "1"), slow.text
            assert slow.headers["content-type"] == "application/problem+json"


async def test_the_time_limit_is_sent_to_the_server(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, limits=limits(time_ms=19_000)) as site:
        await site.find(limit="1")  # once a minute a list looks for malformed rules besides
        site.other.command("profile", 2)
        await site.find()
        await site.ask("GET", "/items/1")
        site.other.command("profile", 0)
        profiled = list(site.other.system.profile.find({"op": "query", "ns": f"{prefix}.items"}))
        assert len(profiled) == 2
        assert all(0 < entry["command"]["maxTimeMS"] <= 19_000 for entry in profiled)


async def test_a_database_that_is_away_is_503(mongo_url: str, prefix: str) -> None:
    from quaestor.testing.servers import free_port

    nowhere = f"mongodb://127.0.0.1:{free_port()}/?serverSelectionTimeoutMS=100&directConnection=true"
    from fastapi import FastAPI
    from httpx import ASGITransport, AsyncClient
    from pymongo import AsyncMongoClient

    from quaestor.rest import QuaestorRouter

    app = FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(nowhere)
    app.include_router(QuaestorRouter(client[prefix], access=Access.public(), limits=Limits(time_ms=300)))
    async with AsyncClient(transport=ASGITransport(app), base_url="http://site") as http:
        for method, path in (("GET", "/db/items"), ("DELETE", "/db/items/1")):
            response = await http.request(method, path)
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert "127.0.0.1" not in response.text, "the answer names no internal address"
    await client.close()


async def test_lists_of_large_records_are_bounded(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, limits=limits(response_bytes=5_000)) as site:
        site.other.items.insert_many([{"_id": f"x{i}", "text": "y" * 1_000} for i in range(8)])
        refused = await site.find()
        assert (refused.status_code, refused.json()["type"]) == (400, "urn:quaestor:problem:list-too-large")
        assert (await site.find(limit=3)).status_code == 200


async def test_unknown_collections_are_404_and_empty_ones_are_empty(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        for _ in range(3):
            assert (await site.find("later")).status_code == 404
            assert (await site.find("later", representation="ids")).status_code == 404
        site.other.create_collection("later")
        assert (await site.find("later")).json() == []


async def test_an_ordinary_web_of_filters_answers_as_the_database_does(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        for filter_ in (
            {"$or": [{"rank": {"$lt": 2}}, {"group": "b", "rank": {"$gte": 7}}]},
            {"group": {"$regex": "^A", "$options": "i"}},
            {"$and": [{"rank": {"$in": [1, 2, 3]}}, {"$nor": [{"group": "a"}]}]},
            {"_id": {"$not": {"$mod": [2, 0]}}},
        ):
            truth = [record["_id"] for record in site.other.items.find(filter_).sort("_id", 1)]
            assert (await site.find(filter=filter_, representation="ids")).json() == truth
            assert [record["_id"] for record in (await site.find(filter=json.dumps(filter_))).json()] == truth


@pytest.mark.parametrize("threads", [False, True], ids=["asyncio", "threads"])
@pytest.mark.parametrize("wanted", [{}, {"representation": "ids", "sort": {"text": 1}}], ids=["records", "ids"])
async def test_a_result_too_large_for_a_list_is_not_gathered_first(
    mongo_url: str, prefix: str, threads: bool, wanted: dict[str, Any]
) -> None:
    """24 MiB of records arrive in two batches; the second one is not asked for."""
    async with rest_site(mongo_url, prefix, threads=threads, limits=limits(response_bytes=5_000)) as site:
        await site.find("large")  # once a minute a list looks for malformed rules besides
        for n in range(24):
            site.other.large.insert_one({"_id": n, "text": "x" * 1024 * 1024})
        site.heard.commands.clear()
        refused = await site.find("large", **wanted)
        assert (refused.status_code, refused.json()["type"]) == (400, "urn:quaestor:problem:list-too-large")
        assert [name for name, _ in site.heard.commands] == ["find", "killCursors"]


async def test_a_mistake_that_only_the_database_finds_is_the_clients_too(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        assert (await site.find(sort={"a" + ".a" * 200: 1})).status_code == 400
        site.other.items.insert_one({"_id": "long", "z": [0]})
        for update in (
            {"$pull": {"z": {"$regex": "["}}},
            {"$set": {"x" + ".0" * 200: 1}},
            {"$set": {"z.1500000": 1}},
        ):
            kind = "application/vnd.quaestor.update+json"
            refused = await site.ask("PATCH", "/items/long", update, content_type=kind)
            assert refused.status_code == 422, refused.text
