"""Cells that receive their work beforehand and drain it one after the other: CPU time of each, whatever the machine's cores.

Everything is appended to the pipelines first; then each cell in turn, a process of its own, runs the grid's own loop until it has
read its part. Cells therefore never wait, hardly ever wake up for a single write, and do not compete: their CPU time is that of
the work. The cost of waking up is measured separately, with writes that come one at a time.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Literal

from benchmarks.scalability import workload
from benchmarks.scalability.grids import cell_loop, join
from benchmarks.scalability.workload import Load
from quaestor.event_layer import streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.model import Cell, GridShape

RETENTION_MS: Final = 600_000
"""Longer than any run: what the last cell is to read is not to be trimmed by the first."""
_ANY: Final = 10**9
_AT_ONCE: Final = 1_000
_DEADLINE_S: Final = 240.0
_METHOD: Final = multiprocessing.get_context("forkserver")
_METHOD.set_forkserver_preload([__name__])

Registrations = Iterable[tuple[str, bytes]]
"""Query ids, each with its encoded registration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """One cell's work between two moments.

    cpu_s: of its process, reading and decoding, matching and notifying included.
    entries: writes that it was to read; registrations when it was filled.
    tried: predicates that it evaluated.
    held: registrations that it holds now.
    """

    cell: Cell
    cpu_s: float
    entries: int
    tried: float
    held: int


@dataclass(frozen=True, slots=True)
class _Task:
    """until: `registrations` are held, or `writes` have been read since the start; `alone`: these payloads, one at a time."""

    until: Literal["registrations", "writes", "alone"]
    wanted: int = 0
    payloads: Sequence[bytes] = ()


class DrainedGrid:
    """A grid whose cells work only on command."""

    def __init__(self, redis_url: str, deployment: str, shape: GridShape, processes: dict[Cell, Connection]) -> None:
        self.shape = shape
        self._deployment = deployment
        self._layer = RedisEventLayer(redis_url, deployment)
        self._processes = processes
        self._registered = [0] * shape.query_partitions
        self._published = [0] * shape.write_partitions
        self._fired = dict.fromkeys(processes, 0)

    @property
    def registered(self) -> tuple[int, ...]:
        """Registrations so far of each query partition."""
        return tuple(self._registered)

    @property
    def published(self) -> tuple[int, ...]:
        """Writes so far of each write partition."""
        return tuple(self._published)

    def hold(self, registrations: Registrations) -> list[Drained]:
        """Have every cell register its part of these, as many as came; the cost of each cell."""
        before = self.registered
        self.tick()  # before anything is dated: a cell refuses what was read before it knows of writes
        batches: list[list[bytes]] = [[] for _ in self._registered]
        for query_id, payload in registrations:
            batches[query_partition(query_id, len(batches))].append(payload)
        for part, batch in enumerate(batches):
            self._registered[part] += len(batch)
            self._append(streams.queries(self._deployment, part), batch)
        drained = []
        for cell in self._processes:
            new = self._registered[cell.query_partition] - before[cell.query_partition]
            held = self._registered[cell.query_partition] - self._fired[cell]
            drained.append(self._work(cell, _Task("registrations", held), new))
        return drained

    def publish(self, load: Load) -> None:
        """Append all writes of this load to their pipelines."""
        batches: list[list[bytes]] = [[] for _ in self._published]
        for write in workload.writes(load, start_ms=int(time.time() * 1000)):
            batches[write.partition].append(write.payload)
        for part, batch in enumerate(batches):
            self._published[part] += len(batch)
            self._append(streams.writes(self._deployment, part), batch)

    def drain(self) -> list[Drained]:
        """Have every cell read what has been published, one after the other; the cost of each."""
        drained = []
        for cell in self._processes:
            done = self._work(cell, _Task("writes", self._published[cell.write_partition]), 0)
            self._fired[cell] = self._registered[cell.query_partition] - done.held
            drained.append(done)
        return drained

    def one_at_a_time(self, load: Load) -> Drained:
        """Have the only cell read these writes as they come, each appended when the one before it has been dealt with."""
        (cell,) = self._processes
        payloads = [write.payload for write in workload.writes(load, start_ms=int(time.time() * 1000))]
        self._published[0] += len(payloads)
        return self._work(cell, _Task("alone", payloads=payloads), len(payloads))

    def tick(self) -> None:
        """Tell the cells where time begins, as ingest would."""
        for part in range(self.shape.write_partitions):
            self._layer.append(streams.writes(self._deployment, part), [workload.tick()])

    def close(self) -> None:
        """Let go of Redis."""
        self._layer.close()

    def _append(self, stream: str, payloads: Sequence[bytes]) -> None:
        for first in range(0, len(payloads), _AT_ONCE):
            self._layer.append(stream, payloads[first : first + _AT_ONCE])

    def _work(self, cell: Cell, task: _Task, entries: int) -> Drained:
        pipe = self._processes[cell]
        pipe.send(task)
        answer = pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"cell {cell}: {answer}")
        cpu_s, tried, held, read = answer
        return Drained(cell=cell, cpu_s=cpu_s, entries=entries or read, tried=tried, held=held)


