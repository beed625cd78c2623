"""A grid that is partitioned anew while everything happens, driven by hand: cells, hand-over and registries are the real ones,
the database is a list of its states. One step at a time, in whatever order a test likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quaestor.invalidation.cell import CellLoop
from quaestor.invalidation.event_layer import streams
from quaestor.invalidation.event_layer.codec import encode_image
from quaestor.invalidation.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.partitioning import write_partition
from quaestor.invalidation.registry import Registry
from quaestor.invalidation.resizing.handover import Handover
from quaestor.model import AfterImage, CapturedRead, Cell, GridShape, Operation, Query, Version, WriteKind
from quaestor.ports import Registered
from quaestor.settings import Settings
from quaestor.telemetry import Telemetry

BOUND_MS = 40
RETENTION_MS = 60_000
NAMESPACE = "db.c"
State = Mapping[int, int]


@dataclass
class Cached:
    """A result that an app holds: what it showed, and what guards it once it was registered."""

    value: int
    shown: frozenset[int]
    task: asyncio.Task[Registered]
    generation: int
    ids: tuple[str, ...] = ()


@dataclass
class Generation:
    """One grid: its cells, and an ingest that reads the database's log from `position` on (None: not begun)."""

    shape: GridShape
    cells: dict[Cell, CellLoop]
    handover: Handover
    position: int | None = None
    running: bool = True
    saved: int | None = None


