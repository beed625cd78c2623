"""Stale answers where the entry lies in the shared store only: no request waits for the worker that refreshes it."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse, Response

from tests.end_to_end.workers import World, ask, world
from tests.support import eventually

pytestmark = pytest.mark.anyio

__all__ = ["world"]


@pytest.fixture
async def stale(world: World) -> World:
    """The entry lies in Redis and in the first worker's memory, and its lifetime is over."""

    async def handle() -> Response:
        run = world.runs
        await world.gate.wait()
        return PlainTextResponse(f"run {run}", headers={"cache-control": "max-age=10, stale-while-revalidate=30"})

    world.handle = handle
    world.gate.set()
    assert await world.workers[0].get() == "run 1"
    world.gate.clear()
    for worker in world.workers:
        worker.engine.clock.now_ms += 12_000
    return world


async def test_every_worker_answers_at_once_and_one_handler_runs(stale: World) -> None:
    assert set(await asyncio.gather(*ask(stale, each=3))) == {"run 1"}
    await stale.begun(2)
    assert set(await asyncio.gather(*ask(stale, each=3))) == {"run 1"}
    stale.gate.set()

    async def everywhere() -> bool:
        return set(await asyncio.gather(*ask(stale))) == {"run 2"}

    await eventually(everywhere)
    assert stale.runs == 2


async def test_an_invalidated_answer_is_not_stale_but_dead(stale: World) -> None:
    stale.registry.kill()
    stale.gate.set()
    assert set(await asyncio.gather(*ask(stale, each=3))) == {"run 2"}
    assert stale.runs == 2
