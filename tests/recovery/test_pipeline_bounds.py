"""Pipelines beyond their bounds: the oldest entries are trimmed; a late reader takes everything for changed, and reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
import structlog.testing

from quaestor.errors import ConfigurationError
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import YOUNGEST_TRIMMED_MS, PipelineBounds, doubtful_after_ms, measured
from quaestor.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.offsets import appended_at_ms
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.event_layer.redis_requests import Command
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.cell_stats import cell_stats
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.grid_view import GridView
from quaestor.invalidation.registry.lag_monitor import LagMonitor
from quaestor.model import (
    AfterImage,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    MatchType,
    Operation,
    Query,
    Registration,
    WriteKind,
)
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer, MeasuredPipelines, PipelineSize
from quaestor.settings import Settings

CELL = Cell(query_partition=0, write_partition=0)
SHAPE = GridShape(query_partitions=1, write_partitions=1)
BOUNDS = PipelineBounds(entries=100)


class World:
    """A cell that is driven by hand, on a clock of its own."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.layer = MemoryEventLayer(clock=self.clock)
        self.telemetry = Telemetry()
        self.version = 5
        self.append(AfterImage(namespace="*", kind=WriteKind.TICK, version=5, wall_ms=self.now_ms))
        self.loop = self.cell()

    def clock(self) -> int:
        return self.now_ms

    def cell(self) -> CellLoop:
        node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
        loop = CellLoop(
            node,
            self.layer,
            CELL,
            SHAPE,
            LoopContext(
                deployment="d",
                heartbeat_ms=1,
                retention_ms=60_000,
                bounds=BOUNDS,
                clock=self.clock,
                telemetry=self.telemetry,
            ),
        )
        loop.start()
        return loop

    def append(self, image: AfterImage) -> None:
        self.layer.append(streams.writes("d", 0), [encode_image(image)])

    def write(self, value: int) -> None:
        self.version += 1
        self.append(
            AfterImage(
                namespace="d.c", kind=WriteKind.INSERT, version=self.version, key=self.version,
                after={"_id": self.version, "a": value}, after_exact=True, wall_ms=self.now_ms,
            )
        )  # fmt: skip

    def register(self, value: int) -> None:
        registration = Registration(
            id="r", tenant="d", query_id="q", query=Query(namespace="d.c", operation=Operation.FIND, filter={"a": value}),
            since=self.version, read_at=self.version, members=(), last=None, expires_at_ms=self.now_ms + 10**9,
        )  # fmt: skip
        self.layer.append(streams.queries("d", 0), [encode_query_event(registration)])

    def step(self, *, trims: bool = False) -> None:
        self.loop.parts.periodic.heartbeat_due_s = 0.0
        self.loop.parts.periodic.maintenance_due_s = 0.0 if trims else float("inf")
        self.loop.step()

    def dead(self) -> list[str]:
        entries = self.layer.read({streams.notifications("d"): "0"}, count=10_000, block_ms=0)
        said = [decode_notification(entry.payload) for entry in entries]
        return [name for message in said if isinstance(message, Invalidated) for name in message.registration_ids]


def test_a_cell_that_has_missed_what_was_trimmed_by_size_invalidates_everything() -> None:
    """The write that it never saw changed the result; the ones that are left did not."""
    world = World()
    world.step()
    world.register(1)
    world.step()
    world.write(1)
    for _ in range(300):
        world.now_ms += 30
        world.write(2)
    size = enforced(BOUNDS, world.layer, streams.writes("d", 0))  # as another cell would
    assert size.entries == 302
    assert world.layer.measure(streams.writes("d", 0)).entries <= BOUNDS.entries
    assert world.dead() == []
    world.step()
    world.step()
    assert world.dead() == ["r"]
    assert world.telemetry.families.registry.get_sample_value("quaestor_failures_total", {"part": "event-layer"}) == 1


