"""An app that no driver listens to, behind the proxy: what it declares of its answers' queries keeps them exact."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from quaestor.admin import AdminToken
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.settings import Settings
from tests.end_to_end.scripted_origin import Asked, Script, answer, scripted_origin, serving
from tests.support import PATIENCE_S, PATIENT, eventually

pytestmark = pytest.mark.anyio

TOKEN = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"
BEARER = {"authorization": f"Bearer {TOKEN}"}


class Shop:
    """The app: reads its database directly, and declares its queries or not.

    before: run between its read and its answer.
    """

    def __init__(self, mongo_url: str, database: str) -> None:
        self.client = MongoClient[dict[str, Any]](mongo_url)
        self.items = self.client[database]["items"]
        self.declares = True
        self.reads = 0
        self.extra: list[str] = []

    def __call__(self, request: Asked) -> bytes:
        self.reads += 1
        ids = [item["_id"] for item in self.items.find({"kind": "a"}).sort("_id", 1)]
        fields = list(self.extra)
        if self.declares:
            declared = [{"collection": "items", "filter": {"kind": "a"}, "sort": {"_id": 1}}]
            fields.append(f"Quaestor-Depends: {json.dumps(declared)}")
        return answer("200 OK", *fields, body=json.dumps(ids).encode())


@asynccontextmanager
async def shop_proxy(
    mongo_url: str, database: str, script: Script, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    async with scripted_origin(script) as origin:
        options = ProxyOptions(origin=origin.url, database=database)
        base = Settings(
            mongo_url=mongo_url, explicit=True, control_namespace=f"{database}.control", debug_header=True, **PATIENT
        )
        app = application(options, replace(base, **settings), token=AdminToken(TOKEN))
        async with (
            serving(configuration(app)) as url,
            httpx.AsyncClient(base_url=url, timeout=2 * PATIENCE_S) as client,
        ):

            async def up() -> bool:
                return bool((await client.get("/quaestor/admin/status", headers=BEARER)).json()["serving"])

            await eventually(up)
            yield client


@pytest.fixture
def shop(mongo_url: str, prefix: str) -> Iterator[Shop]:
    shop = Shop(mongo_url, prefix)
    with shop.client:
        yield shop


async def cached(client: httpx.AsyncClient, path: str) -> bool:
    return "hit" in (await client.get(path)).headers["cache-status"]


async def test_a_declared_answer_is_served_from_cache_until_a_write_changes_it(
    mongo_url: str, prefix: str, shop: Shop
) -> None:
    shop.items.insert_many([{"_id": 1, "kind": "a"}, {"_id": 2, "kind": "b"}])
    async with shop_proxy(mongo_url, prefix, shop) as client:
        first = await client.get("/items")
        assert "quaestor-depends" not in first.headers
        assert first.json() == [1]
        await eventually(lambda: cached(client, "/items"))
        reads = shop.reads
        shop.items.insert_one({"_id": 3, "kind": "b"})
        shop.items.insert_one({"_id": 4, "kind": "a"})

        async def shows_it() -> bool:
            return bool((await client.get("/items")).json() == [1, 4])

        await eventually(shows_it)
        await eventually(lambda: cached(client, "/items"))
        assert shop.reads > reads
        assert (await client.get("/items")).json() == [1, 4]


async def test_a_write_that_no_declared_query_concerns_invalidates_nothing(
    mongo_url: str, prefix: str, shop: Shop
) -> None:
    async with shop_proxy(mongo_url, prefix, shop) as client:
        await eventually(lambda: cached(client, "/items"))
        reads = shop.reads
        shop.items.insert_one({"_id": 1, "kind": "b"})
        shop.items.insert_one({"_id": 2, "kind": "a"})

        async def shows_it() -> bool:
            return bool((await client.get("/items")).json() == [2])

        await eventually(shows_it)
        assert shop.reads == reads + 1, "the change stream is in order: only the second write led to a new read"


async def test_a_write_between_the_read_and_its_declaration_is_not_missed(
    mongo_url: str, prefix: str, shop: Shop
) -> None:
    """The answer is older than what the registration was made for; since is from before the origin was asked."""
    late = 0

    def script(request: Asked) -> bytes:
        nonlocal late
        given = shop(request)
        if late < 3:
            late += 1
            shop.items.insert_one({"_id": late, "kind": "a"})
        return given

    async with shop_proxy(mongo_url, prefix, script) as client:

        async def shows_all() -> bool:
            return bool((await client.get("/items")).json() == [1, 2, 3])

        await eventually(shows_all)


@pytest.mark.parametrize(
    ("declaration", "reason"),
    [
        ("nonsense", "unreadable"),
        ("[]", "unreadable"),
        ('[{"collection": "items", "filter": {"$where": "1"}}]', "server-side-script"),
        ('[{"collection": "items", "pipeline": [{"$sample": {"size": 1}}]}]', "random"),
    ],
)
async def test_an_answer_that_cannot_be_guarded_is_not_stored_with_any_lifetime(
    mongo_url: str, prefix: str, declaration: str, reason: str
) -> None:
    script = answer("200 OK", "Cache-Control: max-age=600", f"Quaestor-Depends: {declaration}", body=b"x")
    async with shop_proxy(mongo_url, prefix, lambda _: script) as client:
        for _ in range(2):
            got = await client.get("/items")
            assert "hit" not in got.headers["cache-status"]
            assert reason in got.headers["cache-status"]
            assert "quaestor-depends" not in got.headers


async def test_clients_cannot_declare_anything(mongo_url: str, prefix: str) -> None:
    """The field is the origin's: of a request it is dropped, so that no origin can be made to echo it."""
    seen: list[bytes] = []

    def script(request: Asked) -> bytes:
        seen.extend(request.of(b"quaestor-depends"))
        return answer(body=b"x")

    async with shop_proxy(mongo_url, prefix, script) as client:
        await client.get("/", headers={"quaestor-depends": '[{"collection": "items"}]'})
    assert seen == []