@contextmanager
def drained(redis_url: str, deployment: str, shape: GridShape) -> Iterator[DrainedGrid]:
    """A grid of this shape, its cells as processes that wait for their turn."""
    pipes: dict[Cell, Connection] = {}
    processes: list[Any] = []
    try:
        for cell in shape.cells:
            ours, child_end = _METHOD.Pipe()
            process = _METHOD.Process(target=_cell, args=(redis_url, deployment, shape, cell, child_end), daemon=True)
            process.start()
            child_end.close()
            pipes[cell] = ours
            processes.append(process)
        with closing(DrainedGrid(redis_url, deployment, shape, pipes)) as grid:
            yield grid
    finally:
        for pipe in pipes.values():
            pipe.close()
        join(processes)


def _cell(redis_url: str, deployment: str, shape: GridShape, cell: Cell, pipe: Connection) -> None:
    """One cell's process: works on command, until its pipe is closed."""
    with (
        closing(RedisEventLayer(redis_url, deployment)) as layer,
        closing(RedisEventLayer(redis_url, deployment)) as other,
    ):
        # Drained without a pause, it tries more a second than a cell accepts in service.
        loop = cell_loop(layer, deployment, shape, cell, retention_ms=RETENTION_MS, max_tried_per_s=_ANY)
        node = loop.node
        begun = False
        while (task := _received(pipe)) is not None:
            if not begun:
                loop.start()  # not before: it would read registrations before the tick that dates what it knows of
                begun = True
            tried, read = node.tally.tried, node.tally.writes
            try:
                if task.until == "alone":
                    cpu_s = sum(_alone(loop, other, streams.writes(deployment, cell.write_partition), task.payloads))
                elif task.until == "registrations":
                    cpu_s = _until(loop, lambda wanted=task.wanted: node.registrations == wanted)
                else:
                    cpu_s = _until(loop, lambda wanted=task.wanted: node.tally.writes >= wanted)
            except TimeoutError as error:
                pipe.send(f"{error}; {node.registrations} registrations, {node.tally.writes} writes, command: {task}")
                continue
            pipe.send((cpu_s, node.tally.tried - tried, node.registrations, node.tally.writes - read))


def _until(loop: CellLoop, reached: Callable[[], bool]) -> float:
    """CPU seconds until this is reached. Raises TimeoutError."""
    deadline_s, begun_s = time.monotonic() + _DEADLINE_S, time.process_time()
    while not reached():
        loop.step()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not done within {_DEADLINE_S:.0f} s")
    return time.process_time() - begun_s


def _alone(loop: CellLoop, other: RedisEventLayer, pipeline: str, payloads: Sequence[bytes]) -> Iterator[float]:
    """CPU seconds that each of these costs when it comes alone; appending it is not counted. Raises TimeoutError."""
    for payload in payloads:
        wanted = loop.node.tally.writes + 1
        other.append(pipeline, [payload])
        yield _until(loop, lambda wanted=wanted: loop.node.tally.writes >= wanted)


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None  # the starting process is gone, or done
