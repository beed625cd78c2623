"""Popular answers are made anew before their lifetime ends, once for all workers, and no request waits for that."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse, Response

from quaestor.testing import servers
from tests.end_to_end.workers import World, ask, world
from tests.support import eventually

pytestmark = pytest.mark.anyio

__all__ = ["world"]

COST_MS = 1_000
EARLY_MS = 694
"""The cost, and what it makes of a draw of one half."""
LIFETIME_MS = 60_000


@pytest.fixture
async def hot(world: World) -> World:
    """Every worker has the entry, which took a second to make."""

    async def slow() -> Response:
        run = world.runs
        if run == 1:
            pass_time(world, COST_MS)
        await world.gate.wait()
        return PlainTextResponse(f"run {run}")

    world.handle = slow
    world.gate.set()
    for worker in world.workers:
        worker.engine.read_path.lookup.early.uniform = lambda: 0.5
    for worker in world.workers:
        assert await worker.get() == "run 1"
    world.gate.clear()
    return world


def pass_time(world: World, by_ms: int) -> None:
    for worker in world.workers:
        worker.engine.clock.now_ms += by_ms


async def answers(world: World, each: int = 1) -> set[str]:
    return set(await asyncio.gather(*ask(world, each)))


async def test_one_refresh_for_all_workers_and_nobody_waits_for_it(hot: World) -> None:
    pass_time(hot, LIFETIME_MS - EARLY_MS - 1)
    assert await answers(hot, each=5) == {"run 1"}
    assert hot.runs == 1, "not yet"
    pass_time(hot, 1)
    assert await answers(hot, each=5) == {"run 1"}, "served while it is being made anew"
    await hot.begun(2)
    assert await answers(hot, each=5) == {"run 1"}
    hot.gate.set()

    async def everywhere() -> bool:
        return "run 2" in await answers(hot)

    await eventually(everywhere)
    pass_time(hot, EARLY_MS)  # the others' entries end; they find the new one
    assert await answers(hot, each=5) == {"run 2"}
    assert hot.runs == 2


async def test_a_worker_that_comes_later_adopts_what_another_has_made_anew(hot: World) -> None:
    first, late = hot.workers[0], hot.workers[1]
    hot.gate.set()
    pass_time(hot, LIFETIME_MS - EARLY_MS)
    assert await first.get() == "run 1"

    async def renewed() -> bool:
        return await first.get() == "run 2"

    await eventually(renewed)

    async def adopted() -> bool:
        return await late.get() == "run 2"

    await eventually(adopted)
    assert hot.runs == 2


async def test_unread_answers_are_not_refreshed(hot: World) -> None:
    hot.gate.set()
    pass_time(hot, LIFETIME_MS + 1)
    assert hot.runs == 1
    assert await answers(hot) == {"run 2"}


async def test_a_refresh_that_fails_costs_nobody_an_answer(hot: World) -> None:
    async def fail() -> Response:
        raise RuntimeError("no")

    hot.handle = fail
    pass_time(hot, LIFETIME_MS - EARLY_MS)
    assert await answers(hot, each=5) == {"run 1"}
    await hot.begun(2)
    assert await answers(hot, each=5) == {"run 1"}


async def test_while_redis_is_away_nothing_is_refreshed_early(hot: World, valkey: servers.Server) -> None:
    valkey.kill()
    pass_time(hot, LIFETIME_MS - EARLY_MS)
    assert await answers(hot, each=5) == {"run 1"}
    await eventually(lambda: all(len(worker.engine.read_path.coalescing) == 0 for worker in hot.workers))
    assert await answers(hot, each=5) == {"run 1"}
    assert hot.runs == 1
