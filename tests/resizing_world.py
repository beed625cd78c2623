"""A grid that is partitioned anew while everything happens, driven by hand, one step at a time, in any order.

Cells, hand-over and registries are the real ones, the database is a list of its states.

Any cell, any ingest and any app may fail. The event layer may lose its data, which every part finds out by itself.
Primaries may be elected: then writes without a majority were never made, though they were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quaestor.errors import EventLayerResetError
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.codec import encode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import write_partition
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import AfterImage, CapturedRead, Cell, GridShape, Operation, Query, Version, WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import Registered, StreamEntry
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings

BOUND_MS = 40
RETENTION_MS = 60_000
NAMESPACE = "db.c"
State = Mapping[int, int]
_CALLS = ("append", "offset_at", "first_offset", "trim", "measure", "trim_and_measure", "put", "get")


class LosableLayer(MemoryEventLayer):
    """Pipelines that may vanish."""

    life = 0
    lost_ms = 0

    def lose(self) -> None:
        self.life += 1
        self.lost_ms = self._clock()
        self._streams.clear()
        self._values.clear()


class Connection:
    """One part's connection to the layer.

    The first call that finds out reports a loss of data, and so do reads from an entry that is gone.
    """

    immediate = True

    def __init__(self, layer: LosableLayer) -> None:
        self._layer = layer
        self._life = layer.life

    def __getattr__(self, name: str) -> Any:
        if name not in _CALLS:
            raise AttributeError(name)
        if self._life != self._layer.life:
            self._life = self._layer.life
            raise EventLayerResetError("the data were lost")
        return getattr(self._layer, name)

    def read(self, places: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        old = [place for place in places.values() if offsets.is_entry(place)]
        if any(offsets.appended_at_ms(place) < self._layer.lost_ms for place in old):
            self._life = self._layer.life
            raise EventLayerResetError("the data were lost")
        return self._layer.read(places, count=count, block_ms=block_ms)


@dataclass
class Cached:
    """A result that an app holds: what it showed, and what guards it once it was registered."""

    value: int
    shown: frozenset[int]
    task: asyncio.Task[Registered]
    generation: int
    app: App
    ids: tuple[str, ...] = ()
    stored_ms: int = 0


@dataclass
class Generation:
    """One grid: its cells, and an ingest that reads the database's log from `position` on (None: not begun)."""

    shape: GridShape
    earlier: list[GridShape]
    handover: GridHandover
    layer: Connection
    cells: dict[Cell, CellLoop] = field(default_factory=dict)
    position: ResumePosition | None = None
    gap: bool = False


class App(Registry):
    """cleared_ms: what was stored before then is no longer in any store that it looks at."""

    cleared_ms = 0
    tenant: str


