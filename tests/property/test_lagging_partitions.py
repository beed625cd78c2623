"""Which registrations live while parts of the grid lag, against a model: hand-driven heartbeats, real registries.

The model knows each registration's query, the code under test its id alone.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from quaestor.errors import PartitionLagsError, RegistrationRefusedError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_notification
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import (
    Activated,
    CapturedRead,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    MatchType,
    Notification,
    Operation,
    Query,
)
from quaestor.planning.plan_cache import plan_of
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.hand_driven import START_MS, HandClock
from tests.support import PATIENT

pytestmark = pytest.mark.anyio

BOUND_MS = 100
STEPS = 400
NEVER = 0


def asked(value: int) -> Query:
    return Query(namespace="db.c", operation=Operation.FIND, filter={"a": value})


@dataclass
class Model:
    """The content of the heartbeats, generation by generation."""

    shape: GridShape
    fresh_ms: dict[GridShape, dict[Cell, int]] = field(default_factory=dict)

    def hear(self, shape: GridShape, cell: Cell, fresh_ms: int) -> None:
        heard = self.fresh_ms.setdefault(shape, {})
        heard[cell] = max(fresh_ms, heard.get(cell, 0))
        if shape.generation > self.shape.generation and len(heard) == len(shape.cells):
            self.shape = shape

    def until_ms(self, column: int) -> int:
        heard = self.fresh_ms.get(self.shape, {})
        rows = [heard.get(cell) for cell in self.shape.cells if cell.query_partition == column]
        if None in rows:
            return NEVER
        return min(row for row in rows if row is not None) + BOUND_MS

    def fresh(self, now_ms: int) -> set[int]:
        return {column for column in range(self.shape.query_partitions) if now_ms <= self.until_ms(column)}

    def column_of(self, query: Query) -> int:
        return query_partition(plan_of(query).query_id, self.shape.query_partitions)


class World:
    """apps: they hear the same, one after the other. live: what was registered and has not died, by its ids."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.clock = HandClock()
        self.layer = MemoryEventLayer(clock=self.clock)
        self.shape = self._shape(0)
        self.model = Model(self.shape)
        self.successor: GridShape | None = None
        self.live: dict[tuple[str, ...], Query] = {}
        self.apps: list[Registry] = []
        self.refused = self.looks = self.parted = 0

    def _shape(self, generation: int) -> GridShape:
        return GridShape(
            query_partitions=self.dice.randint(1, 5), write_partitions=self.dice.randint(1, 3), generation=generation
        )

    def join(self) -> None:
        """Start an app process, which reads the earlier heartbeats."""
        settings = Settings(deployment="d", **PATIENT | {"heartbeat_ms": 1, "staleness_bound_ms": BOUND_MS})
        registry = Registry(
            self.layer,
            ProcessContext.of(settings, clock=self.clock),
            Consequences(invalidated=lambda _: None, reset=pytest.fail),
        )
        self.apps.append(registry)
        registry._threads.reader._step()
        registry._threads.reader._step()
        self.say(self._beat(self.model.shape, self.model.shape.cells[0], NEVER))  # it looks once it has caught up

    def say(self, *said: Notification) -> None:
        self.layer.append(streams.notifications("d"), [encode_notification(notification) for notification in said])
        for app in self.apps:
            app._threads.reader._step()

    def _beat(self, shape: GridShape, cell: Cell, fresh_ms: int) -> Heartbeat:
        self.model.hear(shape, cell, fresh_ms)
        return Heartbeat(
            cell=cell, shape=shape, at_ms=self.clock(), fresh_as_of_ms=fresh_ms, watermark=1, registrations=0, writes=0
        )

    def beat(self) -> None:
        """Most columns of one generation; of some a cell is silent or late."""
        shape = self.dice.choice([self.model.shape, self.successor or self.model.shape])
        late = {cell for cell in shape.cells if self.dice.random() < 0.1}
        silent = {cell for cell in shape.cells if self.dice.random() < 0.1}
        self.say(
            *(
                self._beat(shape, cell, self.clock() - (2 * BOUND_MS if cell in late else 0))
                for cell in shape.cells
                if cell not in silent
            )
        )
        if self.model.shape == self.successor:
            self.successor = None

    def die(self) -> None:
        if self.live:
            ids = self.dice.choice(list(self.live))
            del self.live[ids]
            for app in self.apps:
                assert app._registrations.validity.dead.keys().isdisjoint(ids)
            self.say(
                Invalidated(
                    registration_ids=ids[-1:], query_id="", match_type=MatchType.MATCH, version=1, key=1, written_at_ms=1,
                    source=self.model.shape.cells[0],
                )
            )  # fmt: skip
            for app in self.apps:
                assert not app.live(ids, now_ms=self.clock())

    async def register(self) -> None:
        """One response with one or two queries, whose cells all answer."""
        app = self.dice.choice(self.apps)
        queries = [asked(value) for value in self.dice.sample(range(1_000_000), self.dice.randint(1, 2))]
        fresh, columns = self.model.fresh(self.clock()), {self.model.column_of(query) for query in queries}
        reads = [CapturedRead(query=query, read_at=1, ids=()) for query in queries]
        task = asyncio.create_task(app.register(reads, since=1, expires_at_ms=self.clock() + 10**9))
        await _turns()
        if not columns <= fresh:
            self.refused += 1
            expected = PartitionLagsError if fresh else RegistrationRefusedError
            with pytest.raises(expected, match=" lags "):
                await task
            return
        missing = {cell for pending in app._renewal._activations.pending.values() for cell in pending.missing}
        self.say(*(Activated(registration_id=name, cell=cell) for name, cell in missing))
        await _turns()
        ids = (await task).ids
        for name, query in zip(ids, queries, strict=True):
            self.live[name,] = query

    def check(self) -> None:
        now_ms, shape = self.clock(), self.model.shape
        fresh = self.model.fresh(now_ms)
        for app in self.apps:
            assert app.shape == shape
            assert app.serving(now_ms=now_ms) == bool(fresh)
            assert app.caught_up(now_ms=now_ms) == (len(fresh) == shape.query_partitions)
            assert app.lagging_partitions(now_ms=now_ms) == sorted(set(range(shape.query_partitions)) - fresh)
            for ids, query in self.live.items():
                vouched = self.model.column_of(query) in fresh
                assert app.live(ids, now_ms=now_ms) == vouched
                assert app.lagging(ids, now_ms=now_ms) != vouched
                self.looks += 1
            assert app.live([i for ids in self.live for i in ids], now_ms=now_ms) == (
                bool(fresh) and {self.model.column_of(query) for query in self.live.values()} <= fresh
            )
            self.parted += 0 < len(fresh) < shape.query_partitions


async def _turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", [1, 2, 3, *(f"another {number}" for number in range(3))])
async def test_a_registration_lives_while_every_cell_of_its_column_is_fresh(seed: int | str) -> None:
    """A registration of any app in any generation lives exactly while its column is fresh.

    A lagging column refuses only its own.
    """
    if isinstance(seed, str):
        seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    world = World(dice)
    for _ in range(2):
        world.join()
    for _ in range(STEPS):
        match dice.choices(["beat", "wait", "register", "die", "resize", "join"], [25, 40, 20, 5, 2, 1])[0]:
            case "beat":
                world.beat()
            case "wait":
                world.clock.now_ms += dice.randrange(BOUND_MS // 2)
            case "register":
                await world.register()
            case "die":
                world.die()
            case "resize" if world.successor is None:
                world.successor = world._shape(world.model.shape.generation + 1)
            case "join" if len(world.apps) < 4 and world.successor is None:
                world.join()
        world.check()
    assert world.clock.now_ms < START_MS + 120_000, "so everybody has heard everything"
    print(f"{world.looks} looks, {world.parted} of moments when some columns lag, {world.refused} refused")
