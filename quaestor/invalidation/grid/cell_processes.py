"""Processes that run the cells of a grid: each announces itself, and tools read the announcements."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import bson

from quaestor.event_layer import streams
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.model import Cell, GridShape
from quaestor.ports import EventLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProcess:
    """Process that runs one cell.

    run: the start of the grid that it belongs to.
    starts: number of the cell's processes in this run so far, this one included.
    """

    run: str
    pid: int
    host: str
    starts: int


class Announcement:
    """Announcement that this process runs a cell, repeated so that an event layer that lost its data receives it again."""

    def __init__(self, layer: EventLayer, deployment: str, cell: Cell, shape: GridShape, *, run: str) -> None:
        self._layer = layer
        self._name = streams.process(deployment, cell, shape.generation)
        self._run = run
        self._starts = 0

    def make(self) -> None:
        """Announce once more. Raises EventLayerError."""
        if not self._starts:
            before = _decoded(self._layer.get(self._name))
            self._starts = 1 if before is None or before.run != self._run else before.starts + 1
        fields = {"v": 1, "run": self._run, "pid": os.getpid(), "host": socket.gethostname(), "starts": self._starts}
        self._layer.put(self._name, bson.encode(fields))


def cell_processes(layer: EventLayer, deployment: str) -> dict[Cell, CellProcess]:
    """Return the process of each cell of the current grid, on any host; cells that have not started are missing.

    During a takeover the cells of the new grid are included once they run. Raises EventLayerError.
    """
    state = get_state(layer, deployment)
    if state is None:
        return {}
    processes: dict[Cell, CellProcess] = {}
    for stage in (state.serving, *((state.successor,) if state.successor is not None else ())):
        for cell in stage.shape.cells:
            process = _decoded(layer.get(streams.process(deployment, cell, stage.shape.generation)))
            if process is not None and process.run == stage.run:
                processes[cell] = process
    return processes


def cell_pids(layer: EventLayer, deployment: str) -> dict[Cell, int]:
    """Return the process ids of `cell_processes`."""
    return {cell: process.pid for cell, process in cell_processes(layer, deployment).items()}


def _decoded(value: bytes | None) -> CellProcess | None:
    if value is None:
        return None
    fields = bson.decode(value)
    starts = int(fields.get("starts", 1))
    return CellProcess(run=fields["run"], pid=int(fields["pid"]), host=fields["host"], starts=starts)
