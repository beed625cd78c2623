"""Live queries over HTTP from several servers of one deployment: positions of one are positions of the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from quaestor import HttpLiveQuery
from quaestor.client.live.rows import LiveRows
from tests.live.socket_site import Json, Site, client_of, live_site

pytestmark = pytest.mark.anyio


@pytest.fixture
def sites(mongo_url: str, redis_url: str, prefix: str) -> Iterator[list[Site]]:
    """Two servers, each with an application of its own."""
    settings = {"redis_url": redis_url, "deployment": prefix, "live_wait_ms": 1_000}
    with ExitStack() as running:
        yield [running.enter_context(live_site(mongo_url, prefix, settings=settings)) for _ in range(2)]


class Alternating(httpx.AsyncBaseTransport):
    """A load balancer without stickiness: one request here, the next one there."""

    def __init__(self, sites: list[Site]) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._next = itertools.cycle([httpx.URL(site.http) for site in sites])
        self.statuses: list[int] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        origin = next(self._next)
        request.url = request.url.copy_with(host=origin.host, port=origin.port)
        response = await self._inner.handle_async_request(request)
        self.statuses.append(response.status_code)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_a_client_may_change_the_server_with_each_request(sites: list[Site]) -> None:
    """Each change arrives without a new snapshot, also while the second server begins to follow."""
    items = sites[0].database.items
    items.insert_one({"_id": 0, "n": 1})
    balanced = Alternating(sites)
    async with (
        httpx.AsyncClient(transport=balanced, timeout=60) as http,
        HttpLiveQuery(f"{sites[0].http}/live", "items", {"n": 1}, sort=[("_id", 1)], http=http) as results,
    ):
        wanted: list[Any] = [{"_id": 0, "n": 1}]
        assert await anext(results) == wanted
        for number in range(1, 12):
            items.insert_one({"_id": number, "n": 1})
            wanted.append({"_id": number, "n": 1})
            async for rows in results:
                if rows == wanted:
                    break
        assert set(balanced.statuses) == {200}


WINDOW = {"query": '{"n": {"$gte": 0}}', "sort": '{"n": -1}', "limit": "3"}


async def test_a_server_that_begins_to_follow_knows_what_came_before(sites: list[Site]) -> None:
    """The second server follows the query only from the client's poll on, and answers with exactly the missed changes."""
    items = sites[0].database.items
    items.insert_many([{"_id": number, "n": number} for number in range(4)])
    async with httpx.AsyncClient(timeout=60, trust_env=False) as web:
        snapshot = (await web.get(f"{sites[0].http}/live/items", params=WINDOW)).json()
        async with HttpLiveQuery(
            f"{sites[0].http}/live", "items", {"n": {"$gte": 0}}, sort=[("n", -1)], limit=3, http=web
        ) as first:
            items.update_one({"_id": 0}, {"$set": {"n": 9}})
            items.delete_one({"_id": 2})
            items.insert_one({"_id": 7, "n": 8})
            async for rows in first:
                if [row["_id"] for row in rows] == [0, 7, 3]:
                    break
        answer = await web.get(f"{sites[1].http}/live/items{snapshot['next']}")
        assert answer.status_code == 200
        rows = LiveRows()
        rows.replace(snapshot["data"])
        for change in answer.json()["changes"]:
            rows.apply(change)
        assert [row["_id"] for row in rows.records()] == [0, 7, 3]
        unknown = await web.get(f"{sites[1].http}/live/items{snapshot['next'].replace('epoch=', 'epoch=0')}")
        assert unknown.status_code == 409


@pytest.mark.parametrize("options", [{}, {"delta": True}], ids=["records", "deltas"])
async def test_a_socket_resumes_at_a_server_that_did_not_follow(sites: list[Site], options: Json) -> None:
    """The token of the first server means the same to the second one: exactly the missed events, and no new result."""
    items = sites[0].database.items
    items.insert_many([{"_id": number, "n": number} for number in range(4)])
    window = {"query": {"n": {"$gte": 0}}, "sort": {"n": -1}, "limit": 3} | options
    async with client_of(sites[0]) as first:
        result = await first.subscribe(**window)
        rows = LiveRows()
        rows.replace(result["data"])
        items.update_one({"_id": 0}, {"$set": {"n": 9}})
        items.update_one({"_id": 0}, {"$set": {"n": 10}})
        newest: Json = {}
        while newest.get("changes", {}).get("updated") != {"n": 10} and newest.get("data") != {"_id": 0, "n": 10}:
            newest = await first.hear()
        async with client_of(sites[1]) as second:
            resumed = await second.subscribe(**window, offset_token=result["offset_token"])
            assert resumed["type"] == "resumed"
            for _ in range(resumed["missed"]):
                rows.apply(await second.hear())
    assert rows.records() == [{"_id": 0, "n": 10}, {"_id": 3, "n": 3}, {"_id": 2, "n": 2}]


async def test_a_first_result_contains_every_acknowledged_write_also_of_a_query_that_another_server_follows(
    sites: list[Site],
) -> None:
    """Docs: "Start". The second server takes over a maintained result, whose grid may be a moment behind."""
    items = sites[0].database.items
    items.insert_one({"_id": "first"})
    async with client_of(sites[0]) as here, client_of(sites[1]) as there:
        for number in range(40):
            query = {"round": number}
            await here.subscribe(f"r{number}", query=query)
            items.insert_many([{"round": number} for _ in range(20)])
            result = await there.subscribe(f"r{number}", query=query)
            assert len(result["data"]) == 20, f"round {number}"
            for client in (here, there):
                await client.say(type="unsubscribe", id=f"r{number}")
                await client.say(type="ping", id=f"p{number}")
                while (await client.hear())["type"] != "pong":
                    pass
