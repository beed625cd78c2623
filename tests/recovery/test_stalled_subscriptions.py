"""Subscribers of a dead grid receive a notice that their results stand still, its begin and its end."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_image
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import AfterImage, Cell, WriteKind
from quaestor.observability.hooks import FailureSeen
from quaestor.ports import StreamEntry
from quaestor.realtime.live import Whole
from quaestor.realtime.notices import Resumed, Stalled
from tests.oracle.standing_world import Grid, StandingWorld, Subscriber
from tests.recovery.following import ONE, Opened
from tests.support import eventually, running

CELL = Cell(query_partition=0, write_partition=0)


class Failing(MemoryEventLayer):
    """An event layer whose results cannot be read while it is away."""

    away = False

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        if self.away and any(stream.endswith(":results") for stream in offsets):
            raise EventLayerError("it does not answer")
        return super().read(offsets, count=count, block_ms=block_ms)


def end(grid: Grid, what: str) -> None:
    if what == "event layer":
        assert isinstance(grid.layer, Failing)
        grid.layer.away = True
    else:
        (grid.cells[CELL] if what == "cell" else grid.stages[0]).kill()


def begin(grid: Grid, what: str) -> None:
    if what == "event layer":
        assert isinstance(grid.layer, Failing)
        grid.layer.away = False
    elif what == "cell":
        grid.start_cell(CELL)
    else:
        grid.start_stage(0)


def ticking(standing: StandingWorld, stop: threading.Event) -> None:
    """Ingest, while nobody writes: it says how far it has got."""
    stream = streams.writes(standing.grid.settings.deployment, 0)
    while not stop.wait(0.02):
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=standing.world.version, wall_ms=system_clock())
        standing.grid.layer.append(stream, [encode_image(tick)])


async def newest_notice(subscriber: Subscriber, kind: type[Stalled | Resumed]) -> Stalled | Resumed:
    """The newest notice, once it is of this kind and of what is known of the result now."""

    async def newest() -> bool:
        await subscriber.take()
        notice, reached_ms = (subscriber.notices or [None])[-1], subscriber.live.fresh_as_of_ms
        return isinstance(notice, kind) and (kind is Resumed or notice.since_ms == reached_ms)  # type: ignore[union-attr]

    await eventually(newest)
    notice = subscriber.notices[-1]
    assert isinstance(notice, Stalled | Resumed)
    return notice


@pytest.mark.anyio
@pytest.mark.parametrize("what", ["cell", "stage", "event layer"])
async def test_subscribers_receive_a_notice_that_the_grid_is_dead_and_one_that_it_is_back(
    opened: Opened, what: str
) -> None:
    """The notice, which late subscribers get too, contains the time since which the result may be outdated.

    Afterwards the result is right.
    """
    layer = Failing()
    standing = opened(ONE, layer=lambda: layer, staleness_bound_ms=500)
    app, query = standing.grid.app(), opened.find(standing, a={"$gt": 0})
    failures: list[FailureSeen] = []
    standing.grid.telemetry.hooks.failures.append(failures.append)
    with running(lambda stop: ticking(standing, stop)):
        subscriber = await standing.subscribe(app, query)
        assert subscriber is not None
        await eventually(lambda: subscriber.live.fresh_as_of_ms > 0)
        proven_ms = subscriber.live.fresh_as_of_ms
        end(standing.grid, what)
        stalled = await newest_notice(subscriber, Stalled)
        assert proven_ms <= stalled.since_ms <= system_clock()
        await eventually(lambda: any((seen.part, seen.name) == ("grid", "subscriptions.stalled") for seen in failures))
        late = await app.subscribe(query)
        assert isinstance(await anext(late), Whole)
        assert await anext(late) == stalled
        begin(standing.grid, what)
        resumed = await newest_notice(subscriber, Resumed)
        assert isinstance(resumed, Resumed)
        assert resumed.fresh_as_of_ms > resumed.since_ms
        standing.write(5)
        await standing.check("after it came back")