async def test_a_url_that_is_registered_is_guarded_although_its_origin_says_nothing(
    mongo_url: str, prefix: str, shop: Shop
) -> None:
    shop.declares = False
    shop.extra = ["Cache-Control: max-age=600"]
    async with shop_proxy(mongo_url, prefix, shop) as client:
        await eventually(lambda: cached(client, "/items"))
        shown = await client.post(
            "/quaestor/admin/registrations",
            headers=BEARER,
            json={"url": "/items", "queries": [{"collection": "items", "filter": {"kind": "a"}, "sort": {"_id": 1}}]},
        )
        assert (shown.status_code, shown.json()["queries"]) == (200, 1)
        assert not await cached(client, "/items"), "what was stored before was not guarded"
        await eventually(lambda: cached(client, "/items"))
        shop.items.insert_one({"_id": 1, "kind": "a"})

        async def shows_it() -> bool:
            return bool((await client.get("/items")).json() == [1])

        await eventually(shows_it)


async def test_a_declared_answer_goes_by_url_tag_and_collection(mongo_url: str, prefix: str, shop: Shop) -> None:
    shop.declares = False
    shop.extra = ['Quaestor-Depends: [{"collection": "items"}, {"tag": "prices"}]']
    async with shop_proxy(mongo_url, prefix, shop) as client:
        for purge in ({"urls": ["/items"]}, {"tags": ["prices"]}, {"collections": [f"{prefix}.items"]}, {"all": True}):
            await eventually(lambda: cached(client, "/items"))
            reads = shop.reads
            done = await client.post("/quaestor/admin/purge", headers=BEARER, json=purge)
            assert done.status_code == 200, done.text

            async def asked_again(reads: int = reads) -> bool:
                await client.get("/items")
                return shop.reads > reads

            await eventually(asked_again)


async def test_without_a_mongodb_what_is_declared_is_not_stored() -> None:
    script = answer("200 OK", "Cache-Control: max-age=600", 'Quaestor-Depends: [{"collection": "d.items"}]', body=b"x")
    async with scripted_origin(lambda _: script) as origin:
        app = application(ProxyOptions(origin=origin.url), Settings(explicit=True, grid=False))
        async with serving(configuration(app)) as url, httpx.AsyncClient(base_url=url) as client:
            for _ in range(2):
                assert "hit" not in (await client.get("/")).headers["cache-status"]
            assert len(origin.asked) == 2
