"""The setting `pre_images`: images are turned on for what answers depend on; no request fails where that is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import AdminApi, AdminToken, ConfigurationError, FailureSeen, Quaestor, Settings
from quaestor.admin.status_text import text
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing import servers
from tests.doctor.called import Client
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

TOKEN = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"


@asynccontextmanager
async def site(url: str, database: str, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, list[FailureSeen]]]:
    """An app with a list of each collection, and what failed in it."""
    quaestor = Quaestor(**PATIENT | settings)
    failures: list[FailureSeen] = []
    quaestor.on_failure(failures.append)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[quaestor.capture])
    app = FastAPI()

    @app.get("/lists/{name}")
    async def listed(name: str) -> list[Any]:
        return await client[database][name].find({}).to_list()

    @app.get("/joined")
    async def joined() -> list[Any]:
        stages = [{"$lookup": {"from": "other", "localField": "a", "foreignField": "_id", "as": "b"}}]
        return await (await client[database].first.aggregate(stages)).to_list()

    around = AdminApi(QuaestorMiddleware(app, quaestor=quaestor), quaestor=quaestor, token=AdminToken(TOKEN))
    try:
        transport = httpx.ASGITransport(around)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as http:
            yield http, failures
    finally:
        await quaestor.stop()
        await client.close()


async def hit(http: httpx.AsyncClient, path: str) -> bool:
    answer = await http.get(path)
    assert answer.status_code == 200
    return "hit" in answer.headers["cache-status"]


def images(database: Any) -> dict[str, bool]:
    return {
        collection["name"]: collection["options"].get("changeStreamPreAndPostImages", {}).get("enabled", False)
        for collection in database.list_collections(filter={"type": "collection"})
        if not collection["name"].startswith("system.")
    }


async def test_images_are_turned_on_for_the_collections_of_answers_alone(mongo_url: str, prefix: str) -> None:
    """Joined collections get images too. Other collections stay as they are, and without the setting so do all."""
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        for name in ("first", "other", "untouched"):
            database[name].insert_one({"_id": 1})
        async with site(mongo_url, prefix) as (http, _):
            await eventually(lambda: hit(http, "/lists/first"))
        assert not any(images(database).values())
        async with site(mongo_url, prefix, pre_images="enable") as (http, failures):
            await eventually(lambda: hit(http, "/joined"))
            await eventually(lambda: images(database) == {"first": True, "other": True, "untouched": False})
            assert await hit(http, "/joined"), "turning them on changes no result"
            await eventually(lambda: hit(http, "/lists/missing"))
            assert failures == [], "a collection that is not there yet is no failure"
        client.drop_database(prefix)


async def test_a_refusal_is_logged_once_named_in_the_status_and_fails_no_request(
    guarded: servers.Server, root: Client, prefix: str
) -> None:
    for name in ("first", "second"):
        root[prefix][name].insert_one({"_id": 1})
    roles = [{"role": "readAnyDatabase", "db": "admin"}]
    root.admin.command("createUser", prefix, pwd="secret", roles=roles)
    url = guarded.url.replace("mongodb://", f"mongodb://{prefix}:secret@")
    async with site(url, prefix, pre_images="enable") as (http, failures):
        for path in ("/lists/first", "/lists/second"):
            await eventually(lambda path=path: hit(http, path))  # type: ignore[misc]

        async def both_named() -> bool:
            answer = await http.get("/quaestor/admin/status", headers={"authorization": f"Bearer {TOKEN}"})
            status.update(answer.json())
            return len(status["images_refused"]) == 2

        status: dict[str, Any] = {}
        await eventually(both_named)
        assert "not authorized" in status["images_refused"][f"{prefix}.first"]
        assert f"no pre-images       {prefix}.first: " in text(status)
        assert [failure.name for failure in failures] == ["pre_images.refused"]
        assert await hit(http, "/lists/first")
    assert not any(images(root[prefix]).values())


def test_another_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"pre_images='yes' .* must be 'leave' or 'enable'"):
        Settings(pre_images="yes")
