"""Effects: the sketch first, then the stores, then the CDN; nothing is lost when a part is away or a process dies."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pybloom_live
import pytest

from quaestor.cache_sketch import MemoryCacheSketch
from quaestor.errors import CdnError, StoreError
from quaestor.invalidation.effects.effects import BATCH, CLAIM_LEASE_MS, Effects
from quaestor.invalidation.effects.settling import Settling
from quaestor.model import CachedResponse, Cell, Dependent, Invalidated, MatchType
from quaestor.observability.hooks import InvalidationDone
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import ClaimedDependent, Guarded, SharedInvalidation
from quaestor.read_path.local_store import EntryStorage
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.memory import MemoryStore
from quaestor.ttl import TtlEstimator
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Registrations:
    origin = "me"

    def __init__(self) -> None:
        self.kept_dead: set[str] = set()
        self.cancelled: set[str] = set()
        self.resumed = False

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        self.kept_dead.update(registration_ids)

    def cancel(self, registration_ids: Sequence[str]) -> None:
        self.cancelled.update(registration_ids)

    def resume(self) -> None:
        self.resumed = True


class Cdn:
    """A CDN of one page per tag; notes what sketch and store held at the moment of each purge."""

    name = "cdn"

    def __init__(self, world: World) -> None:
        self.world = world
        self.refusals = 0
        self.purged: list[tuple[str, ...]] = []
        self.seen: list[tuple[bool, bool]] = []

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        return []

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise CdnError("refused", retry_after_s=0.01)
        self.purged.append(tuple(tags))
        self.seen.append((await self.world.in_sketch("/a"), await self.world.store.get("k") is not None))

    async def aclose(self) -> None: ...


class AwayIndex(MemoryIndex):
    """Does not answer the first claims."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0

    async def claim(self, registration_ids: Sequence[str], *, now_ms: int) -> list[Dependent]:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("away")
        return await super().claim(registration_ids, now_ms=now_ms)


class World:
    def __init__(
        self, store: MemoryStore | None = None, share: Callable[[World], SharedInvalidation] | None = None
    ) -> None:
        self.now_ms = 1_000_000
        self.store = MemoryStore(budget_bytes=10**6) if store is None else store
        self.index = AwayIndex()
        self.sketch = MemoryCacheSketch()
        self.registrations = Registrations()
        self.telemetry = Telemetry()
        self.estimator = TtlEstimator(ttl_min_ms=1_000, ttl_max_ms=60_000)
        shared = None if share is None else share(self)
        self.effects = Effects(
            self.registrations,
            EntryStorage(store=self.store, index=self.index, sketch=self.sketch, share=shared),
            self.estimator,
            ProcessContext.of(Settings(repurge_after_ms=1), telemetry=self.telemetry, clock=lambda: self.now_ms),
            forget=self.store.drop_guarded,
        )
        self.cdn = Cdn(self)
        self.effects.cdn.append(self.cdn)
        self.observed: list[InvalidationDone] = []
        self.telemetry.hooks.invalidations.append(self.observed.append)

    async def in_sketch(self, resource: str) -> bool:
        body = await self.sketch.snapshot(now_ms=self.now_ms)
        return resource in pybloom_live.BloomFilter.fromfile(io.BytesIO(body))

    async def cache(self, *registrations: str) -> None:
        until_ms = self.now_ms + 60_000
        await self.index.add(
            Dependent(
                key="k",
                registrations=registrations,
                resource="/a",
                urls=("http://x/a",),
                tags=("t1", "all"),
                copies_until_ms=until_ms,
            )
        )
        await self.sketch.report_read("/a", expires_at_ms=until_ms, now_ms=self.now_ms)
        await self.store.put(
            CachedResponse(
                key="k",
                status=200,
                headers=(),
                body=b"",
                etag=b'"e"',
                stored_at_ms=self.now_ms,
                fresh_until_ms=until_ms,
                registrations=registrations,
                tags=("t1", "all"),
                resource="/a",
            ),
            ttl_ms=60_000,
        )

    def invalidated(self, registration: str) -> Invalidated:
        return Invalidated(
            registration_ids=(registration,),
            query_id="q",
            match_type=MatchType.CHANGE,
            version=1,
            key=1,
            written_at_ms=self.now_ms - 3,
            source=Cell(query_partition=0, write_partition=0),
        )


@asynccontextmanager
async def running(**parts: Any) -> AsyncIterator[World]:
    world = World(**parts)
    await world.effects.start()
    try:
        yield world
    finally:
        await world.effects.stop()


