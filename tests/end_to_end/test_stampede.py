"""One handler run per key across workers: four app processes' worth of middleware on one real Valkey."""

from __future__ import annotations

import asyncio
import time

import pytest
from starlette.responses import PlainTextResponse, Response

from quaestor.ports import Turn
from quaestor.read_path import coalescing
from quaestor.store.redis import RedisStore
from quaestor.testing import servers
from tests.end_to_end.workers import KEY, World, ask, world
from tests.support import eventually

pytestmark = pytest.mark.anyio

__all__ = ["world"]


async def test_a_hundred_requests_at_four_workers_are_one_run(world: World) -> None:
    requests = ask(world, each=25)
    await world.begun()
    await eventually(lambda: sum(worker.waiting for worker in world.workers) == 3)
    world.gate.set()
    assert set(await asyncio.gather(*requests)) == {"run 1"}
    assert world.runs == 1


async def test_after_an_invalidation_the_database_is_asked_once(world: World) -> None:
    """The dead entry may lie in every memory and in Redis still."""
    world.gate.set()
    for worker in world.workers:
        await worker.get()
    assert world.runs == 1
    world.registry.kill()
    assert set(await asyncio.gather(*ask(world, each=10))) == {"run 2"}
    assert world.runs == 2


async def test_other_keys_do_not_wait(world: World) -> None:
    requests = ask(world)
    await world.begun()
    other = asyncio.create_task(world.workers[1].get("/b"))
    await world.begun(2)
    world.gate.set()
    assert await other
    await asyncio.gather(*requests)


async def test_when_the_handler_raises_another_worker_leads(world: World) -> None:
    async def fail_first() -> Response:
        mine = world.runs
        await world.gate.wait()
        if mine == 1:
            raise RuntimeError("no")
        return PlainTextResponse("second")

    world.handle = fail_first
    requests = ask(world)
    await world.begun()
    await eventually(lambda: sum(worker.waiting for worker in world.workers) == 3)
    world.gate.set()
    assert sorted(await asyncio.gather(*requests)) == ["500", "second", "second", "second"]
    assert world.runs == 2


async def test_when_the_leaders_client_goes_away_the_others_are_answered(world: World) -> None:
    """Some servers cancel the request's task then."""
    leader = asyncio.create_task(world.workers[0].get())
    await world.begun()
    here = [asyncio.create_task(world.workers[0].get()) for _ in range(5)]
    elsewhere = [asyncio.create_task(worker.get()) for worker in world.workers[1:]]
    await eventually(lambda: sum(worker.waiting for worker in world.workers) == 3)
    leader.cancel()
    world.gate.set()
    assert set(await asyncio.gather(*here, *elsewhere)) == {"run 2"}
    assert world.runs == 2


async def test_a_waiting_client_that_goes_away_cancels_nothing(world: World) -> None:
    leader = asyncio.create_task(world.workers[0].get())
    await world.begun()
    gone = [asyncio.create_task(worker.get()) for worker in world.workers]
    stays = asyncio.create_task(world.workers[1].get())
    await eventually(lambda: sum(worker.waiting for worker in world.workers) == 3)
    for task in gone:
        task.cancel()
    await asyncio.wait(gone)
    world.gate.set()
    assert await leader == "run 1"
    assert await stays == "run 1"
    assert world.runs == 1


async def test_an_answer_that_must_not_be_shared_keeps_nobody_waiting(world: World) -> None:
    """Everybody runs a handler, side by side, and so do the next."""

    async def private() -> Response:
        await world.gate.wait()
        return PlainTextResponse("mine", headers={"cache-control": "private"})

    world.handle = private
    requests = ask(world)
    await world.begun()
    await eventually(lambda: sum(worker.waiting for worker in world.workers) == 3)
    world.gate.set()
    assert await asyncio.gather(*requests) == ["mine"] * 4
    assert world.runs == 4
    world.gate.clear()
    again = ask(world)
    await world.begun(8)
    world.gate.set()
    await asyncio.gather(*again)


async def test_a_worker_that_dies_holding_the_lease_frees_the_others(world: World) -> None:
    ghost = RedisStore(world.workers[0].redis, deployment="d")
    assert await ghost.take(KEY, holder="ghost", lease_ms=300) is Turn.MINE
    world.gate.set()
    assert set(await asyncio.gather(*ask(world, each=3))) == {"run 1"}
    assert world.runs == 1


async def test_a_long_run_keeps_its_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        coalescing, "LEASE_MS", 5_000
    )  # renewed in time even if everything stands still for three seconds
    requests = ask(world)
    await world.begun()
    end = time.monotonic() + 6
    await eventually(lambda: time.monotonic() > end)
    assert world.runs == 1, "longer than the lease, and nobody else has begun"
    world.gate.set()
    assert set(await asyncio.gather(*requests)) == {"run 1"}


async def test_a_run_that_is_too_long_for_others_is_not_waited_for_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "LEASE_WAIT_S", 0.2)
    requests = ask(world)
    await world.begun(4)
    world.gate.set()
    assert len(await asyncio.gather(*requests)) == 4


async def test_when_redis_is_gone_every_worker_runs_its_own(world: World, valkey: servers.Server) -> None:
    requests = ask(world, each=3)
    await world.begun()
    await eventually(lambda: sum(worker.waiting for worker in world.workers) == 3)
    valkey.kill()
    world.gate.set()
    assert all(text.startswith("run") for text in await asyncio.gather(*requests))
    assert all(text.startswith("run") for text in await asyncio.gather(*ask(world)))
    failed = sum(worker.engine.count("failures", part="store") for worker in world.workers)
    assert failed >= 4
