"""Subscriptions driven by hand, one entry at a time: stages, cells and app processes are the real ones.

The event layer is in memory, the database is a list of its states.
Each entry that a part sees is a step (see every_order.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_image, type_of
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import write_partition
from quaestor.incremental import RenewalSettings
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import AfterImage, Cell, GridShape, Query, Version, WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.planning.plan import plan_query
from quaestor.realtime.rules import StageRules
from quaestor.realtime.stage import StageLoop
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.standing_orders.database import BASE, START_MS, Change, Database, State
from tests.standing_orders.every_order import Step, Touched
from tests.standing_orders.follower import Follower, Truth
from tests.standing_orders.taps import HandReaderPool, Tap

FAR_MS = 10**9
TO_CELLS, TO_STAGE = b"SKE", b"sx"
ALL = "all"
TELEMETRY = Telemetry()
SETTINGS = Settings(
    deployment="d",
    subscription_lease_ms=FAR_MS,
    staleness_bound_ms=2 * FAR_MS,
    heartbeat_ms=FAR_MS,
    retention_ms=FAR_MS,
)
ONE = GridShape(query_partitions=1, write_partitions=1)
SETTLED_AFTER = 40
"""Rounds in which everybody works off everything; renewals follow one another."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The start, the changes and the events of a story.

    queries: each app process follows all of them.
    cell_deaths, stage_deaths: how often the first cell of each column, and each stage, is killed and replaced,
    stages first.
    again: every image is repeated, as by an ingest that began anew. All that is appended comes twice,
    as by an append that
    failed after it had been performed.
    leaves: so often each app ends its subscriptions and subscribes anew.
    slack: of windows.
    settled: the story begins when every part knows the first subscriptions.
    lumps: so often a stage may take at once everything that has arrived for it in both its pipelines,
    as a slow stage does.
    unseen: the image of this write, counted from 0, comes without its pre-image, as of a record that was too large.
    """

    start: State
    changes: Sequence[Change]
    queries: Sequence[Query]
    shape: GridShape = ONE
    apps: int = 1
    images: bool = False
    again: bool = False
    cell_deaths: int = 0
    stage_deaths: int = 0
    leaves: int = 0
    slack: int = 0
    settled: bool = False
    lumps: int = 0
    unseen: int | None = None

    def database(self) -> Database:
        return Database(self.start, self.changes, images=self.images, unseen=self.unseen)

    def truth(self) -> Truth:
        return Truth(self.database(), self.shape.write_partitions)


class World:
    """One scenario, begun. Every part has a clock of its own that goes on with its steps; the event layer's stands still."""

    def __init__(self, scenario: Scenario, truth: Truth) -> None:
        self.scenario = scenario
        self.shape = scenario.shape
        self.truth = truth
        self.database = scenario.database()
        self.layer = MemoryEventLayer(clock=lambda: START_MS)
        self.touched: set[Any] = set()
        self.clocks: dict[object, int] = {}
        self.taps: dict[object, Tap] = {}
        self.cells: dict[Cell, CellLoop] = {}
        self.stages: dict[int, StageLoop] = {}
        self.readers: dict[int, HandReaderPool] = {}
        self.apps: list[Subscriptions] = []
        self.followers: list[list[Follower]] = []
        self.leaves = [scenario.leaves] * scenario.apps
        self.deaths: dict[object, int] = {}
        self.lumps = [scenario.lumps] * self.shape.query_partitions
        self._tick(BASE)
        for cell in self.shape.cells:
            self.deaths[cell] = 0 if cell.write_partition else scenario.cell_deaths
            self._start_cell(cell)
            self.taps[cell].open = True
            self.cells[cell].step()
            self.taps[cell].open = False
        for partition in range(self.shape.query_partitions):
            self.deaths[partition] = scenario.stage_deaths
            self._start_stage(partition)
            self.taps[partition].open = True
            self.stages[partition].step(wait_ms=0)
            self.taps[partition].open = False
        for number in range(scenario.apps):
            self._start_app(number)
        while scenario.settled and (
            steps := [step for step in self.enabled() if step[0] not in ("write", "death", "leave")]
        ):
            self.do(steps[0])

    # Parts

    def _tap(self, part: object, concerns: Callable[[str, bytes], bool]) -> Tap:
        self.clocks.setdefault(part, START_MS)
        tap = self.taps[part] = Tap(self.layer, concerns, self.touched, times=2 if self.scenario.again else 1)
        return tap

    def _start_cell(self, cell: Cell) -> None:
        queries = streams.queries("d", cell.query_partition)
        tap = self._tap(cell, lambda stream, payload: stream != queries or (type_of(payload) or b"?") in TO_CELLS)
        loop = self.cells[cell] = CellLoop(
            MatchingNode(cell, self.shape, retention_ms=FAR_MS),
            tap,
            cell,
            self.shape,
            LoopContext(
                deployment="d",
                heartbeat_ms=FAR_MS,
                retention_ms=FAR_MS,
                clock=lambda: self.clocks[cell],
                telemetry=TELEMETRY,
            ),
        )
        tap.open = True
        loop.start()
        tap.open = False
        loop.step()

    def _start_stage(self, partition: int) -> None:
        queries = streams.queries("d", partition)
        tap = self._tap(partition, lambda stream, payload: stream != queries or (type_of(payload) or b"?") in TO_STAGE)
        readers = self.readers[partition] = HandReaderPool(self.database)
        slack = self.scenario.slack
        renewal = RenewalSettings(slack=slack, most_slack=slack, poll_interval_ms=1)
        self.stages[partition] = StageLoop(
            tap,
            self.database,
            partition,
            self.shape,
            LoopContext(
                deployment="d",
                heartbeat_ms=FAR_MS,
                retention_ms=FAR_MS,
                clock=lambda: self.clocks[partition],
                telemetry=TELEMETRY,
            ),
            rules=StageRules(lease_ms=FAR_MS, readers=0, renewal=renewal),
            readers=readers,
        )
        self.stages[partition].step(wait_ms=0)

    def _start_app(self, number: int) -> None:
        tap = self._tap(("app", number), lambda stream, payload: True)
        self.apps.append(
            Subscriptions(
                tap,
                ProcessContext.of(SETTINGS, telemetry=TELEMETRY, clock=lambda: self.clocks["app", number]),
                shape=lambda: self.shape,
            )
        )
        self.followers.append([])
        self._subscribe(number)

    def _subscribe(self, number: int) -> None:
        app = self.apps[number]
        for query in self.scenario.queries:
            query_id = plan_query(query).query_id
            live = app._followed.join(query_id, query)
            app._followed.open(query_id)
            self.followers[number].append(Follower(live, self.truth))
        app._loop.step()

    # Steps

    def enabled(self) -> list[Step]:
        """See every_order.World. Deaths are possible while anybody else has something to do: afterwards they change nothing that
        deaths just before the end do not."""
        steps: list[Step] = []
        for number in range(len(self.apps)):
            steps += [("app", number, stream) for stream in sorted(self.taps["app", number].waiting())]
        steps += [("cell", cell, stream) for cell in self.cells for stream in sorted(self.taps[cell].waiting())]
        for partition, readers in self.readers.items():
            waiting = sorted(self.taps[partition].waiting())
            steps += [("stage", partition, stream) for stream in waiting]
            if self.lumps[partition] and len(waiting) > 1:
                steps.append(("stage", partition, ALL))
            if readers.performed:
                steps.append(("stage", partition, "done"))
            if readers.orders:
                steps.append(("read", partition))
        if self.database.written < len(self.database.log):
            steps.append(("write",))
        mortal = [part for part, left in self.deaths.items() if left]
        steps += [("death", part) for part in [part for part in mortal if part in self.stages] or mortal]
        steps += [("leave", number) for number, left in enumerate(self.leaves) if left and self._known(number)]
        return steps

    def _known(self, number: int) -> bool:
        return all(follower.wholes for follower in self.followers[number])

    def eager(self, steps: list[Step]) -> Step | None:
        """An app's next message, unless it may still leave; the pipelines of several query partitions it reads in their order."""
        return next((step for step in steps if step[0] == "app" and not any(self.leaves)), None)

    def do(self, step: Step) -> Touched:
        self.touched.clear()
        kind, part, what = (*step, None, None)[:3]
        owner: Any = ("app", part) if kind in ("app", "leave") else part
        if kind not in ("write", "read"):
            self.touched.add((("part", owner), True))
            self.clocks[owner] += 10
        match kind, part:
            case "write", _:
                self._write()
            case "app", int():
                self.taps["app", part].let = str(what)
                self._step_app(part)
            case "cell", Cell():
                self.taps[part].let = str(what)
                self.cells[part].step()
            case "stage", int():
                self._step_stage(part, str(what))
            case "read", int():
                self.touched |= {("database", False), (("reader", part), True)}
                self.readers[part].perform()
            case "death", Cell():
                self.deaths[part] -= 1
                self._start_cell(part)
            case "death", int():
                self.touched.add((("reader", part), True))
                self.deaths[part] -= 1
                self._start_stage(part)
            case "leave", int():
                self._leave(part)
        return frozenset(self.touched)

    def _step_stage(self, partition: int, what: str) -> None:
        tap = self.taps[partition]
        self.readers[partition].delivering = what == "done"
        tap.let = None if what in ("done", ALL) else what
        tap.open = what == ALL
        self.lumps[partition] -= tap.open
        if tap.open:  # what is appended later would have been taken too
            self.touched |= {(stream, False) for stream in tap.streams}
        self.stages[partition].step(wait_ms=0)
        tap.open = False

    def _step_app(self, number: int) -> None:
        self.apps[number]._loop.step()
        for follower in self.followers[number]:
            follower.take()

    def _leave(self, number: int) -> None:
        """End all subscriptions and subscribe anew; the stage learns of it bit by bit."""
        self.leaves[number] -= 1
        app = self.apps[number]
        for follower in self.followers[number]:
            local = app._followed.left(follower.live, follower.live._shared)
            assert local is not None
            app._followed.send(local.stage, local.unsubscription())
        self.followers[number] = []
        self._subscribe(number)

    def _write(self) -> None:
        """The next write is there, and ingest appends its image. Nobody else appends there, so who takes it later has not seen it
        yet: every delay of the image is one of the cell."""
        image = self.database.log[self.database.written]
        self.database.written += 1
        partition = write_partition(image.key, self.shape.write_partitions)
        stream = streams.writes("d", partition)
        images = self.database.log[: self.database.written] if self.scenario.again else [image]
        mine = [image for image in images if write_partition(image.key, self.shape.write_partitions) == partition]
        self.layer.append(stream, [encode_image(image) for image in mine])
        self.touched |= {("database", True), (stream, True)}
        if self.shape.write_partitions == 1:
            self._tick(image.version)

    def _tick(self, version: Version) -> None:
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=START_MS + version)
        for partition in range(self.shape.write_partitions):
            self.layer.append(streams.writes("d", partition), [encode_image(tick)])

    # The end

    def settle(self) -> None:
        """Let time pass while nothing else happens: every part does its remaining work, and its work of every second."""
        final = self.database.version_of(len(self.database.log))
        for tap in self.taps.values():
            tap.open = True
        for _ in range(SETTLED_AFTER):
            self.clocks = {part: now_ms + 1_000 for part, now_ms in self.clocks.items()}
            self._tick(final)
            for loop in self.cells.values():
                loop.step()
            for partition, stage in self.stages.items():
                readers = self.readers[partition]
                while readers.orders:
                    readers.perform()
                readers.delivering = readers.performed
                stage.step(wait_ms=0)
            for number in range(len(self.apps)):
                self._step_app(number)
            if all(follower.live.version == final for followers in self.followers for follower in followers):
                break
        for followers in self.followers:
            for follower in followers:
                follower.finish(final)