async def test_sketch_then_store_then_cdn() -> None:
    async with running() as world:
        await world.cache("me:1")
        world.effects.notify([world.invalidated("me:1")])
        await eventually(lambda: len(world.observed) == 1)
        assert world.cdn.seen[0] == (True, False), "at the purge the key was in the sketch and out of the store"
        assert world.cdn.purged[0] == ("t1",), "only this response's own tag"
        assert world.observed[0].keys == ("k",)


async def test_the_other_queries_of_a_dead_response_are_cancelled() -> None:
    """Cancelled queries guard nothing any more; otherwise the grid would match for them until their lease is over."""
    async with running() as world:
        await world.cache("me:1", "me:2", "me:3")
        world.effects.notify([world.invalidated("me:2")])
        await eventually(lambda: world.registrations.cancelled == {"me:1", "me:2", "me:3"})


async def test_nothing_begins_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work after the end would open connections that nothing closes. Other processes do the effects of late deaths."""
    monkeypatch.setattr("quaestor.invalidation.effects.effects.FOREIGN_DELAY_S", 0.01)
    async with running() as world:
        await world.cache("me:1", "other:2")
        world.effects.notify([world.invalidated("other:2")])
        await asyncio.sleep(0)  # it is heard of, and waits for its own process
    world.effects.notify([world.invalidated("me:1")])
    world.effects.reset("too late")
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, over.set)  # after everything that was to be called before
    await over.wait()
    assert not world.effects._errands
    assert not world.effects._kept
    assert world.cdn.purged == []
    assert await world.index.claim(["me:1"], now_ms=world.now_ms)


class SlowStore(MemoryStore):
    """A shared store whose evictions do not end before they are let."""

    def __init__(self) -> None:
        super().__init__(budget_bytes=10**6)
        self.let = asyncio.Event()

    async def evict(self, dead: Sequence[Guarded]) -> None:
        await self.let.wait()
        await super().evict(dead)


class NothingInMemory:
    """Claims and reports to the sketch; no process has the entries in memory, so a second call evicts them."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def claim_and_evict(
        self, registration_ids: Sequence[str], entries: Sequence[Guarded], *, now_ms: int
    ) -> list[ClaimedDependent]:
        dependents = await self.world.index.claim(registration_ids, now_ms=now_ms)
        lifetimes_ms = await self.world.sketch.report_write([d.resource for d in dependents], now_ms=now_ms)
        return [
            ClaimedDependent(dependent=dependent, outside_ms=outside_ms, evicted=False)
            for dependent, outside_ms in zip(dependents, lifetimes_ms, strict=True)
        ]


async def test_the_purge_does_not_wait_for_a_second_eviction_but_its_repetition_does() -> None:
    """Until the eviction is done, a process that lags behind may find the entry and send it to the CDN once more."""
    store = SlowStore()
    async with running(store=store, share=NothingInMemory) as world:
        await world.cache("me:1")
        world.effects.notify([world.invalidated("me:1")])
        await eventually(lambda: len(world.cdn.purged) == 1)
        assert not world.observed, "not done before it is evicted"
        store.let.set()
        await eventually(lambda: len(world.cdn.purged) == 2)
        assert world.observed[0].evicted_at_ms is not None

        async def settled() -> bool:
            return await world.index.reclaim(claimed_before_ms=world.now_ms + 1, now_ms=world.now_ms) == []

        await eventually(settled)


async def test_more_deaths_than_one_round_trip_takes_are_all_worked_off() -> None:
    async with running() as world:
        for n in range(2 * BATCH + 1):
            await world.cache(f"me:{n}")
        world.effects.notify([world.invalidated(f"me:{n}") for n in range(2 * BATCH + 1)])
        await eventually(lambda: len(world.observed) == 2 * BATCH + 1)
        assert len(world.store) == 0


class CountingIndex(MemoryIndex):
    """Counts the calls that settle claims, and what they settle."""

    def __init__(self) -> None:
        super().__init__()
        self.settled: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def settle(self, dependents: Sequence[Dependent]) -> None:
        self.settled.append(len(dependents))
        await self.gate.wait()
        await super().settle(dependents)


def a_dependent(number: int) -> Dependent:
    return Dependent(key=f"k{number}", registrations=(), resource="/a", urls=(), tags=(), copies_until_ms=2**42)


