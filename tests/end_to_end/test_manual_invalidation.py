"""Two app processes' worth of Quaestor on one Redis: what one of them invalidates by hand is gone in the other."""

from __future__ import annotations

import io
from typing import Any

import pybloom_live
import pytest

from quaestor.caching import cached, per_user
from tests.end_to_end.declaring_site import user_of
from tests.end_to_end.test_distributed import Worker, grid, pages, workers
from tests.support import eventually

pytestmark = pytest.mark.anyio


def add_tagged(worker: Worker) -> dict[str, int]:
    runs = {"n": 0}

    @worker.app.get("/tagged")
    @cached(tags=["news"])
    async def tagged(kind: str = "") -> dict[str, Any]:
        runs["n"] += 1
        return {"run": runs["n"]}

    @worker.app.get("/mine")
    @cached(tags=["news"], scope=per_user(by=user_of))
    async def mine() -> dict[str, Any]:
        runs["n"] += 1
        return {"run": runs["n"]}

    return runs


async def hit(worker: Worker, path: str, **headers: str) -> bool:
    response = await worker.http.get(path, headers=headers)
    return "; hit" in response.headers["cache-status"]


async def test_a_tag_is_invalidated_in_every_process_and_in_the_sketch(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    with pages(mongo_url, prefix), grid(mongo_url, redis_url, prefix):
        async with workers(mongo_url, redis_url, prefix, staleness_bound_ms=20_000) as (first, second):
            runs = [add_tagged(worker) for worker in (first, second)]
            await eventually(lambda: hit(first, "/tagged"))
            await eventually(lambda: hit(first, "/mine", authorization="Bearer ann"))
            await eventually(lambda: hit(second, "/tagged"))
            await eventually(lambda: hit(second, "/mine", authorization="Bearer ann"))
            before = [dict(count) for count in runs]

            async def run_again() -> bool:
                await hit(first, "/tagged")
                await hit(second, "/mine", authorization="Bearer ann")
                return runs[0]["n"] > before[0]["n"] and runs[1]["n"] > before[1]["n"]

            await second.quaestor.invalidate(tags=["news"])
            await eventually(run_again)

            async def in_sketch() -> bool:
                body = await first.quaestor.sketch.snapshot(now_ms=first.quaestor.read_path.clock())
                sketch = pybloom_live.BloomFilter.fromfile(io.BytesIO(body))
                return "/tagged" in sketch and "/mine" not in sketch

            await eventually(in_sketch)
