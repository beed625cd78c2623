"""Entries that were stored without their process knowing: a store that answers too late, a request that was cancelled."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.read_path import eviction_retry
from tests.end_to_end.workers import KEY, World, world
from tests.support import eventually

pytestmark = pytest.mark.anyio

__all__ = ["world"]


async def test_an_entry_stored_after_it_was_given_up_is_still_guarded(world: World) -> None:
    """The packet was late. Other processes find the entry; a write that comes then has to kill it."""
    world.gate.set()
    worker = world.workers[0]
    put, late = worker.shared.put, list[CachedResponse]()

    async def timed_out(response: CachedResponse, *, ttl_ms: int) -> None:
        late.append(response)
        raise StoreError("no answer within 1 s")

    worker.shared.put = timed_out  # type: ignore[method-assign]
    assert await worker.get() == "run 1"
    await put(late[0], ttl_ms=60_000)
    assert await world.workers[1].get() == "run 1", "it is there, and its database is as it was"
    assert all(world.registry.leases[i] > worker.engine.clock() for i in late[0].registrations)
    world.registry.kill()
    assert await world.workers[1].get() == "run 2"


async def test_a_cancelled_request_leaves_nothing_that_died_meanwhile(world: World) -> None:
    """A client goes away at the moment at which its answer is being stored and a write kills it."""
    world.gate.set()
    worker = world.workers[0]
    put, arrived = worker.shared.put, asyncio.Event()

    async def unheard(response: CachedResponse, *, ttl_ms: int) -> None:
        await put(response, ttl_ms=ttl_ms)
        arrived.set()
        await asyncio.Event().wait()

    worker.shared.put = unheard  # type: ignore[method-assign]
    leaving = asyncio.create_task(worker.get())
    await arrived.wait()
    assert await worker.shared.get(KEY) is not None
    world.registry.kill()
    leaving.cancel()
    await asyncio.wait((leaving,))

    async def gone() -> bool:
        return await world.workers[1].shared.get(KEY) is None

    await eventually(gone)


async def test_an_eviction_that_failed_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry died while it was stored, and the store went away at that moment; no other process would ever evict it."""
    monkeypatch.setattr(eviction_retry, "AGAIN_AFTER_S", (0.0, 0.0, 0.0))
    world.gate.set()
    worker = world.workers[0]
    put, evict, failures = worker.shared.put, worker.shared.evict, 2

    async def killed(response: CachedResponse, *, ttl_ms: int) -> None:
        await put(response, ttl_ms=ttl_ms)
        world.registry.kill()

    async def away(dead: list[CachedResponse]) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreError("gone")
        await evict(dead)

    worker.shared.put, worker.shared.evict = killed, away  # type: ignore[assignment, method-assign]
    assert await worker.get() == "run 1"
    await worker.engine.read_path.coalescing.settle()
    assert await world.workers[1].shared.get(KEY) is None
    assert failures < 0