async def test_claims_that_are_over_within_a_moment_are_settled_in_one_call() -> None:
    """A hundred invalidations one after the other cost one further round trip, for which none of them waits."""
    index = CountingIndex()
    settling = Settling(index, Telemetry())
    for number in range(100):
        settling.later([a_dependent(number)])
    await eventually(lambda: index.settled == [100])
    settling.later([a_dependent(101)])
    await eventually(lambda: index.settled == [100, 1])


async def test_effects_that_end_while_others_are_settled_are_settled_next() -> None:
    index = CountingIndex()
    settling = Settling(index, Telemetry())
    index.gate.clear()
    settling.later([a_dependent(1)])
    await eventually(lambda: index.settled == [1])
    settling.later([a_dependent(2), a_dependent(3)])
    index.gate.set()
    await eventually(lambda: index.settled == [1, 2])


async def test_unsettled_claims_are_settled_at_the_end() -> None:
    """Another process would repeat the effects of an unsettled claim."""
    index = CountingIndex()
    settling = Settling(index, Telemetry())
    settling.later([a_dependent(number) for number in range(3)])
    await settling.stop()
    assert index.settled == [3]


async def test_an_answer_on_its_way_is_purged_a_second_time() -> None:
    async with running() as world:
        await world.cache("me:1")
        world.effects.notify([world.invalidated("me:1")])
        await eventually(lambda: world.cdn.purged == [("t1",), ("t1",)])


async def test_a_refused_purge_is_repeated_and_the_claim_kept_until_then() -> None:
    async with running() as world:
        world.cdn.refusals = 3
        await world.cache("me:1")
        world.effects.notify([world.invalidated("me:1")])
        await eventually(lambda: len(world.cdn.purged) == 2)
        assert world.telemetry.failures.labels("cdn")._value.get() == 3


async def test_an_index_that_is_away_loses_nothing() -> None:
    async with running() as world:
        world.index.refusals = 2
        await world.cache("me:1")
        world.effects.notify([world.invalidated("me:1")])
        await eventually(lambda: len(world.cdn.purged) >= 1)
        assert world.registrations.kept_dead == {"me:1"}, "nothing dead is served while the index is away"


async def test_the_registrations_of_a_dead_process_are_worked_off_by_another() -> None:
    async with running() as world:
        await world.cache("somebody-else:1")
        world.effects.notify([world.invalidated("somebody-else:1")])
        await eventually(lambda: len(world.observed) == 1)
        assert await world.store.get("k") is None


async def test_effects_settled_by_another_process_are_dropped_from_memory() -> None:
    """Its death is remembered for a while only; after that the entry would count as live again."""
    async with running() as world:
        await world.cache("somebody-else:1")
        dependents = await world.index.claim(["somebody-else:1"], now_ms=world.now_ms)
        await world.index.settle(dependents)
        world.effects.notify([world.invalidated("somebody-else:1")])
        await eventually(lambda: len(world.store) == 0)


async def test_an_evicted_registration_is_handled_like_an_invalidation_but_teaches_nothing() -> None:
    """Copies outside are purged and clients notified; no write is counted, no latency measured, no lifetime learnt."""
    async with running() as world:
        await world.cache("me:1")
        withdrawn = replace(world.invalidated("me:1"), match_type=MatchType.EVICTED, version=0, key=None)
        world.effects.notify([withdrawn])
        await eventually(lambda: len(world.cdn.purged) == 2)
        assert world.cdn.seen[0] == (True, False), "at the purge the key was in the sketch and out of the store"
        sample = world.telemetry.families.registry.get_sample_value
        assert sample("quaestor_withdrawn_total") == 1
        assert sample("quaestor_invalidations_total", {"match_type": "evicted", "precision": "widened"}) is None
        assert sample("quaestor_invalidation_latency_seconds_count") == 0
        assert len(world.estimator) == 0
        assert world.observed == []


async def test_a_claim_that_its_claimant_did_not_settle_is_taken_over() -> None:
    async with running() as world:
        await world.cache("dead:1")
        await world.index.claim(["dead:1"], now_ms=world.now_ms)  # and dies
        world.now_ms += CLAIM_LEASE_MS + 1
        await eventually(lambda: len(world.cdn.purged) >= 1)
        assert await world.in_sketch("/a")
        assert await world.store.get("k") is None


async def test_a_reset_forgets_everything_and_says_so_to_everyone() -> None:
    async with running() as world:
        await world.cache("me:1")
        world.effects.reset("the event layer lost its data")
        await eventually(lambda: world.cdn.purged == [("quaestor-default",)])
        assert world.registrations.resumed
        assert await world.store.get("k") is None
        assert await world.in_sketch("/never-seen"), "every client revalidates everything"
