"""Live queries over HTTP in the snapshot: long polls that wait, answers by content, and refused requests of a running app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from quaestor.dashboard.process_report import ProcessReporter
from quaestor.dashboard.snapshot import composed
from tests.live.socket_site import Site, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "dashboard_live_http", settings={"live_wait_ms": 60_000}) as running:
        yield running


class Snapshots:
    """Snapshots of the site's process, made in its event loop."""

    def __init__(self, site: Site) -> None:
        self._site, self._reporter = site, ProcessReporter(site.quaestor)

    async def newest(self) -> dict[str, Any]:
        """Snapshot of this moment."""

        async def made() -> dict[str, Any]:
            report = self._reporter.report()
            return composed([report], now_ms=report["at_ms"], published=None, canary=None)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made(), self._site.loops[0]))

    async def become(self, metric: str, counts: dict[str, float]) -> None:
        """Wait until the sums of a metric have these counts, zeros left out."""

        async def equal() -> bool:
            found = (await self.newest())["sums"].get(metric, {})
            return {label: count for label, count in found.items() if count} == counts

        await eventually(equal)


async def test_long_polls_answers_and_refusals_reach_the_snapshot(site: Site) -> None:
    """Two waiting polls are counted while they wait; their answers and a refused request are counted by content."""
    snapshots = Snapshots(site)
    async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
        begun = await web.get("/items", params={"query": json.dumps({"price": {"$lt": 100}})})
        polls = [asyncio.create_task(web.get("/items" + begun.json()["next"])) for _ in range(2)]
        await snapshots.become("live_polls", {"all": 2})
        await snapshots.become("live_http", {"snapshot": 1})
        await asyncio.to_thread(site.database.items.insert_one, {"_id": 1, "price": 3})
        for answer in await asyncio.gather(*polls):
            assert len(answer.json()["changes"]) == 1
        assert (await web.get("/items", params={"nonsense": "1"})).status_code == 400
        await snapshots.become("live_polls", {})
        await snapshots.become("live_http", {"snapshot": 1, "changes": 2, "refused": 1})
        windows = (await snapshots.newest())["windows"]
        assert windows["300"]["live_http"] == {"snapshot": 1, "changes": 2, "refused": 1}
