"""Live pages behind each real cache with our configuration: a copy of the plain answer never answers an EventSource."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest

from benchmarks.setups.real_caches import RealCache, each_cache
from quaestor.testing.servers import running
from tests.live.live_site import LiveSite
from tests.live.streamed import following
from tests.support import PATIENCE_S

pytestmark = [pytest.mark.anyio, each_cache]
PAGE = "text/html,application/xhtml+xml,*/*;q=0.8"
KEEPS_ONE_COPY = ("varnish", "nginx")
"""Caches with one copy for all values of Accept. Traffic Server has a copy for each of them, and Squid none."""


@asynccontextmanager
async def behind(kind: RealCache) -> AsyncIterator[tuple[LiveSite, httpx.AsyncClient]]:
    adapter = kind.delivery("http://127.0.0.1:9")
    site = LiveSite(cdn=[adapter])
    site.engine.clock.now_ms = int(time.time() * 1_000)  # nginx receives the end of the lifetime
    async with site.served() as origin:
        with running(partial(kind.start, app_port=origin.base_url.port), kind.name) as cache:
            async with httpx.AsyncClient(base_url=cache.url, timeout=PATIENCE_S, trust_env=False) as web:
                yield site, web
    await adapter.aclose()


async def test_a_stream_passes_beside_copies_of_the_plain_answer(kind: RealCache) -> None:
    """A copy is made before the stream and while it runs; events pass at once, and plain requests get no stream."""
    async with behind(kind) as (site, web):
        plain = await web.get("/items")
        assert (plain.headers["vary"], "quaestor-live" in plain.headers) == ("accept", False)
        hit = await web.get("/items")
        assert (hit.json(), hit.headers["vary"]) == ({"version": 1}, "accept")
        async with following(web, "/items") as stream:
            for version in (1, 2):
                if version == 2:
                    site.change(2)
                event = await stream.event()
                assert event is not None
                assert json.loads(event.data) == {"version": version}
                assert "version" in (await web.get("/items")).json()


async def test_one_copy_serves_all_values_of_accept(kind: RealCache) -> None:
    """A page and its script send different values; `Vary: Accept` costs no hit."""
    if kind.name not in KEEPS_ONE_COPY:
        pytest.skip(f"{kind.name} keeps a copy for each value of Accept, or none of an answer that varies")
    async with behind(kind) as (_, web):
        await web.get("/items", headers={"accept": PAGE})
        for accept in ("*/*", "application/json", PAGE):
            answer = await web.get("/items", headers={"accept": accept})
            assert f"{kind.name}; hit" in answer.headers["cache-status"].lower()
