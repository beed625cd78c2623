"""Inputs that count as a read or a write: hidden types, HEAD, explanations, and collMod without a result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio.to_thread
import bson
import httpx
import pymongo
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from quaestor import Quaestor
from quaestor.explain.text_query import TextQuery, explain_text
from quaestor.invalidation.ingest.change_events import after_images
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Operation, Query
from quaestor.planning.plan import plan_query
from tests.hand_driven import HandEngine, reads
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Reading = Callable[[Any], Any]


class Page:
    """One page, made of one read of a database, behind the middleware."""

    def __init__(self, mongo_url: str, database: str, read: Reading) -> None:
        self.quaestor = Quaestor(debug_header=True, ttl_min_ms=600_000, read_your_writes_ms=20_000, **PATIENT)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        app = FastAPI()
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)

        @app.get("/")
        async def page() -> Any:
            return await read(self.client[database])

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")

    async def get(self) -> tuple[Any, bool]:
        response = await self.http.get("/")
        assert response.status_code == 200, response.text
        self.explained = response.headers.get("x-quaestor-explain", "")
        return response.json(), "; hit" in response.headers.get("cache-status", "")

    async def is_hit(self) -> bool:
        return (await self.get())[1]


@asynccontextmanager
async def page(mongo_url: str, database: str, read: Reading) -> AsyncIterator[Page]:
    made = Page(mongo_url, database, read)
    try:
        await eventually(made.is_hit)
        yield made
    finally:
        await made.http.aclose()
        await made.quaestor.stop()
        await made.client.close()


def hidden(kind: str, key: int) -> RawBSONDocument:
    """A record whose `x` is of a type that the driver can no longer write: {"_id": key, "x": ...}."""
    head = bson.encode({"_id": key})[4:-1]
    text = b"\x02\x00\x00\x00a\x00"
    value = {"symbol": b"\x0e" + b"x\x00" + text, "dbPointer": b"\x0c" + b"x\x00" + text + b"\x01" * 12}.get(
        kind, b"\x06" + b"x\x00"
    )
    body = head + value + b"\x00"
    return RawBSONDocument((len(body) + 4).to_bytes(4, "little") + body)


@pytest.mark.parametrize(("name", "number"), [("symbol", 14), ("dbPointer", 12), ("undefined", 6)])
async def test_types_that_the_driver_hides_are_asked_of_the_database(
    mongo_url: str, prefix: str, name: str, number: int
) -> None:
    """Such values arrive as those of another type, so a query for them is widened: every write counts, none is missed."""
    for operand in (name, number, [name, "int"]):
        query = Query(namespace="db.c", operation=Operation.FIND, filter={"x": {"$type": operand}})
        assert plan_query(query).match == "widened"
    schema = {"$jsonSchema": {"properties": {"x": {"bsonType": name}}, "required": ["x"]}}
    requests = [
        schema,
        {"x": {"$not": {"$type": number}}},
        {"$or": [{"x": 1}, {"x": {"$elemMatch": {"y": {"$type": name}}}}]},
        {"$expr": {"$eq": [{"$type": "$x"}, name]}},
        {"$expr": {"$in": [{"$type": "$x"}, ["int", name]]}},
    ]
    for condition in requests:
        query = Query(namespace="db.c", operation=Operation.FIND, filter=condition)
        assert plan_query(query).match == "widened", condition
    for condition in ({"x": {"$eq": {"$type": name}}}, {"x": {"bsonType": name}}, {"$expr": {"$eq": ["$x", name]}}):
        query = Query(namespace="db.c", operation=Operation.FIND, filter=condition)
        assert plan_query(query).match == "exact", condition

    async def read(database: Any) -> list[int]:
        records = await database.c.find({"x": {"$type": name}}, {"_id": 1}).sort("_id", 1).to_list()
        return [record["_id"] for record in records]

    with pymongo.MongoClient[Any](mongo_url) as other:
        other[prefix].c.insert_one({"_id": 0, "x": "text"})
        async with page(mongo_url, prefix, read) as site:
            other[prefix].c.insert_one(hidden(name, 1))
            assert other[prefix].c.count_documents({"x": {"$type": name}}) == 1

            async def shown() -> bool:
                return (await site.get())[0] == [1]

            await eventually(shown)


# HEAD


def fastapi() -> FastAPI:
    app = FastAPI()

    @app.get("/only-get")
    async def only_get() -> str:
        reads()
        return "got"

    @app.get("/both")
    async def both() -> str:
        reads()
        return "got"

    @app.head("/both")
    async def head() -> Response:
        return Response(headers={"x-head": "its own"})

    @app.api_route("/one", methods=["GET", "HEAD"])
    async def one() -> str:
        reads()
        return "got"

    return app


def starlette() -> Starlette:
    async def plain(request: Request) -> Response:
        reads()
        return PlainTextResponse("got")

    return Starlette(routes=[Mount("/below", routes=[Route("/plain", plain)])])


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")


@pytest.mark.parametrize(
    ("make", "path", "cached"),
    [
        (fastapi, "/only-get", False), (fastapi, "/both", False), (fastapi, "/one", True),
        (starlette, "/below/plain", True),
    ],
)  # fmt: skip
async def test_a_head_is_answered_as_without_a_cache(make: Callable[[], Any], path: str, cached: bool) -> None:
    """A HEAD gets 405 where the route has no HEAD, also when its GET is cached,
    and its own handler's answer where it has one.

    Where one handler answers both methods, the entry answers HEAD too.
    """
    async with client_of(make()) as bare, client_of(QuaestorMiddleware(make(), quaestor=HandEngine())) as site:
        expected = await bare.head(path)
        for warm in (False, True):
            if warm:
                await site.get(path)
                assert "; hit" in (await site.get(path)).headers["cache-status"]
            answer = await site.head(path)
            assert answer.status_code == expected.status_code
            for name in ("x-head", "allow", "content-length"):
                assert answer.headers.get(name) == expected.headers.get(name)
            assert ("; hit" in answer.headers["cache-status"]) == (warm and cached)


# Explanations


async def command_says(text: str, collection: str, mongo_url: str) -> str:
    """Return the verdict of `quaestor explain` on a query: "exact" or "widened"."""
    ask = partial(explain_text, TextQuery(text=text, collection=collection), mongo_url=mongo_url, as_json=True)
    return str(json.loads(await anyio.to_thread.run_sync(ask))["match"])


async def test_a_text_search_is_explained_as_it_is_registered(mongo_url: str, prefix: str) -> None:
    """With the definition of its index, which capture looks up: exact."""
    with pymongo.MongoClient[Any](mongo_url) as other:
        other[prefix].c.create_index([("t", "text")])
        other[prefix].c.insert_one({"_id": 1, "t": "lynx"})
        async with page(mongo_url, prefix, lambda db: db.c.find({"$text": {"$search": "lynx"}}).to_list()) as site:
            assert ": exact, found by" in site.explained
            assert "widened" not in site.explained
    assert await command_says('{"$text": {"$search": "lynx"}}', f"{prefix}.c", mongo_url) == "exact"


async def test_a_view_with_a_collation_is_explained_as_it_is_registered(mongo_url: str, prefix: str) -> None:
    """On its collection, by the collation of the view: widened where a string is compared."""
    with pymongo.MongoClient[Any](mongo_url) as other:
        database = other[prefix]
        database.create_collection("c", collation={"locale": "de"})
        pipeline: list[dict[str, Any]] = [{"$match": {"open": True}}]
        database.create_collection("v", viewOn="c", pipeline=pipeline, collation={"locale": "de"})
        database.c.insert_one({"_id": 1, "open": True, "name": "Ä"})
        async with page(mongo_url, prefix, lambda db: db.v.find({"name": "Ä"}).to_list()) as site:
            assert f"find on {prefix}.c by (" in site.explained
            assert "widened (collation)" in site.explained
    assert await command_says('{"name": "Ä"}', f"{prefix}.v", mongo_url) == "widened"


# collMod


@pytest.mark.parametrize(
    ("description", "counts"),
    [
        ({"validator": {"n": {"$type": "int"}}}, False),
        ({"validationLevel": "off", "validationAction": "warn"}, False),
        ({"index": {"name": "n_1", "expireAfterSeconds": 5}}, False),
        ({"index": {"name": "n_1", "prepareUnique": True}}, False),
        ({"index": {"name": "n_1", "unique": True}}, False),
        ({"changeStreamPreAndPostImages": {"enabled": True}}, False),
        ({"index": {"name": "n_1", "hidden": True}}, True),
        ({"index": {"name": "n_1", "expireAfterSeconds": 5, "something": "new"}}, True),
        ({"cappedSize": 4096}, True),
        ({"viewOn": "other", "pipeline": []}, True),
        ({"validator": {}, "something": "new"}, True),
        ({}, True),
        (None, True),
    ],
)
def test_a_collmod_counts_unless_all_of_it_is_known_to_change_no_result(description: Any, counts: bool) -> None:
    """A hidden index may be the text index without which a query fails; what a future server says is not known."""
    event = {"operationType": "modify", "ns": {"db": "db", "coll": "c"}, "clusterTime": Timestamp(1, 1)}
    if description is not None:
        event["operationDescription"] = description
    raw = RawBSONDocument(bson.encode(event))
    for message in (event, raw):
        assert bool(after_images(message, records=RecordSource.IMAGES)) == counts


async def test_a_validator_leaves_what_is_cached_where_it_is(mongo_url: str, prefix: str) -> None:
    """The same for a lifetime of an index; a write after them still counts, and was seen after them."""
    with pymongo.MongoClient[Any](mongo_url) as other:
        database = other[prefix]
        database.c.insert_one({"_id": 1, "n": 1})
        database.c.create_index("at", expireAfterSeconds=3_600)
        async with page(mongo_url, prefix, lambda db: db.c.find({"n": 1}).to_list()) as site:
            database.command("collMod", "c", validator={"n": {"$type": "number"}})
            database.command("collMod", "c", index={"name": "at_1", "expireAfterSeconds": 7_200})
            database.command("collMod", "c", changeStreamPreAndPostImages={"enabled": True})
            at = database.client.admin.command("ping")["operationTime"]
            await site.quaestor.read_path.own_writes.passed(at.time << 32 | at.inc)
            assert await site.get() == ([{"_id": 1, "n": 1}], True)
            database.c.insert_one({"_id": 2, "n": 1})

            async def shown() -> bool:
                return len((await site.get())[0]) == 2

            await eventually(shown)
