"""HttpLiveQuery: results by chunks and long polls, through proxies that fail, drop query strings, or keep what they must not."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from quaestor import HttpLiveQuery
from quaestor.errors import ConfigurationError, SubscriptionError
from quaestor.rest.access import Principal
from quaestor.tasks import ended
from tests.live.hostile_proxy import HostileProxy, hostile_proxy
from tests.live.one_time_tokens import OneTimeTokens
from tests.live.socket_site import Site, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
MOST_REQUESTS = 8
"""Requests of a client that gives up: each at most twice, and few in a row."""


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_http_client", settings={"live_wait_ms": 500}) as running:
        yield running


@pytest.fixture(scope="module")
def proxied(site: Site) -> Iterator[tuple[HostileProxy, str]]:
    with hostile_proxy(site.http) as pair:
        yield pair


@pytest.fixture
def proxy(proxied: tuple[HostileProxy, str]) -> HostileProxy:
    proxied[0].mend()
    return proxied[0]


@pytest.fixture
def url(proxied: tuple[HostileProxy, str], proxy: HostileProxy) -> str:
    return f"{proxied[1]}/live"


async def until(results: HttpLiveQuery, wanted: list[Any]) -> None:
    """Iterates until the result is this one."""
    async for rows in results:
        if rows == wanted:
            return


async def test_results_come_whole_first_and_whenever_they_change(site: Site, items: Any, url: str) -> None:
    items.insert_one({"_id": 1, "n": 1})
    async with HttpLiveQuery(url, "items", {"n": {"$gt": 0}}, sort=[("n", -1)], limit=2) as results:
        assert results.latest() is None
        assert await anext(results) == [{"_id": 1, "n": 1}]
        items.insert_one({"_id": 2, "n": 2})
        await until(results, [{"_id": 2, "n": 2}, {"_id": 1, "n": 1}])
        items.update_one({"_id": 1}, {"$set": {"n": 0}})
        await until(results, [{"_id": 2, "n": 2}])
        assert results.latest() == [{"_id": 2, "n": 2}]


@pytest.mark.parametrize("seed", range(3))
async def test_the_result_equals_the_database_after_random_writes(
    site: Site, items: Any, url: str, proxy: HostileProxy, seed: int
) -> None:
    """Oracle: sorted windows and plain filters, through a proxy that fails now and then: chunks, resumes, borders."""
    proxy.fails = 0.2
    chance = random.Random(seed)
    window: dict[str, Any] = {"sort": [("n", 1)], "limit": 5, "skip": seed}

    async def follow(results: HttpLiveQuery) -> None:
        async for _ in results:
            pass

    def write() -> None:
        key, n = chance.randrange(20), chance.randrange(100)
        if chance.random() < 0.25:
            items.delete_one({"_id": key})
        else:
            items.update_one({"_id": key}, {"$set": {"n": n}}, upsert=True)

    def agree() -> bool:
        wanted = list(items.find({"n": {"$lt": 60}}).sort([("n", 1), ("_id", 1)]).skip(seed).limit(5))
        even = {record["_id"]: record for record in items.find({"n": {"$mod": [2, 0]}})}
        found = {record["_id"]: record for record in filtered.latest() or []}
        return (sorted_rows.latest(), found) == (wanted, even)

    async with (
        HttpLiveQuery(url, "items", {"n": {"$lt": 60}}, **window) as sorted_rows,
        HttpLiveQuery(url, "items", {"n": {"$mod": [2, 0]}}) as filtered,
    ):
        following = [asyncio.create_task(follow(one)) for one in (sorted_rows, filtered)]
        for _ in range(150):
            await asyncio.to_thread(write)
        await eventually(agree, within_s=60)
        await ended(following)


async def refused(url: str, proxy: HostileProxy) -> str:
    """The error of a client that gives up, with the few requests that it made."""
    async with HttpLiveQuery(url, "items", {"n": 1}) as results:
        with pytest.raises(SubscriptionError) as error:
            await asyncio.wait_for(until(results, ["never"]), 20)
    assert proxy.requests <= MOST_REQUESTS
    assert not error.value.retryable
    return str(error.value)


@pytest.mark.parametrize(
    ("stripped", "text"), [("*", "query string"), ("query", "query string"), ("offset", "offset"), ("epoch", "epoch")]
)
async def test_a_proxy_that_drops_the_query_string_is_an_error_and_no_loop(
    site: Site, items: Any, url: str, proxy: HostileProxy, stripped: str, text: str
) -> None:
    """The answer is for other parameters: one more try, then an error that names the proxy's fault."""
    proxy.strips = frozenset({stripped})
    assert text in await refused(url, proxy)