class ResizingWorld:
    """clock: every action takes a millisecond, so no two share one."""

    def __init__(self, shape: GridShape, *, apps: int = 2) -> None:
        self.now_ms = 1_700_000_000_000
        self.layer = MemoryEventLayer(clock=self.clock)
        self.telemetry = Telemetry()
        self.settings = Settings(
            deployment="d", heartbeat_ms=1, staleness_bound_ms=BOUND_MS, activation_deadline_ms=600_000
        )
        self.log: list[AfterImage] = []
        self.records: dict[int, int] = {}
        self.states: list[tuple[int, State]] = [(self.now_ms, {})]
        self.cached: list[Cached] = []
        self.resets: list[str] = []
        self.generations: list[Generation] = []
        self.apps = [self._app() for _ in range(apps)]
        self.write(-1, -1)  # version 0 says nothing
        self.start(shape, [])

    def clock(self) -> int:
        return self.now_ms

    def _app(self) -> Registry:
        def reset(why: str) -> None:
            self.resets.append(why)
            registry.resume()

        registry = Registry(
            self.layer,
            settings=self.settings,
            telemetry=self.telemetry,
            clock=self.clock,
            on_invalidated=lambda _: None,
            on_reset=reset,
        )
        return registry

    # The grid

    def start(self, shape: GridShape, earlier: list[GridShape]) -> Generation:
        handover = Handover(self.layer, shape, earlier, deployment="d", clock=self.clock, telemetry=self.telemetry)
        generation = Generation(shape, {}, handover)
        self.generations.append(generation)
        for cell in shape.cells:
            self.start_cell(generation, cell)
        return generation

    def start_cell(self, generation: Generation, cell: Cell) -> None:
        """Also instead of one that died: its node is gone."""
        node = MatchingNode(cell, generation.shape, retention_ms=RETENTION_MS)
        generation.cells[cell] = CellLoop(
            node, self.layer, cell, generation.shape, deployment="d", heartbeat_ms=1, retention_ms=RETENTION_MS,
            clock=self.clock, telemetry=self.telemetry,
        )  # fmt: skip

    def resize(self, query_partitions: int, write_partitions: int) -> Generation:
        """The next generation, taking over from all that were not retired."""
        shape = GridShape(
            query_partitions=query_partitions,
            write_partitions=write_partitions,
            generation=self.generations[-1].shape.generation + 1,
        )
        return self.start(shape, [one.shape for one in self.generations])

    def retire(self, generation: Generation) -> None:
        """Stop it and all before it; what comes later does not take over from them any more."""
        self.generations = self.generations[self.generations.index(generation) + 1 :]

    def step_cell(self, generation: Generation, cell: Cell) -> None:
        loop = generation.cells[cell]
        if not loop._started:
            loop._start()
        loop._heartbeat_due_s = 0.0
        loop._step()
        self.now_ms += 1

    def step_ingest(self, generation: Generation, most: int) -> None:
        """What Ingest does in one round, with the log instead of a change stream."""
        self.now_ms += 1
        if not generation.handover.begin():
            return
        if generation.position is None:
            as_of = generation.handover.as_of
            generation.position = as_of or len(self.log)
            mark = WriteKind.TICK if as_of else WriteKind.GAP
            if generation.saved is None:
                self._append(generation, AfterImage(namespace="*", kind=mark, version=generation.position))
            generation.saved = generation.position
        if not generation.handover.done:
            generation.handover.complete()
            return
        batch = self.log[generation.position : generation.position + most]
        for image in batch:
            self._append(generation, image)
        generation.position += len(batch)
        if generation.position == len(self.log):
            tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=len(self.log), wall_ms=self.now_ms)
            self._append(generation, tick)

    def _append(self, generation: Generation, image: AfterImage) -> None:
        shape = generation.shape
        everywhere = image.key is None
        partitions = (
            range(shape.write_partitions) if everywhere else [write_partition(image.key, shape.write_partitions)]
        )
        for partition in partitions:
            self.layer.append(streams.writes("d", partition, shape.generation), [encode_image(image)])

    # The database

    def write(self, key: int, value: int | None) -> None:
        """Version n is the log's n-th entry; None deletes."""
        self.now_ms += 1
        kind = WriteKind.DELETE if value is None else WriteKind.UPDATE if key in self.records else WriteKind.INSERT
        if value is None:
            if self.records.pop(key, None) is None:
                return
        else:
            self.records[key] = value
        self.log.append(
            AfterImage(
                namespace=NAMESPACE, kind=kind, version=len(self.log) + 1, key=key,
                after=None if value is None else {"_id": key, "a": value}, after_exact=value is not None,
                wall_ms=self.now_ms,
            )
        )  # fmt: skip
        self.states.append((self.now_ms, dict(self.records)))

    # The apps

    def read(self, app: Registry, value: int) -> None:
        """Read `{a: value}` and ask for it to be guarded."""
        self.now_ms += 1
        shown = frozenset(key for key, a in self.records.items() if a == value)
        read = CapturedRead(
            query=Query(namespace=NAMESPACE, operation=Operation.FIND, filter={"a": value}),
            read_at=len(self.log),
            ids=tuple(sorted(shown)),
        )
        since: Version = app.watermark()
        registering = app.register([read], since=since, expires_at_ms=self.now_ms + 10_000_000)
        generation = 0 if app.shape is None else app.shape.generation
        self.cached.append(Cached(value, shown, asyncio.create_task(registering), generation))

    async def step_app(self, app: Registry) -> None:
        self.now_ms += 1
        app._reader._step()
        for _ in range(3):
            await asyncio.sleep(0)
        for one in self.cached:
            if one.task.done() and not one.ids and one.task.exception() is None:
                one.ids = one.task.result().ids
        self.cached = [one for one in self.cached if not one.task.done() or one.ids]

    # What must hold

    def live(self, one: Cached, app: Registry) -> bool:
        return bool(one.ids) and app.live(one.ids, now_ms=self.now_ms)

    def check(self) -> None:
        """Whatever any app would serve was the database's answer within the staleness bound."""
        recent: list[State] = []
        for at_ms, state in reversed(self.states):
            recent.append(state)
            if at_ms < self.now_ms - BOUND_MS:
                break
        for app in self.apps:
            for one in self.cached:
                if self.live(one, app):
                    answers = [frozenset(key for key, a in state.items() if a == one.value) for state in recent]
                    assert one.shown in answers, (
                        f"stale: {one} at {self.now_ms}, generation {app.shape}, the database says {answers[0]}"
                    )

    async def settle(self, *, until: Callable[[], bool] | None = None, rounds: int = 200) -> None:
        """Everybody works until nothing is left to do, or until the condition holds."""
        for _ in range(rounds):
            for generation in list(self.generations):
                self.step_ingest(generation, 1_000)
                for cell in list(generation.cells):
                    self.step_cell(generation, cell)
            for app in self.apps:
                await self.step_app(app)
            self.check()
            if until is not None and until():
                return
            if until is None and all(
                app.serving(now_ms=self.now_ms) and app.shape == self.generations[-1].shape for app in self.apps
            ) and not any(not one.task.done() for one in self.cached):  # fmt: skip
                return
        raise AssertionError("it does not settle")

    async def close(self) -> None:
        for one in self.cached:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in self.cached), return_exceptions=True)
