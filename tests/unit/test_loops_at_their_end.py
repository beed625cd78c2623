"""Loops of an elected grid while they end: writes that its lease no longer allows are no failure."""

from __future__ import annotations

import threading

import pytest

from quaestor.errors import EventLayerError
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.reader_pool import ReaderPool
from quaestor.realtime.stage import StageLoop

SHAPE = GridShape(query_partitions=1, write_partitions=1)


def loops(telemetry: Telemetry) -> list[CellLoop | StageLoop]:
    context = LoopContext(deployment="d", heartbeat_ms=10, telemetry=telemetry)
    cell = Cell(query_partition=0, write_partition=0)
    node = MatchingNode(cell, SHAPE, retention_ms=60_000)
    readers = ReaderPool(lambda *_: None, 1)  # type: ignore[arg-type]
    return [
        CellLoop(node, MemoryEventLayer(), cell, SHAPE, context),
        StageLoop(MemoryEventLayer(), lambda *_: None, 0, SHAPE, context, readers=readers),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("is_ending", [True, False])
@pytest.mark.parametrize("number", [0, 1])
def test_a_refused_write_is_a_failure_only_before_the_end(
    number: int, is_ending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same refusal is counted while the loop is to go on."""
    telemetry = Telemetry()
    seen: list[str] = []
    stop = threading.Event()

    def counted(part: str, event: str, *_: object, **__: object) -> None:
        seen.append(event)
        stop.set()

    monkeypatch.setattr(telemetry, "failure", counted)
    loop = loops(telemetry)[number]

    def refused(_: object, **__: object) -> None:
        if is_ending:
            stop.set()
        raise EventLayerError("the lease of this process is over")

    monkeypatch.setattr(type(loop), "step", refused)
    loop.run(stop)
    assert [event.partition(".")[2] for event in seen] == ([] if is_ending else ["event_layer_failed"])
