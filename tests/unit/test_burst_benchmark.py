"""The benchmark of bursts saves the share of hits: answers by handlers are fast too, and would hide that the hits ended."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from benchmarks.burst_latency import StillPage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("hits", "share"), [("miss hit miss miss", 0.25), ("miss miss", 0.0), ("hit", 1.0)])
async def test_answers_by_handlers_lower_the_share_of_hits(hits: str, share: float) -> None:
    ended, waiting = asyncio.Event(), hits.split()

    def answer(_: httpx.Request) -> httpx.Response:
        state = waiting.pop(0)
        if not waiting:
            ended.set()
        detail = "hit" if state == "hit" else "fwd=bypass; detail=lagging"
        return httpx.Response(200, headers={"cache-status": f"Quaestor; {detail}"})

    page = StillPage()
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://site") as http:
        await page.read(http, ended)
    figures = page.figures()
    assert figures["share_of_hits"] == share
    assert figures.get("hits", {"count": 0})["count"] == hits.count("hit")
