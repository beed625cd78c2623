"""Live queries over HTTP from several servers of one deployment: positions of one are positions of the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from quaestor import HttpLiveQuery
from tests.live.socket_site import Site, live_site

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
    """Each change arrives once both servers follow the query, without a new snapshot; before that a 409 leads to one."""
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
            if number == 4:
                balanced.statuses.clear()
            items.insert_one({"_id": number, "n": 1})
            wanted.append({"_id": number, "n": 1})
            async for rows in results:
                if rows == wanted:
                    break
        assert set(balanced.statuses) == {200}