class ResizingWorld:
    """clock: every action takes a millisecond, so no two share one. Two apps of one tenant and one of another."""

    def __init__(self, shape: GridShape, *, tenants: Sequence[str] = ("", "")) -> None:
        self.now_ms = 1_700_000_000_000
        self.layer = LosableLayer(clock=self.clock)
        self.telemetry = Telemetry()
        self.log: list[AfterImage] = []
        self.committed = 0
        self.term = 1
        self.records: dict[int, int] = {}
        self.states: list[tuple[int, State]] = [(self.now_ms, {})]
        self.cached: list[Cached] = []
        self.resets: list[str] = []
        self.generations: list[Generation] = []
        self.apps = [self.app(tenant) for tenant in tenants]
        self.write(-1, -1)  # version 0 says nothing
        self.start(shape, [])

    def clock(self) -> int:
        return self.now_ms

    def app(self, tenant: str = "") -> App:
        """A process that begins now."""

        def reset(why: str) -> None:
            self.resets.append(why)
            app.cleared_ms = self.now_ms
            app.resume()

        settings = Settings(
            deployment="d", tenant=tenant, heartbeat_ms=1, staleness_bound_ms=BOUND_MS, activation_deadline_ms=600_000
        )
        app = App(
            Connection(self.layer),
            ProcessContext.of(settings, telemetry=self.telemetry, clock=self.clock),
            Consequences(invalidated=lambda _: None, reset=reset),
        )
        app.tenant, app.cleared_ms = tenant, self.layer.lost_ms  # the shared store lies where the pipelines lie
        return app

    def replace_app(self, number: int) -> None:
        """Replace an app by another process. Answers that it was about to store are stored nowhere."""
        old = self.apps[number]
        self.apps[number] = self.app(old.tenant)
        for entry in self.cached:
            if entry.app is old:
                entry.task.cancel()

    # The grid

    def start(self, shape: GridShape, earlier: list[GridShape]) -> Generation:
        generation = Generation(shape, earlier, *self._handover(shape, earlier))
        self.generations.append(generation)
        for cell in shape.cells:
            self.start_cell(generation, cell)
        return generation

    def _handover(self, shape: GridShape, earlier: list[GridShape]) -> tuple[GridHandover, Connection]:
        layer = Connection(self.layer)
        return GridHandover(layer, shape, earlier, deployment="d", clock=self.clock, telemetry=self.telemetry), layer

    def start_ingest(self, generation: Generation) -> None:
        """Instead of one that died: nothing is left but what it had saved."""
        generation.handover, generation.layer = self._handover(generation.shape, generation.earlier)
        generation.position, generation.gap = None, False

    def start_cell(self, generation: Generation, cell: Cell) -> None:
        """Start a cell, also instead of a dead one, whose node is gone."""
        node = MatchingNode(cell, generation.shape, retention_ms=RETENTION_MS)
        generation.cells[cell] = CellLoop(
            node,
            Connection(self.layer),
            cell,
            generation.shape,
            LoopContext(
                deployment="d", heartbeat_ms=1, retention_ms=RETENTION_MS, clock=self.clock, telemetry=self.telemetry
            ),
        )

    def resize(self, query_partitions: int, write_partitions: int) -> Generation:
        """The next generation, taking over from all that were not retired."""
        shape = GridShape(
            query_partitions=query_partitions,
            write_partitions=write_partitions,
            generation=self.generations[-1].shape.generation + 1,
        )
        return self.start(shape, [generation.shape for generation in self.generations])

    def retire(self, generation: Generation) -> None:
        """Stop it and all before it; what comes later does not take over from them any more."""
        self.generations = self.generations[self.generations.index(generation) + 1 :]

    def step_cell(self, generation: Generation, cell: Cell) -> None:
        loop = generation.cells[cell]
        try:
            if not loop.started:
                loop.start()
            loop.parts.periodic.heartbeat_due_s = 0.0
            loop.step()
        except EventLayerResetError:
            loop.start_over()
        self.now_ms += 1

    def step_ingest(self, generation: Generation, most: int) -> None:
        """Run one round of Ingest, with the log instead of a change stream."""
        self.now_ms += 1
        try:
            self._step_ingest(generation, most)
        except EventLayerResetError:
            generation.gap = True
            generation.handover.lost()

    def _step_ingest(self, generation: Generation, most: int) -> None:
        handover, name = generation.handover, streams.resume_position("d", generation.shape.generation)
        if not handover.begin():
            return
        known = generation.position
        if known is None:
            saved = generation.layer.get(name)
            known = self._taken_over(handover) if saved is None else ResumePosition.decode(saved)
        generation.gap |= known is None or known.election != str(self.term)
        begun = generation.position is not None and not generation.gap
        if known is None:
            known = ResumePosition(None, self.committed, None)
        known = generation.position = known._replace(election=str(self.term))
        if generation.gap:
            known = known._replace(gap=max(known.version, len(self.log)))
            self._append(generation, AfterImage(namespace="*", kind=WriteKind.GAP, version=known.gap))
            generation.gap = False
        if not handover.done:
            generation.position = known
            generation.layer.put(name, known.encode())
            if known.version == handover.as_of:
                self._append(generation, AfterImage(namespace="*", kind=WriteKind.TICK, version=known.version))
            handover.complete()
            return
        batch = self.log[known.version : min(self.committed, known.version + most)] if begun else []
        for image in batch:
            self._append(generation, image)
        known = generation.position = known._replace(version=known.version + len(batch))
        if begun and known.version == len(self.log):
            tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=known.version, wall_ms=self.now_ms)
            self._append(generation, tick)
        generation.layer.put(name, known.encode())

    def _taken_over(self, handover: GridHandover) -> ResumePosition | None:
        if not handover.as_of:
            return None
        known = handover.followed()
        return ResumePosition(None, handover.as_of, known.database, known.election) if known.unbroken else None

    def _append(self, generation: Generation, image: AfterImage) -> None:
        shape = generation.shape
        everywhere = image.key is None
        partitions = (
            range(shape.write_partitions) if everywhere else [write_partition(image.key, shape.write_partitions)]
        )
        for partition in partitions:
            generation.layer.append(streams.writes("d", partition, shape.generation), [encode_image(image)])

    def lose(self) -> None:
        """The event layer's data are gone."""
        self.now_ms += 1
        self.layer.lose()

    # The database

    def write(self, key: int, value: int | None, *, committed: bool = True) -> None:
        """Version n is the log's n-th entry; None deletes. committed: a majority has it, and all that was written before."""
        self.now_ms += 1
        kind = WriteKind.DELETE if value is None else WriteKind.UPDATE if key in self.records else WriteKind.INSERT
        if value is None and key not in self.records:
            return
        self.log.append(
            AfterImage(
                namespace=NAMESPACE, kind=kind, version=len(self.log) + 1, key=key,
                after=None if value is None else {"_id": key, "a": value}, after_exact=value is not None,
                wall_ms=self.now_ms,
            )
        )  # fmt: skip
        if committed:
            self.committed = len(self.log)
        self._replay()

    def elect(self) -> None:
        """Elect another primary, which begins with its own entry: writes without a majority are gone without a notice."""
        self.now_ms += 1
        self.term += 1
        del self.log[self.committed :]
        version = len(self.log) + 1
        self.log.append(
            AfterImage(namespace="db.other", kind=WriteKind.INSERT, version=version, key=version, wall_ms=self.now_ms)
        )
        self.committed = len(self.log)
        self._replay()

    def _replay(self) -> None:
        self.records = {}
        for image in self.log:
            if image.namespace == NAMESPACE:
                if image.after is None:
                    self.records.pop(image.key, None)
                else:
                    self.records[image.key] = image.after["a"]
        self.states.append((self.now_ms, dict(self.records)))

    # The apps

    def read(self, app: App, value: int) -> None:
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
        self.cached.append(Cached(value, shown, asyncio.create_task(registering), generation, app))

    async def step_app(self, app: App) -> None:
        self.now_ms += 1
        reader = app._threads.reader
        try:
            reader._step()
        except EventLayerResetError as error:
            app._threads.handler.reset(str(error))
            reader._offset = reader._to_mark = reader._beats_offset = None
            reader._beats.clear()
        for _ in range(3):
            await asyncio.sleep(0)
        for entry in self.cached:
            if entry.task.done() and not entry.ids and not entry.task.cancelled() and entry.task.exception() is None:
                entry.ids, entry.stored_ms = entry.task.result().ids, self.now_ms
        self.cached = [entry for entry in self.cached if not entry.task.done() or entry.ids]

    # What must hold

    def live(self, entry: Cached, app: App) -> bool:
        known = (
            entry.ids and entry.app.tenant == app.tenant and entry.stored_ms >= max(app.cleared_ms, app.known_since_ms)
        )
        return bool(known) and app.live(entry.ids, now_ms=self.now_ms)

    def check_settled(self) -> None:
        """Check that every answer that an app would serve is the database's."""
        for entry in self.cached:
            now = frozenset(key for key, a in self.records.items() if a == entry.value)
            assert entry.shown == now or not any(self.live(entry, app) for app in self.apps)

    def check(self) -> None:
        """Check that every answer that an app would serve was the database's within the staleness bound."""
        recent: list[State] = []
        for at_ms, state in reversed(self.states):
            recent.append(state)
            if at_ms < self.now_ms - BOUND_MS:
                break
        for app in self.apps:
            for entry in self.cached:
                if self.live(entry, app):
                    answers = [frozenset(key for key, a in state.items() if a == entry.value) for state in recent]
                    assert entry.shown in answers, (
                        f"stale: {entry} at {self.now_ms}, generation {app.shape}, the database says {answers[0]}"
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
                app.caught_up(now_ms=self.now_ms) and app.shape == self.generations[-1].shape for app in self.apps
            ) and not any(not entry.task.done() for entry in self.cached):  # fmt: skip
                return
        raise AssertionError("it does not settle")

    async def close(self) -> None:
        for entry in self.cached:
            entry.task.cancel()
        await asyncio.gather(*(entry.task for entry in self.cached), return_exceptions=True)