async def test_a_proxy_that_keeps_answers_by_path_is_an_error_and_no_loop(
    site: Site, items: Any, url: str, proxy: HostileProxy
) -> None:
    proxy.keeps, proxy.by_path = frozenset({200}), True
    assert "answered another request" in await refused(url, proxy)


async def test_a_redirect_is_not_followed(site: Site, items: Any, url: str, proxy: HostileProxy) -> None:
    proxy.redirects = True
    assert "307" in await refused(url, proxy)


async def test_a_kept_409_is_passed_by(site: Site, items: Any, url: str, proxy: HostileProxy) -> None:
    """The client's epoch ends, and the proxy keeps the 409 for ever: the client goes on with a new snapshot."""
    proxy.keeps = frozenset({409})
    items.insert_one({"_id": 1, "n": 1})
    async with HttpLiveQuery(url, "items", {"n": 1}) as results:
        assert await anext(results) == [{"_id": 1, "n": 1}]
        results._next = results._next.replace("&offset=", "&offset=9")
        assert await anext(results) == [{"_id": 1, "n": 1}]
        items.insert_one({"_id": 2, "n": 1})
        await until(results, [{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
        assert proxy.requests <= MOST_REQUESTS


async def test_answers_without_news_that_are_kept_do_not_stop_the_client(
    site: Site, items: Any, url: str, proxy: HostileProxy
) -> None:
    """A proxy keeps every answer for ever: each position has URLs of its own, so the client still receives each change."""
    proxy.keeps = frozenset({200})
    async with HttpLiveQuery(url, "items", {"n": 1}) as results:
        assert await anext(results) == []
        for number in range(3):
            items.insert_one({"_id": number, "n": 1})
            await until(results, [{"_id": n, "n": 1} for n in range(number + 1)])


async def test_a_refused_query_is_an_error_with_the_reason(site: Site, items: Any, url: str) -> None:
    async with HttpLiveQuery(url, "items", {"$where": "1"}) as results:
        with pytest.raises(SubscriptionError, match=r"\$where"):
            await anext(results)


def test_a_url_of_another_scheme_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ws://"):
        HttpLiveQuery("ws://shop.example/live", "items")


async def test_a_client_of_the_application_stays_open(site: Site, items: Any, url: str) -> None:
    """Credentials and limits are those of the given client, which the query does not close."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        async with HttpLiveQuery(url, "items", http=http) as results:
            assert await anext(results) == []
        assert not http.is_closed


async def test_a_token_that_ends_during_a_long_poll_is_replaced(mongo_url: str, prefix: str) -> None:
    """401: the query asks for a token again, and goes on behind the newest change."""
    who, numbers = OneTimeTokens(), itertools.count()

    async def token() -> str:
        return str(next(numbers))

    with live_site(mongo_url, prefix, principal=who, settings={"live_wait_ms": 300}) as site:
        async with HttpLiveQuery(f"{site.http}/live", "items", token=token) as results:
            assert await anext(results) == []
            for number in range(3):
                waiting = asyncio.create_task(until(results, [{"_id": place} for place in range(number + 1)]))
                await eventually(lambda number=number: who.refused > number)
                site.database.items.insert_one({"_id": number})
                await asyncio.wait_for(waiting, 20)


@pytest.mark.parametrize(("fresh", "requests"), [(True, ["Bearer 0", "Bearer 1"]), (False, ["Bearer fixed"])])
async def test_a_refused_token_is_an_error_and_no_loop(
    mongo_url: str, prefix: str, fresh: bool, requests: list[str]
) -> None:
    """The second 401 in a row is final. Without a function that could give another token the first one is."""
    asked: list[str] = []
    numbers = itertools.count()

    def who(request: Request) -> Principal:
        asked.append(request.headers["authorization"])
        raise HTTPException(401, "unknown token")

    with live_site(mongo_url, prefix, principal=who) as site:
        token = (lambda: str(next(numbers))) if fresh else "fixed"
        async with HttpLiveQuery(f"{site.http}/live", "items", token=token) as results:
            with pytest.raises(SubscriptionError, match="unknown token"):
                await anext(results)
    assert asked == requests
