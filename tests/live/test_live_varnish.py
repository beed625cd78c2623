"""Live pages behind a real Varnish: streams pass, and long polls are one request of the application for all clients."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.middleware import Middleware

from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.testing.servers import HOST, running, varnish_server
from tests.end_to_end.varnish_site import TOKEN, needs_varnish, seen
from tests.live.counting import Counting
from tests.live.live_site import LiveSite
from tests.live.streamed import following
from tests.support import eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
CLIENTS = 150


def waits(scope: Any) -> bool:
    return any(name == b"prefer" for name, _ in scope["headers"])


@asynccontextmanager
async def behind_varnish(asked: Counter[str], **settings: Any) -> AsyncIterator[tuple[LiveSite, httpx.AsyncClient]]:
    adapter = VarnishAdapter("http://127.0.0.1:9", token=TOKEN)
    site = LiveSite(outer=[Middleware(Counting, asked=asked, waits=waits)], cdn=[adapter], **settings)
    limits = httpx.Limits(max_connections=CLIENTS + 10)
    async with site.served() as origin:
        vcl = varnish_vcl(HOST, origin.base_url.port or 0, purge_token=TOKEN)
        with running(partial(varnish_server, vcl=vcl), "varnish") as varnish:
            async with httpx.AsyncClient(base_url=varnish.url, timeout=60, limits=limits, trust_env=False) as web:
                yield site, web
    await adapter.aclose()


async def test_many_long_polls_are_one_request_of_the_application_for_a_change() -> None:
    asked: Counter[str] = Counter()
    async with behind_varnish(asked) as (site, web):
        tag = (await web.get("/items")).headers["etag"]
        for version in range(2, 5):
            asked.clear()
            fields = {"if-none-match": tag, "prefer": "wait=50"}
            sent: list[str] = []

            async def trace(event: str, _: Any, sent: list[str] = sent) -> None:
                if event == "http11.send_request_body.complete":
                    sent.append(event)

            polls = [
                asyncio.create_task(web.get("/items", headers=fields, extensions={"trace": trace}))
                for _ in range(CLIENTS)
            ]
            await eventually(lambda sent=sent: len(sent) == CLIENTS and asked["polls"] == 1)
            await site.until_followed()
            site.change(version)
            answers = await asyncio.gather(*polls)
            assert {(answer.status_code, answer.text) for answer in answers} == {(200, f'{{"version":{version}}}')}
            assert asked["polls"] == 1
            tag = answers[0].headers["etag"]


async def test_long_polls_without_a_change_are_answered_304() -> None:
    asked: Counter[str] = Counter()
    async with behind_varnish(asked, live_wait_ms=300) as (_, web):
        tag = (await web.get("/items")).headers["etag"]
        fields = {"if-none-match": tag, "prefer": "wait=50"}
        answers = await asyncio.gather(*(web.get("/items", headers=fields) for _ in range(20)))
        assert {(answer.status_code, answer.headers["etag"]) for answer in answers} == {(304, tag)}
        assert asked["polls"] == 1


async def test_a_stream_passes_although_a_plain_answer_is_kept() -> None:
    asked: Counter[str] = Counter()
    async with behind_varnish(asked) as (site, web):
        await web.get("/items")
        assert seen(await web.get("/items")) == "hit"
        async with following(web, "/items") as stream:
            for version in (1, 2):
                if version == 2:
                    site.change(2)
                event = await stream.event()
                assert event is not None
                assert json.loads(event.data) == {"version": version}
