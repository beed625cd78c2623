"""Clocks that are wrong by minutes: what is served stays within the bound, and nothing that is needed is forgotten early.

Parts driven by hand on one event layer, whose clock is right; each part may have another one.
"""

from __future__ import annotations

import asyncio

import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification, encode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import (
    AfterImage,
    CapturedRead,
    Cell,
    GridShape,
    Invalidated,
    Operation,
    Query,
    WriteKind,
)
from quaestor.ports import Registered
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.support import PATIENT

pytestmark = pytest.mark.anyio

BOUND_MS = 2_000
RETENTION_MS = 60_000
MINUTE_MS = 60_000
SKEWS = [0, 5 * MINUTE_MS, -5 * MINUTE_MS]
SHAPE = GridShape(query_partitions=1, write_partitions=1)
CELL = Cell(query_partition=0, write_partition=0)


class Clock:
    """The right one, and by how much this part's differs."""

    def __init__(self, right: Clock | None = None, skew_ms: int = 0) -> None:
        self.now_ms, self.skew_ms, self._right = 1_700_000_000_000, skew_ms, right

    def __call__(self) -> int:
        return (self if self._right is None else self._right).now_ms + self.skew_ms


class World:
    """One app, one cell (or two with the same pipelines), ingest by hand."""

    def __init__(self) -> None:
        self.right = Clock()
        self.app_clock, self.ingest_clock, self.database_clock = (Clock(self.right) for _ in range(3))
        self.layer = MemoryEventLayer(clock=self.right)
        self.resets: list[str] = []
        self.app = Registry(
            self.layer,
            ProcessContext.of(
                Settings(deployment="d", **PATIENT | {"heartbeat_ms": 1, "staleness_bound_ms": BOUND_MS}),
                clock=self.app_clock,
            ),
            Consequences(invalidated=lambda _: None, reset=self.resets.append),
        )
        self.version = 4

    def cell(self, skew_ms: int = 0) -> CellLoop:
        loop = CellLoop(
            MatchingNode(CELL, SHAPE, retention_ms=RETENTION_MS),
            self.layer,
            CELL,
            SHAPE,
            LoopContext(deployment="d", heartbeat_ms=1, retention_ms=RETENTION_MS, clock=Clock(self.right, skew_ms)),
        )
        loop.start()
        return loop

    def step(self, cell: CellLoop) -> None:
        cell.parts.periodic.heartbeat_due_s = cell.parts.periodic.maintenance_due_s = 0.0
        cell.step()

    def tick(self) -> None:
        image = AfterImage(namespace="*", kind=WriteKind.TICK, version=self.version, wall_ms=self.ingest_clock())
        self.layer.append(streams.writes("d", 0), [encode_image(image)])

    def write(self, value: int) -> None:
        self.version += 1
        image = AfterImage(
            namespace="db.c", kind=WriteKind.INSERT, version=self.version, key=self.version, after={"a": value},
            after_exact=True, wall_ms=self.database_clock(),
        )  # fmt: skip
        self.layer.append(streams.writes("d", 0), [encode_image(image)])

    def pass_ms(self, ms: int, *cells: CellLoop) -> None:
        """Time goes by; everybody works every half second."""
        for _ in range(max(1, ms // 500)):
            self.right.now_ms += min(ms, 500)
            self.tick()
            for cell in cells:
                self.step(cell)
            self.app._threads.reader._step()
            self.app.housekeep()

    @property
    def serving(self) -> bool:
        return self.app.serving(now_ms=self.app_clock())

    async def cache(self, value: int, *cells: CellLoop, lease_ms: int) -> Registered:
        read = CapturedRead(
            query=Query(namespace="db.c", operation=Operation.FIND, filter={"a": value}), read_at=self.version, ids=()
        )
        task = asyncio.create_task(
            self.app.register([read], since=self.app.watermark(), expires_at_ms=self.app_clock() + lease_ms)
        )
        while not task.done():
            await asyncio.sleep(0)
            for cell in cells:
                self.step(cell)
            self.app._threads.reader._step()
        return await task

    def dead(self) -> set[str]:
        entries = self.layer.read({streams.notifications("d"): "0"}, count=100_000, block_ms=0)
        said = [decode_notification(entry.payload) for entry in entries]
        return {dead for message in said if isinstance(message, Invalidated) for dead in message.registration_ids}


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_a_wrong_clock_of_ingest_closes_the_cache(world: World, skew_ms: int) -> None:
    """One that differs from the app's by minutes proves nothing, whichever way: the cache is closed."""
    cell = world.cell()
    world.ingest_clock.skew_ms = skew_ms
    world.pass_ms(3_000, cell)
    assert world.serving == (skew_ms == 0)


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_a_wrong_clock_of_the_app_closes_the_cache(world: World, skew_ms: int) -> None:
    cell = world.cell()
    world.app_clock.skew_ms = skew_ms
    world.pass_ms(3_000, cell)
    assert world.serving == (skew_ms == 0)


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_the_databases_clock_proves_nothing(world: World, skew_ms: int) -> None:
    """Writes carry the database's time, which may be wrong. The cache serves while ingest and cells keep up.

    When they stop, the cache is closed within the bound, for any date of the last write.
    """
    cell = world.cell()
    world.database_clock.skew_ms = skew_ms
    world.write(1)
    world.pass_ms(1_000, cell)
    assert world.serving
    world.write(1)
    world.step(cell)
    world.app._threads.reader._step()
    world.right.now_ms += BOUND_MS + 1
    assert not world.serving


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_no_heartbeat_opens_the_cache_for_longer_than_the_bound(world: World, skew_ms: int) -> None:
    cell = world.cell(skew_ms)
    world.ingest_clock.skew_ms = BOUND_MS  # as far as it may be
    world.pass_ms(1_000, cell)
    assert world.serving
    world.right.now_ms += BOUND_MS + 1
    assert not world.serving


async def test_an_app_whose_clock_is_set_back_does_not_take_it_for_more_time(world: World) -> None:
    """The grid dies at the same moment, so nobody contradicts."""
    cell = world.cell()
    world.pass_ms(1_000, cell)
    assert world.serving
    world.app_clock.skew_ms = -5 * MINUTE_MS
    world.app.housekeep()
    assert not world.serving


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_a_cell_with_any_clock_guards_until_the_lease_is_over(world: World, skew_ms: int) -> None:
    cell = world.cell(skew_ms)
    world.pass_ms(1_000, cell)
    registered = await world.cache(1, cell, lease_ms=7 * MINUTE_MS)
    world.pass_ms(6 * MINUTE_MS, cell)
    world.write(1)
    world.pass_ms(500, cell)
    assert world.dead() == set(registered.ids)


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_so_does_the_cell_that_replaces_it(world: World, skew_ms: int) -> None:
    """The query pipeline holds what it needs."""
    cell = world.cell(skew_ms)
    world.pass_ms(1_000, cell)
    registered = await world.cache(1, cell, lease_ms=7 * MINUTE_MS)
    world.pass_ms(6 * MINUTE_MS, cell)
    cell = world.cell()
    world.write(1)
    world.pass_ms(500, cell)
    assert world.dead() == set(registered.ids)


async def test_a_cell_whose_clock_is_fast_trims_nothing_that_another_has_not_read(world: World) -> None:
    """Both read the same write pipeline, and the slower one does not even know that it may have missed something."""
    fast, slow = world.cell(5 * MINUTE_MS), world.cell()
    world.pass_ms(1_000, fast, slow)
    registered = await world.cache(1, fast, slow, lease_ms=7 * MINUTE_MS)
    world.right.now_ms += 10
    world.write(1)
    world.right.now_ms += 10
    world.write(2)
    world.tick()
    for _ in range(3):
        world.right.now_ms += 200
        world.step(fast)
    after = slow.position.writes
    first = world.layer.first_offset(streams.writes("d", 0))
    assert first is not None
    assert first <= after
    assert registered.ids


async def test_a_cell_whose_clock_is_slow_notices_that_it_missed_writes(world: World) -> None:
    """The cell stands still for longer than writes are kept, though by its own clock hardly any time has passed."""
    fast, slow = world.cell(), world.cell(-5 * MINUTE_MS)
    world.pass_ms(1_000, fast, slow)
    registered = await world.cache(1, fast, slow, lease_ms=60 * MINUTE_MS)
    assert slow.node.registrations == 1
    world.write(1)
    world.pass_ms(4 * MINUTE_MS, fast)
    world.step(slow)
    assert slow.node.registrations == 0, "all that it guarded is invalidated"
    assert set(registered.ids) <= world.dead()
