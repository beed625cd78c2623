"""The REST router on a real mongod, behind the middleware: records over HTTP, cached and invalidated like any handler."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import bson
import httpx
import pytest
from bson import ObjectId, json_util
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor.errors import ConfigurationError
from quaestor.rest import Access, QuaestorRouter
from tests.end_to_end.rest_site import Database, RestSite, is_hit, rest_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
async def test_a_record_lives_its_life_over_http(mongo_url: str, prefix: str, threads: bool) -> None:
    async with rest_site(mongo_url, prefix, threads=threads) as site:
        made = await site.ask("POST", "/items", {"name": "new"})
        assert made.status_code == 201
        path = made.headers["location"].removeprefix("/db")
        assert made.json()["_id"] == {"$oid": path.rpartition("/")[2]}
        read = await site.ask("GET", path)
        assert made.headers["etag"] == site.etag(ObjectId(path.rpartition("/")[2]))
        assert (read.status_code, read.json(), read.headers["etag"]) == (200, made.json(), made.headers["etag"])
        replaced = await site.ask("PUT", path, {"name": "other"})
        assert (replaced.status_code, replaced.content) == (204, b"")
        patched = await site.ask("PATCH", path, {"age": 3, "name": None})
        assert patched.status_code == 200
        assert patched.json() == {"_id": made.json()["_id"], "age": 3}
        assert site.etag(ObjectId(path.rpartition("/")[2])) == patched.headers["etag"] != replaced.headers["etag"]
        gone = await site.ask("DELETE", path)
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await site.ask("DELETE", path)).status_code == 404

        async def seen() -> bool:
            return (await site.ask("GET", path)).status_code == 404

        await eventually(seen)


async def test_lists_filter_sort_skip_and_limit(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        response = await site.find(filter={"group": "a"}, sort={"rank": -1}, skip=1, limit=2)
        assert [record["_id"] for record in response.json()] == [6, 4]
        ids = await site.find(filter={"group": "a"}, sort={"rank": -1}, representation="ids")
        assert ids.json() == [8, 6, 4, 2, 0]
        assert (await site.find(filter={"group": "z"})).json() == []


WRITES: dict[str, Callable[[Database], Any]] = {
    "insert": lambda db: db.items.insert_one({"_id": -1, "group": "a", "rank": -1}),
    "update": lambda db: db.items.update_one({"_id": 2}, {"$set": {"rank": 20}}),
    "delete": lambda db: db.items.delete_one({"_id": 0}),
    "drop": lambda db: db.items.drop(),
}


@pytest.mark.parametrize("kind", WRITES)
async def test_a_write_by_somebody_else_evicts_the_lists_it_changes_and_no_other(
    mongo_url: str, prefix: str, kind: str
) -> None:
    async with rest_site(mongo_url, prefix) as site:
        changed, same = '/items?filter={"group":"a"}&limit=3', '/others?filter={"group":"b"}'
        site.other.others.insert_one({"_id": 1, "group": "b"})
        before, untouched = await site.warm(changed), await site.warm(same)
        WRITES[kind](site.other)

        async def new() -> bool:
            response = await site.http.get("/db" + changed)
            return bool(response.status_code == 404 if kind == "drop" else response.json() != before)

        await eventually(new)
        again = await site.http.get("/db" + same)
        assert is_hit(again)
        assert again.json() == untouched


async def test_a_write_through_the_router_evicts_as_well(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        await site.warm('/items?filter={"group":"b"}')
        other = await site.warm('/items?filter={"group":"a"}')
        assert (await site.ask("PATCH", "/items/1", {"rank": 100})).status_code == 200

        async def new() -> bool:
            return bool((await site.find(filter={"group": "b"})).json()[0]["rank"] == 100)

        await eventually(new)
        again = await site.http.get('/db/items?filter={"group":"a"}')
        assert is_hit(again)
        assert again.json() == other


async def test_a_record_that_is_missing_is_cached_until_it_is_made(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        await site.warm("/items/77")
        site.other.items.insert_one({"_id": 77})

        async def found() -> bool:
            return (await site.ask("GET", "/items/77")).status_code == 200

        await eventually(found)


IDS = [
    ObjectId("64b7f3a0c2a4b5d6e7f80912"), "64b7f3a0c2a4b5d6e7f80912", 5, -7, 2**62, "5", "-7", "007", "", ".", "..", "~x",
    "a/b", "/a//b/", "ünï/çødé ☃", "a?b#c%2F", "with space", "%41", 1.5, True, None, "\0", {"a": 1, "b": ["x"]}, "x" * 900,
]  # fmt: skip


@pytest.mark.parametrize("key", IDS, ids=lambda key: repr(key)[:24])
async def test_every_id_round_trips_through_the_path_that_the_router_gives(
    mongo_url: str, prefix: str, key: Any
) -> None:
    async with rest_site(mongo_url, prefix) as site:
        body = json_util.dumps({"_id": key, "v": 1}, json_options=json_util.RELAXED_JSON_OPTIONS).encode()
        made = await site.ask("POST", "/items", body)
        assert made.status_code == (409 if key == 5 else 201), made.text
        path = made.headers.get("location", "/db/items/5").removeprefix("/db")
        assert (await site.ask("PUT", path, {"v": 2})).status_code == 204
        assert site.other.items.find_one({"_id": {"$eq": key}}) == {"_id": key, "v": 2}
        assert (await site.ask("GET", path)).json()["v"] == 2
        assert (await site.ask("DELETE", path)).status_code == 204
        assert site.other.items.find_one({"_id": {"$eq": key}}) is None


async def test_openapi_names_every_operation_once_and_describes_schemas_given(mongo_url: str, prefix: str) -> None:
    shape = {"type": "object", "properties": {"rank": {"type": "integer"}}}
    site = RestSite(mongo_url, prefix, schemas={"items": shape})
    paths = site.app.openapi()["paths"]
    await site.client.close()
    site._outside.close()
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert sorted(ids) == sorted(set(ids))
    assert {"db_list_collection", "db_get_collection_record", "db_list_items", "db_patch_items_record"} <= set(ids)
    assert set(paths["/db/items/{id}"]) == {"get", "put", "patch", "delete"}
    got = paths["/db/items/{id}"]["get"]
    assert got["responses"]["200"]["content"]["application/json"]["schema"] == shape
    assert "application/problem+json" in got["responses"]["404"]["content"]
    assert [parameter["name"] for parameter in paths["/db/{collection}"]["get"]["parameters"]] == [
        "collection", "filter", "sort", "skip", "limit", "representation",
    ]  # fmt: skip
    assert json.dumps(paths)


async def test_methods_that_do_not_exist_are_405_with_what_is_allowed(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        for method, path, allowed in (
            ("POST", "/items/1", "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
            ("DELETE", "/items", "GET, HEAD, POST, OPTIONS"),
            ("BREW", "/items", "GET, HEAD, POST, OPTIONS"),
        ):
            response = await site.ask(method, path)
            assert (response.status_code, response.headers["allow"]) == (405, allowed)
            assert response.headers["content-type"] == "application/problem+json"
        options = await site.ask("OPTIONS", "/items/1")
        assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, PUT, PATCH, DELETE, OPTIONS")
        head = await site.ask("HEAD", "/items/1")
        assert (head.status_code, head.content) == (200, b"")


async def test_a_record_read_and_written_back_has_the_same_bytes_but_for_the_width_of_integers(
    mongo_url: str, prefix: str
) -> None:
    async with rest_site(mongo_url, prefix) as site:
        record = {
            "_id": 50, "d": bson.datetime_ms.DatetimeMS(1), "far": bson.datetime_ms.DatetimeMS(2**50), "f": 1.0, "n": None,
            "x": float("nan"), "b": bson.Binary(b"\0\xff", 5), "raw": b"abc", "ts": bson.Timestamp(3, 4), "min": bson.MinKey(),
            "max": bson.MaxKey(), "re": bson.Regex("a/b", "i"), "dec": bson.Decimal128("1.00"), "deep": {"a": [{"b": [1, 2]}]},
            "u": bson.Binary.from_uuid(__import__("uuid").UUID(int=7)), "big": 2**60, "code": bson.Code("x"),
        }  # fmt: skip
        site.other.items.insert_one(record)
        read = await site.ask("GET", "/items/50")
        assert (await site.ask("PUT", "/items/50", read.content)).status_code == 204
        assert site.etag(50) == read.headers["etag"]


async def test_a_body_without_an_announced_length_is_bounded_as_well(mongo_url: str, prefix: str) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"a": "'
        while sent < 10_000_000:
            sent += 65_536
            yield b"x" * 65_536

    async with rest_site(mongo_url, prefix) as site:
        refused = await site.http.post(
            "/db/items", content=endless(), headers={"content-type": "application/json"}, timeout=20
        )
        assert refused.status_code == 413
        assert sent < 10_000_000, "it was not read to its end"
        site.quaestor.telemetry.requests.flush()
        count = site.quaestor.telemetry.families.registry.get_sample_value
        assert count("quaestor_rest_problems_total", {"problem": "body-too-large"}) == 1


async def test_puts_of_the_same_new_record_at_once_all_succeed_and_one_makes_it(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        statuses: list[int] = []

        async def put(n: int) -> None:
            statuses.append((await site.ask("PUT", "/items/new", {"v": n})).status_code)

        async with anyio.create_task_group() as tasks:
            for n in range(10):
                tasks.start_soon(put, n)
        assert sorted(statuses) == [201] + [204] * 9


@pytest.mark.parametrize("how", ["mounted", "included below a prefix"])
async def test_the_router_works_wherever_it_is_put(mongo_url: str, prefix: str, how: str) -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url)
    await client[prefix].create_collection("items")
    outer, inner = FastAPI(), FastAPI()
    router = QuaestorRouter(client[prefix], prefix="/records", access=Access.public())
    if how == "mounted":
        inner.include_router(router)
        outer.mount("/api", inner)
    else:
        outer.include_router(router, prefix="/api")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://site") as http:
        made = await http.post("/api/records/items", json={"_id": "a/ü"})
        assert (made.status_code, made.headers["location"]) == (201, "/api/records/items/a%2F%C3%BC")
        assert (await http.get(made.headers["location"])).json() == {"_id": "a/ü"}
        other = await http.put("/api/records/items/b%2Fc", json={})
        assert (other.status_code, other.headers["location"]) == (201, "/api/records/items/b%2Fc")
        assert (await http.post("/api/records/items/x")).status_code == 405
        assert (await http.get("/api/records/items?limit=1")).json() == [{"_id": "a/ü"}]
    await client.drop_database(prefix)
    await client.close()


async def test_a_router_that_cannot_work_is_refused_when_it_is_made(mongo_url: str, prefix: str) -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url)
    wrong: list[dict[str, Any]] = [
        {"db": "shop"}, {"schemas": {"system.users": {}}}, {"schemas": {"{x}": {}}}, {"representation": "ids"},
        {"representation": "xml"},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ConfigurationError):
            QuaestorRouter(**{"db": client[prefix], **options})
    await client.close()


async def test_access_is_denied_by_default(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=Access()) as site:
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert (await site.ask(method, "/items/1", {} if method[0] == "P" else None)).status_code == 404
        assert (await site.find()).status_code == 404
        assert (await site.ask("POST", "/items", {})).status_code == 404
        assert site.other.items.count_documents({}) == 10
