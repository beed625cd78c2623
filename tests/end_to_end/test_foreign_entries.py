"""Entries in the shared store that another process wrote: other settings, other times, other applications."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quaestor.model import CachedResponse
from quaestor.read_path.unsafe_invalidation import Outdated
from quaestor.store import entry_codec
from tests.end_to_end.workers import KEY, World, ask, world

pytestmark = pytest.mark.anyio

__all__ = ["world"]


async def stored(world: World) -> CachedResponse:
    """An entry that the first worker has put there; it dies in everybody's memory, and is taken out of Redis."""
    world.gate.set()
    assert await world.workers[0].get() == "run 1"
    entry = await world.workers[0].shared.get(KEY)
    assert entry is not None
    await world.workers[0].engine.store.evict([entry])
    return entry


async def test_unguarded_entries_are_not_served_by_a_process_that_promises_invalidation(world: World) -> None:
    """Another process of the deployment runs with `explicit` and keeps answers by their own lifetime."""
    own = await stored(world)
    unguarded = replace(own, registrations=(), body=b"kept by its lifetime")
    await world.workers[0].shared.put(unguarded, ttl_ms=60_000)
    for worker in world.workers:
        assert await worker.get() == "run 2"
        assert await worker.get() == "run 2", "nor from memory"


async def test_entries_that_no_handler_can_have_answered_are_passed_over(world: World) -> None:
    """Somebody who may write to Redis puts an answer within an answer there, or one that servers stumble over."""
    own = await stored(world)
    split = replace(own, headers=((b"x", b"1\r\n\r\nHTTP/1.1 200 OK"),))
    await world.workers[0].shared.put(split, ttl_ms=60_000)
    for _ in range(2):
        answers = [await task for task in ask(world)]
        assert all(answer.startswith("run") for answer in answers)
    for worker in world.workers:
        assert "x" not in (await worker.client.get("/a")).headers


async def test_an_entry_of_an_older_release_is_not_served(world: World) -> None:
    """An older release's key holds fewer inputs, so its entry may belong to another user.

    Our entry carries a version that older releases take for no entry.
    """
    own = await stored(world)
    shared = world.workers[0].shared
    older = replace(own, body=b"of another organisation")
    await shared.client.set(shared.name(KEY), b"QE\x03" + entry_codec.encode(older)[3:], px=60_000)
    assert await shared.get(KEY) is None
    for worker in world.workers:
        assert await worker.get() == "run 2"
    assert (await shared.client.get(shared.name(KEY)))[:3] == b"QE\x08"


async def test_an_entry_that_was_read_only_to_outdate_it_is_not_served(world: World) -> None:
    """The entry was stored before this process listened to invalidations, so the process does not know whether it is
    current.
    """

    own = await stored(world)
    await world.workers[0].shared.put(own, ttl_ms=60_000)
    worker = world.workers[1]
    worker.engine.registry.known_since_ms = own.stored_at_ms + 1
    await worker.engine.read_path.explicit.outdate(Outdated(keys=(KEY,)), url_origin="http://shop.test")
    assert worker.engine.read_path.lookup.servable(KEY, worker.engine.clock()) is None
    assert await worker.get() == "run 2"
