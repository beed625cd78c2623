"""Pipelines that grow too large: the oldest entries go, whoever has not read them takes everything for changed, and says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog.testing

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError
from quaestor.invalidation.cell import CellLoop
from quaestor.invalidation.columns import Columns
from quaestor.invalidation.event_layer import streams
from quaestor.invalidation.event_layer.bounds import YOUNGEST_TRIMMED_MS, PipelineBounds, doubtful_after_ms
from quaestor.invalidation.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.invalidation.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid_view import GridView
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import (
    AfterImage,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    Operation,
    Query,
    Registration,
    WriteKind,
)
from quaestor.ports import EventLayer, MeasuredPipelines
from quaestor.settings import Settings
from quaestor.telemetry import Telemetry

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
            node, self.layer, CELL, SHAPE, deployment="d", heartbeat_ms=1, retention_ms=60_000, bounds=BOUNDS,
            clock=self.clock, telemetry=self.telemetry,
        )  # fmt: skip
        loop._start()
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
        self.loop._heartbeat_due_s = 0.0
        self.loop._trim_due_s = 0.0 if trims else float("inf")
        self.loop._step()

    def dead(self) -> list[str]:
        entries = self.layer.read({streams.notifications("d"): "0"}, count=10_000, block_ms=0)
        said = [decode_notification(entry.payload) for entry in entries]
        return [name for one in said if isinstance(one, Invalidated) for name in one.registration_ids]


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
    size = BOUNDS.enforce(world.layer, streams.writes("d", 0), now_ms=world.now_ms)  # as another cell would
    assert size is not None
    assert size.entries == 302
    assert world.layer.measure(streams.writes("d", 0)).entries <= BOUNDS.entries
    assert world.dead() == []
    world.step()
    world.step()
    assert world.dead() == ["r"]
    assert world.telemetry.registry.get_sample_value("quaestor_failures_total", {"part": "event-layer"}) == 1


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
    BOUNDS.enforce(world.layer, streams.writes("d", 0), now_ms=world.now_ms)
    assert world.layer.measure(streams.writes("d", 0)).entries == 1_001


def test_the_query_pipeline_is_measured_and_never_trimmed_by_size() -> None:
    """It holds what is registered, and whoever replaces a cell needs all of it."""
    world = World()
    world.step()
    for _ in range(300):
        world.register(1)
    world.now_ms += 10_000
    world.step(trims=True)
    value = world.telemetry.registry.get_sample_value
    assert world.layer.measure(streams.queries("d", 0)).entries == 300
    assert value("quaestor_pipeline_entries", {"pipeline": "q0"}) == 300
    assert value("quaestor_pipeline_bytes", {"pipeline": "w0"}) > 0
    assert value("quaestor_pipeline_lag_ms", {"pipeline": "w0"}) == 10_000


@pytest.fixture(params=["memory", "redis"])
def layer(request: pytest.FixtureRequest, prefix: str) -> Iterator[EventLayer]:
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    made: EventLayer = RedisEventLayer(url, prefix) if url else MemoryEventLayer()
    yield made
    made.close()


def test_every_layer_tells_how_large_its_pipelines_are(layer: EventLayer, prefix: str) -> None:
    stream = streams.writes(prefix, 0)
    assert isinstance(layer, MeasuredPipelines)
    assert layer.measure(stream) == (0, 0)
    layer.append(stream, [b"x" * 1_000] * 200)
    size = layer.measure(stream)
    assert size.entries == 200
    assert 200_000 <= size.bytes < 400_000
    bounds = PipelineBounds(bytes=100_000)
    assert bounds.enforce(layer, stream, now_ms=system_clock() + 60_000) == size
    assert layer.measure(stream).entries == 0, "they were all there at once, and are all old"


def test_a_lagging_column_is_named_once_and_again_when_it_has_caught_up() -> None:
    telemetry, view = Telemetry(), GridView()
    columns = Columns(telemetry, bound_ms=2_000, begun_ms=0)
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
        columns.observe(view.columns_ms(), now_ms=11_000)
        beat(shape.cells[0], 13_000)
        beat(shape.cells[1], 13_000)
        columns.observe(view.columns_ms(), now_ms=13_000)
        columns.observe(view.columns_ms(), now_ms=13_500)
        beat(shape.cells[2], 13_000)
        columns.observe(view.columns_ms(), now_ms=13_600)
        beat(shape.cells[3], 13_000)
        columns.observe(view.columns_ms(), now_ms=13_700)
    told = [(log["event"], log["columns"]) for log in logs]
    assert told == [("registry.column_lags", [1]), ("registry.column_caught_up", [1])]
    value = telemetry.registry.get_sample_value
    assert value("quaestor_column_lag_ms", {"column": "1"}) == 700


@pytest.mark.parametrize("name", ["pipeline_max_entries", "pipeline_max_bytes"])
def test_bounds_are_settings(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Settings(**{name: 0})
    assert PipelineBounds.of(Settings(pipeline_max_entries=7, pipeline_max_bytes=8)) == PipelineBounds(
        entries=7, bytes=8
    )