def test_a_cell_that_keeps_up_misses_nothing_however_small_the_bound() -> None:
    world = World()
    world.step()
    world.register(1)
    for _ in range(600):
        world.now_ms += 30
        world.write(2)
        world.step(trims=True)
    assert world.layer.measure(streams.writes("d", 0)).entries <= BOUNDS.entries + YOUNGEST_TRIMMED_MS // 30
    assert world.dead() == []
    world.write(1)
    world.step()
    world.step()
    assert world.dead() == ["r"]


def test_the_youngest_are_never_trimmed_by_size_so_asking_late_is_asking_in_time() -> None:
    """The rule that lets readers who keep up ask nothing: half of what is spared is what they may be behind unasked."""
    assert 2 * doubtful_after_ms(60_000) <= YOUNGEST_TRIMMED_MS
    world = World()
    for _ in range(1_000):
        world.write(2)
    world.now_ms += YOUNGEST_TRIMMED_MS - 1
    enforced(BOUNDS, world.layer, streams.writes("d", 0))
    assert world.layer.measure(streams.writes("d", 0)).entries == 1_001


def test_every_pipeline_around_a_cell_is_measured() -> None:
    """The metrics cover entries, bytes and lag of every pipeline.

    For evictions at the query pipeline's bound see test_query_room.py.
    """
    world = World()
    world.step()
    for _ in range(50):
        world.register(1)
    world.now_ms += 10_000
    world.step(trims=True)
    value = world.telemetry.families.registry.get_sample_value
    assert value("quaestor_pipeline_entries", {"pipeline": "q0"}) == 50
    assert value("quaestor_pipeline_bytes", {"pipeline": "w0"}) > 0
    assert value("quaestor_pipeline_lag_ms", {"pipeline": "w0"}) == 10_000
    (stats,) = cell_stats(world.layer, "d")
    assert [pipeline.pipeline for pipeline in stats.pipelines] == ["w0", "q0", "m0", "r0", "n", "h"]
    assert stats.pipelines[1].entries == 50
    assert stats.pipeline_max_entries == BOUNDS.entries


@pytest.mark.parametrize("name", [streams.matched, streams.results])
def test_pipelines_of_subscriptions_have_the_same_bound(name: Callable[[str, int], str]) -> None:
    world = World()
    for _ in range(300):
        world.now_ms += 30
        world.layer.append(name("d", 0), [b"x"])
    world.write(2)
    world.step(trims=True)
    assert world.layer.measure(name("d", 0)).entries <= BOUNDS.entries


def enforced(bounds: PipelineBounds, layer: EventLayer, stream: str) -> PipelineSize:
    """As upkeep does it; returns the size before."""
    sizes = measured(layer, {stream: None})
    bounds.enforce(layer, sizes)
    return sizes[stream]


@pytest.fixture(params=["memory", "redis"])
def layer(request: pytest.FixtureRequest, prefix: str) -> Iterator[EventLayer]:
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    made: EventLayer = RedisEventLayer(url, prefix) if url else MemoryEventLayer()
    yield made
    made.close()


