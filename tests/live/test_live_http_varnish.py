"""Live queries over HTTP behind a real Varnish: one request of the application for a change, however many clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.middleware import Middleware

from quaestor.cdn_adapters import varnish_vcl
from quaestor.rest.access import Principal
from quaestor.testing.servers import HOST, running, varnish_server
from tests.end_to_end.varnish_site import TOKEN, needs_varnish, seen
from tests.live.counting import Counting
from tests.live.socket_site import Site, live_site
from tests.support import eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
CLIENTS = 150


def waits(scope: Any) -> bool:
    return b"live=true" in scope["query_string"]


@asynccontextmanager
async def behind_varnish(
    mongo_url: str, database: str, asked: Counter[str], **live: Any
) -> AsyncIterator[tuple[Site, httpx.AsyncClient]]:
    limits = httpx.Limits(max_connections=CLIENTS + 10)
    with live_site(mongo_url, database, outer=[Middleware(Counting, asked=asked, waits=waits)], **live) as site:
        site.database.items.insert_one({"_id": "first"})
        vcl = varnish_vcl(HOST, urlsplit(site.http).port or 0, purge_token=TOKEN)
        with running(partial(varnish_server, vcl=vcl), "varnish") as varnish:
            base = f"{varnish.url}/live"
            async with httpx.AsyncClient(base_url=base, timeout=60, limits=limits, trust_env=False) as web:
                yield site, web


async def test_many_polls_are_one_request_for_a_change_and_chunks_are_hits(mongo_url: str) -> None:
    asked: Counter[str] = Counter()
    async with behind_varnish(mongo_url, "live_http_varnish", asked) as (site, web):
        snapshot = (await web.get("/items")).json()
        following = snapshot["next"]
        waiting = site.quaestor.telemetry.live.polls._value
        for number in range(3):
            asked.clear()
            sent: list[str] = []

            async def trace(event: str, _: Any, sent: list[str] = sent) -> None:
                if event == "http11.send_request_body.complete":
                    sent.append(event)

            url = "/items" + following
            polls = [asyncio.create_task(web.get(url, extensions={"trace": trace})) for _ in range(CLIENTS)]
            await eventually(lambda sent=sent: len(sent) == CLIENTS and waiting.get() == 1)
            site.database.items.insert_one({"_id": number})
            answers = await asyncio.gather(*polls)
            assert {tuple(c["data"]["_id"] for c in answer.json()["changes"]) for answer in answers} == {(number,)}
            assert asked["polls"] == 1
            assert seen(await web.get(url)) == "hit"
            following = answers[0].json()["next"]
        asked.clear()
        chunk = f"/items?epoch={snapshot['epoch']}&offset={snapshot['offset']}"
        first, second = await web.get(chunk), await web.get(chunk)
        assert [change["data"]["_id"] for change in second.json()["changes"]] == [0, 1, 2]
        assert (seen(first), seen(second), asked["others"]) == ("miss", "hit", 1)


async def test_polls_without_news_end_together_and_go_on_as_one(mongo_url: str) -> None:
    """The end of a wait is one answer for all clients; their next polls have one URL, and are one request again."""
    asked: Counter[str] = Counter()
    settings = {"live_wait_ms": 2_000}
    async with behind_varnish(mongo_url, "live_http_varnish_slots", asked, settings=settings) as (_, web):
        following = {(await web.get("/items")).json()["next"]}
        for _ in range(3):
            asked.clear()
            answers = await asyncio.gather(*(web.get("/items" + url) for url in following for _ in range(40)))
            assert {answer.json()["up_to_date"] for answer in answers} == {True}
            following = {answer.json()["next"] for answer in answers}
            assert (asked["polls"], len(following)) == (1, 1)


async def test_a_409_and_the_end_of_the_changes_are_never_kept(mongo_url: str) -> None:
    asked: Counter[str] = Counter()
    async with behind_varnish(mongo_url, "live_http_varnish_409", asked) as (_, web):
        snapshot = (await web.get("/items")).json()
        asked.clear()
        for url in ("/items?epoch=1&offset=1", f"/items?epoch={snapshot['epoch']}&offset={snapshot['offset']}"):
            answers = [await web.get(url) for _ in range(2)]
            assert "hit" not in {seen(answer) for answer in answers}
        assert asked["others"] == 4


async def test_a_private_result_is_never_kept(mongo_url: str) -> None:
    """Each request for a result that depends on its reader reaches the application."""
    asked: Counter[str] = Counter()

    def who(request: Any) -> Principal:
        name = request.headers.get("x-user")
        return Principal(user=name) if name else Principal()

    async with behind_varnish(mongo_url, "live_http_varnish_own", asked, principal=who) as (site, web):
        site.database.items.insert_one({"_id": "tims", "_acl": {"read": {"allow": ["user:tim"]}}})
        found = {}
        for name in ("tim", "ann", "tim"):
            answer = await web.get("/items", headers={"x-user": name})
            assert seen(answer) != "hit"
            found[name] = [record["_id"] for record in answer.json()["data"]]
            chunk = await web.get(
                f"/items?epoch={answer.json()['epoch']}&offset={answer.json()['offset']}", headers={"x-user": name}
            )
            assert (seen(chunk) == "hit", chunk.headers["cache-control"]) == (False, "private, no-store")
        assert found == {"tim": ["first", "tims"], "ann": ["first"]}
        assert asked["others"] == 6
