"""Query registries of every implementation: a live registration has not changed; an unguardable query is refused.

A registry with a grid of two cells, on every event layer; and the one without a grid, as far as it promises anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from quaestor.clock import system_clock
from quaestor.errors import NotCacheableError, RegistrationRefusedError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_image
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import write_partition
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.null_registry import NullRegistry
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import AfterImage, CapturedRead, GridShape, Operation, Query, Uncacheable, WriteKind
from quaestor.ports import EventLayer, QueryRegistry, Registered
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.support import PATIENT, eventually, running

pytestmark = pytest.mark.anyio

SHAPE = GridShape(query_partitions=1, write_partitions=2)
LONG_MS = 600_000


def find(value: object) -> Query:
    return Query(namespace="db.c", operation=Operation.FIND, filter={"a": value})


class World:
    """One app process on an event layer. Ingest is played by hand."""

    def __init__(self, layer: EventLayer, registry: Registry | NullRegistry, deployment: str) -> None:
        self.layer = layer
        self.registry: QueryRegistry = registry
        self.process = registry
        self.version = 5
        self._deployment = deployment

    def append(self, partition: int, image: AfterImage) -> None:
        self.layer.append(streams.writes(self._deployment, partition), [encode_image(image)])

    def tick(self) -> None:
        for partition in range(SHAPE.write_partitions):
            image = AfterImage(namespace="*", kind=WriteKind.TICK, version=self.version, wall_ms=system_clock())
            self.append(partition, image)

    def write(self, value: object) -> None:
        self.version += 1
        image = AfterImage(
            namespace="db.c", kind=WriteKind.INSERT, version=self.version, key=self.version,
            after={"_id": self.version, "a": value}, after_exact=True, before_known=True, wall_ms=system_clock(),
        )  # fmt: skip
        self.append(write_partition(self.version, SHAPE.write_partitions), image)
        self.tick()

    async def register(self, *values: object, since: int | None = None) -> Registered:
        """Register the queries of a response, one for each of these values."""
        version = self.version if since is None else since
        reads = [CapturedRead(query=find(value), read_at=version, ids=()) for value in values]
        return await self.registry.register(reads, since=version, expires_at_ms=system_clock() + LONG_MS)

    def live(self, registered: Registered, *, in_ms: int = 0) -> bool:
        return self.registry.live(registered.ids, now_ms=system_clock() + in_ms)

    async def until_serving(self) -> None:
        def proved() -> bool:
            self.tick()
            return self.registry.caught_up(now_ms=system_clock())

        await eventually(proved)


@contextmanager
def grid(layer: EventLayer, deployment: str) -> Iterator[None]:
    """The cells, each in a thread of its own."""
    with ExitStack() as cells:
        for cell in SHAPE.cells:
            node = MatchingNode(cell, SHAPE, retention_ms=60_000)
            loop = CellLoop(
                node, layer, cell, SHAPE, LoopContext(deployment=deployment, heartbeat_ms=20, retention_ms=60_000)
            )
            cells.enter_context(running(loop.run))
        yield


def make_layer(kind: str, request: pytest.FixtureRequest, deployment: str) -> EventLayer:
    if kind == "memory":
        return MemoryEventLayer()
    return event_layer(request.getfixturevalue("redis_url" if kind == "redis" else "redis_cluster_url"), deployment)


@contextmanager
def with_grid(kind: str, request: pytest.FixtureRequest, deployment: str) -> Iterator[World]:
    """A registry that was not started, and its grid."""
    with ExitStack() as opened:
        layer = cells = opened.enter_context(closing(make_layer(kind, request, deployment)))
        if kind != "memory":
            cells = opened.enter_context(closing(make_layer(kind, request, deployment)))
        opened.enter_context(grid(cells, deployment))
        registry = Registry(
            layer,
            ProcessContext.of(Settings(deployment=deployment, **PATIENT | {"heartbeat_ms": 20})),
            Consequences(invalidated=lambda _: None, reset=pytest.fail),
        )
        opened.callback(registry.stop)
        yield World(layer, registry, deployment)


@contextmanager
def without_grid(deployment: str) -> Iterator[World]:
    """A registry without a grid, listening."""
    with closing(MemoryEventLayer()) as layer:
        registry = NullRegistry(
            layer,
            ProcessContext.of(Settings(deployment=deployment, heartbeat_ms=20, redis_url="redis://unused", grid=False)),
            Consequences(invalidated=lambda _: None, reset=pytest.fail),
        )
        registry.start()
        yield World(layer, registry, deployment)
        registry.stop()


@pytest.fixture(params=["memory", "redis", "cluster"])
def world(request: pytest.FixtureRequest, prefix: str) -> Iterator[World]:
    with with_grid(request.param, request, prefix) as world:
        yield world


@pytest.fixture
async def guarded(world: World) -> World:
    """A registry that has seen that its grid is fresh."""
    world.process.start()
    await world.until_serving()
    return world


@pytest.fixture
def unguarded(prefix: str) -> Iterator[World]:
    with without_grid(prefix) as world:
        yield world


@pytest.fixture(params=["memory", "redis", "cluster", "null"])
async def either(request: pytest.FixtureRequest, prefix: str) -> AsyncIterator[World]:
    if request.param == "null":
        with without_grid(prefix) as world:
            yield world
        return
    with with_grid(request.param, request, prefix) as world:
        world.process.start()
        await world.until_serving()
        yield world


# Every registry


async def test_a_response_that_depends_on_nothing_is_live(either: World) -> None:
    assert either.registry.live((), now_ms=system_clock())


async def test_when_all_has_caught_up_anything_may_be_served_and_nothing_lags(either: World) -> None:
    now_ms = system_clock()
    assert either.registry.caught_up(now_ms=now_ms)
    assert either.registry.serving(now_ms=now_ms)
    assert not either.registry.lagging(("somebody:1",), now_ms=now_ms)


async def test_a_registered_query_is_live_and_a_refused_one_raises(either: World) -> None:
    """No registration comes back that could not be served."""
    try:
        registered = await either.register(1)
    except RegistrationRefusedError:
        return
    assert either.live(registered)


async def test_leases_of_what_nobody_has_registered_are_ignored(either: World) -> None:
    either.registry.lease(("somebody:1",), until_ms=0)
    assert either.registry.live((), now_ms=system_clock())


async def test_no_version_is_ever_taken_back(either: World) -> None:
    seen = [either.registry.watermark()]
    for _ in range(3):
        either.write("watermark")
        seen.append(either.registry.watermark())
    assert seen == sorted(seen)


async def test_knowledge_never_begins_in_the_future(either: World) -> None:
    assert either.registry.known_since_ms <= system_clock()


# With a grid


async def test_before_the_grid_has_proved_itself_nothing_is_served_or_registered(world: World) -> None:
    now_ms = system_clock()
    assert not world.registry.serving(now_ms=now_ms)
    assert not world.registry.caught_up(now_ms=now_ms)
    assert not world.registry.live((), now_ms=now_ms)
    assert world.registry.lagging(("somebody:1",), now_ms=now_ms)
    with pytest.raises(RegistrationRefusedError, match="not running"):
        await world.register(1)


async def test_a_response_has_one_registration_for_each_distinct_query(guarded: World) -> None:
    registered = await guarded.register(1, 2, 1)
    assert len(set(registered.ids)) == len(set(registered.query_ids)) == 2
    assert len(set(registered.tags)) == 2, "its own, and every response's"
    assert guarded.live(registered)


async def test_equal_queries_of_two_responses_are_one_query_and_each_response_has_its_own_name(guarded: World) -> None:
    first, other = await guarded.register(1), await guarded.register(1)
    assert first.query_ids == other.query_ids
    assert first.ids[0] != other.ids[0]
    assert first.tags[0] != other.tags[0]
    assert first.tags[-1] == other.tags[-1]


async def test_a_write_kills_what_it_changes_for_good_and_nothing_else(guarded: World) -> None:
    changed, both, untouched = await guarded.register(1), await guarded.register(2, 1), await guarded.register(2)
    guarded.write(1)
    await eventually(lambda: not guarded.live(changed) and not guarded.live(both))
    assert guarded.live(untouched)
    await guarded.until_serving()
    assert not guarded.live(changed)
    assert not guarded.registry.lagging(changed.ids, now_ms=system_clock()), "it is dead, which no catching up undoes"


async def test_a_death_does_not_count_for_the_next_response(guarded: World) -> None:
    old = await guarded.register(1)
    guarded.write(1)
    await eventually(lambda: not guarded.live(old))
    assert guarded.live(await guarded.register(1))
    assert not guarded.live(old)


async def test_a_read_that_has_missed_a_write_is_refused(guarded: World) -> None:
    """The handler began before the write was reported, and its answer comes after."""
    other, before = await guarded.register({"$in": [1, 2]}), guarded.version
    guarded.write(1)
    # The newest version may come from the cell that the write does not concern.
    await eventually(lambda: not guarded.live(other) and guarded.registry.watermark() == guarded.version)
    with pytest.raises(RegistrationRefusedError, match="changed"):
        await guarded.register(1, since=before)
    assert guarded.live(await guarded.register(2, since=before))


async def test_many_responses_register_at_once_and_each_is_guarded(guarded: World) -> None:
    registered = await asyncio.gather(*(guarded.register(n, n + 1) for n in range(20)))
    assert all(map(guarded.live, registered))
    guarded.write(7)
    await eventually(
        lambda: [guarded.live(registration) for registration in registered] == [n not in (6, 7) for n in range(20)]
    )


async def test_the_watermark_reaches_every_write(guarded: World) -> None:
    guarded.write("nobody asks for it")
    await eventually(lambda: guarded.registry.watermark() == guarded.version)


async def test_a_response_no_longer_proved_fresh_is_not_served_but_not_dead(guarded: World) -> None:
    registered, later_ms = await guarded.register(1), system_clock() + LONG_MS
    assert not guarded.live(registered, in_ms=LONG_MS)
    assert guarded.registry.lagging(registered.ids, now_ms=later_ms)
    assert not guarded.registry.serving(now_ms=later_ms)
    assert not guarded.registry.caught_up(now_ms=later_ms)
    assert guarded.live(registered)


async def test_a_response_that_was_not_stored_leaves_the_others_alone(guarded: World) -> None:
    """The registrations of a response that was not stored end; registrations shared with another response stay."""
    stored, given_up = await guarded.register(1), await guarded.register(1)
    guarded.registry.lease(stored.ids, until_ms=system_clock() + LONG_MS)
    guarded.registry.lease(given_up.ids, until_ms=0)
    guarded.process.housekeep()
    assert guarded.live(stored)
    guarded.write(1)
    await eventually(lambda: not guarded.live(stored))


async def test_a_response_without_a_guard_is_not_cacheable(guarded: World) -> None:
    now_ms = system_clock()
    with pytest.raises(NotCacheableError) as nothing_read:
        await guarded.registry.register([], since=5, expires_at_ms=now_ms + LONG_MS)
    assert nothing_read.value.reasons == (Uncacheable.NO_READS,)
    malformed = CapturedRead(
        query=Query(namespace="db.c", operation=Operation.FIND, filter={"a": {"$in": 1}}), read_at=5, ids=()
    )
    with pytest.raises(NotCacheableError) as unreadable:
        await guarded.registry.register([malformed], since=5, expires_at_ms=now_ms + LONG_MS)
    assert unreadable.value.reasons == (Uncacheable.UNREADABLE,)


async def test_a_stopped_registry_serves_nothing(guarded: World) -> None:
    registered = await guarded.register(1)
    guarded.process.stop()
    assert not guarded.live(registered)
    assert not guarded.registry.serving(now_ms=system_clock())


# Without a grid


async def test_without_a_grid_nothing_is_registered_and_trying_again_does_not_help(unguarded: World) -> None:
    with pytest.raises(RegistrationRefusedError) as refused:
        await unguarded.register(1)
    assert not refused.value.retryable


async def test_without_a_grid_what_others_registered_is_never_live(unguarded: World) -> None:
    assert not unguarded.registry.live(("somebody:1",), now_ms=system_clock())
    assert unguarded.registry.serving(now_ms=system_clock() + LONG_MS), "the rest is served, whenever"