def test_every_layer_tells_how_large_its_pipelines_are_and_what_time_it_is_there(
    layer: EventLayer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The layers' clocks are real: what was appended just now stays young, however long the machine takes.
    monkeypatch.setattr("quaestor.event_layer.bounds.YOUNGEST_TRIMMED_MS", 600_000)
    stream = streams.writes(prefix, 0)
    assert isinstance(layer, MeasuredPipelines)
    assert layer.measure(stream)[:2] == (0, 0)
    layer.append(stream, [b"x" * 1_000] * 200)
    size = layer.measure(stream)
    assert size.entries == 200
    assert 200_000 <= size.bytes < 400_000
    (newest,) = layer.read({stream: "0"}, count=1, block_ms=0)
    assert 0 <= size.at_ms - appended_at_ms(newest.offset) < 60_000
    bounds = PipelineBounds(bytes=100_000)
    enforced(bounds, layer, stream)
    assert layer.measure(stream).entries == 200, "too large, too young"


def test_writes_wait_for_two_round_trips_of_upkeep_however_many_pipelines_there_are(
    redis_url: str, prefix: str
) -> None:
    """One to trim and to measure, one to tell."""
    requests: list[tuple[Command, ...]] = []

    class Counted(RedisEventLayer):
        def request(self, name: str, *commands: Command) -> list[Any]:
            requests.append(commands)
            return super().request(name, *commands)

    with closing(Counted(redis_url, prefix)) as layer:
        node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
        loop = CellLoop(node, layer, CELL, SHAPE, LoopContext(deployment=prefix, heartbeat_ms=1, retention_ms=60_000))
        ids = tuple(f"tenant{number}~r:1" for number in range(9))
        notification = Invalidated(
            registration_ids=ids, query_id="q", match_type=MatchType.ADD, version=1, key=1, written_at_ms=1, source=CELL
        )
        loop.parts.outbox.add([notification])
        loop.start()
        loop.step()
        requests.clear()
        loop.parts.periodic.maintain(loop.position, waiting=False)
    assert [commands[-1][0] for commands in requests] == ["MEMORY", "SET"]
    assert sum(command[0] == "XLEN" for command in requests[0]) > 9


def test_entries_appended_at_once_go_at_once_when_they_are_old(redis_url: str, prefix: str) -> None:
    stream = streams.writes(prefix, 0)
    with redis.Redis.from_url(redis_url) as server, closing(RedisEventLayer(redis_url, prefix)) as layer:
        for _ in range(200):
            server.xadd(stream, {b"p": b"x" * 1_000}, id="1700000000000-*")
        assert enforced(PipelineBounds(bytes=100_000), layer, stream).entries == 200
        assert layer.measure(stream).entries == 0


def test_a_cell_whose_clock_is_fast_trims_nothing_that_is_young() -> None:
    """A slower cell would not ask whether it has missed anything."""
    world = World()
    world.step()
    for _ in range(1_000):
        world.write(2)
    written_ms = world.now_ms
    world.now_ms += 600_000
    world.layer._clock = lambda: written_ms
    world.step(trims=True)
    assert world.layer.measure(streams.writes("d", 0)).entries >= 1_000


def test_a_lagging_column_is_named_once_and_again_when_it_has_caught_up() -> None:
    telemetry, view = Telemetry(), GridView()
    columns = LagMonitor(telemetry, bound_ms=2_000, begun_ms=0)
    shape = GridShape(query_partitions=2, write_partitions=2)

    def beat(cell: Cell, fresh_as_of_ms: int) -> None:
        view.observe(
            Heartbeat(
                cell=cell, shape=shape, at_ms=0, fresh_as_of_ms=fresh_as_of_ms, watermark=1, registrations=0, writes=0
            )
        )

    for cell in shape.cells:
        beat(cell, 10_000)
    with structlog.testing.capture_logs() as logs:
        columns.observe(view.partitions_ms(), now_ms=11_000)
        beat(shape.cells[0], 13_000)
        beat(shape.cells[1], 13_000)
        columns.observe(view.partitions_ms(), now_ms=13_000)
        columns.observe(view.partitions_ms(), now_ms=13_500)
        beat(shape.cells[2], 13_000)
        columns.observe(view.partitions_ms(), now_ms=13_600)
        beat(shape.cells[3], 13_000)
        columns.observe(view.partitions_ms(), now_ms=13_700)
    logged = [(log["event"], log["columns"]) for log in logs]
    assert logged == [("registry.column_lags", [1]), ("registry.column_caught_up", [1])]
    value = telemetry.families.registry.get_sample_value
    assert value("quaestor_column_lag_ms", {"column": "1"}) == 700


@pytest.mark.parametrize("name", ["pipeline_max_entries", "pipeline_max_bytes"])
def test_bounds_of_pipelines_are_settings(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Settings(**{name: 0})
    assert PipelineBounds.of(Settings(pipeline_max_entries=7, pipeline_max_bytes=8)) == PipelineBounds(
        entries=7, bytes=8
    )
