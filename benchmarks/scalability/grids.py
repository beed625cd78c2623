"""Grids to be measured: on Spark, as in production, or the same cells as plain processes, to tell what Spark itself costs.

A grid keeps its queries from experiment to experiment; `hold` brings their number to what the next one needs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import harness
from benchmarks.scalability import workload
from benchmarks.scalability.workload import Collections
from quaestor.event_layer import streams
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.partitioning import query_partition
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.cell_stats import cell_stats
from quaestor.invalidation.grid.grid_loops import FREEZE_EVERY, MOST_REGISTRATIONS
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.model import Cell, GridShape
from quaestor.testing import programs, reaper

HEARTBEAT_MS: Final = 250
RETENTION_MS: Final = 60_000
MEMORY_BYTES: Final = 4 * 1024**3
_AT_ONCE: Final = 2_000
_SPAWN: Final = multiprocessing.get_context("spawn")


class Grid:
    """A running grid, and what is registered with it."""

    def __init__(self, redis_url: str, deployment: str, shape: GridShape, *, kind: str) -> None:
        self.redis_url = redis_url
        self.deployment = deployment
        self.shape = shape
        self.kind = kind
        self.pids: tuple[int, ...] = ()
        """Of the cells, in their order; only where each is a process of its own."""
        self._layer = RedisEventLayer(redis_url, deployment)
        self._held: dict[Collections, int] = {}
        self._added = 0
        self._experiments = 0
        self._written = 0

    @property
    def name(self) -> str:
        return f"{self.shape.query_partitions}x{self.shape.write_partitions}"

    @property
    def held(self) -> int:
        """Background queries, and what was added to them."""
        return sum(self._held.values()) + self._added

    def hold(self, count: int, collections: Collections, *, timeout_s: float = 600) -> float:
        """Have exactly `count` background queries, all in these collections; returns the seconds it took."""
        if self._held == {collections: count}:
            return 0.0
        begun_s = time.monotonic()
        for other, held in self._held.items():
            if other != collections:
                self._cancel(range(held), other)
        held = self._held.get(collections, 0)
        if held > count:
            self._cancel(range(count, held), collections)
        else:
            self._register(range(held, count), collections)
        self._held = {collections: count}
        self._until(count, timeout_s)
        return time.monotonic() - begun_s

    def measure_with(self, count: int, collections: Collections) -> int:
        """Register the queries that another experiment's writes will match; returns its number."""
        self._experiments += 1
        first = workload.measured_number(self._experiments, 0)
        self._register(range(first, first + count), collections)
        self._until(self.held + count, 60)
        return self._experiments

    def forget_measured(self, experiment: int, count: int, collections: Collections) -> None:
        """Cancel the queries that have not fired: a query whose notification came too late would stay."""
        first = workload.measured_number(experiment, 0)
        self._cancel(range(first, first + count), collections)

    def settle(self, writes: int, *, timeout_s: float = 60) -> None:
        """Wait until every cell has worked off these writes too: what is still queued would burden the next experiment."""
        self._written += writes
        wanted = self._written * self.shape.query_partitions

        def settled() -> bool:
            return sum(stats.writes for stats in cell_stats(self._layer, self.deployment)) >= wanted

        try:
            harness.until(settled, timeout_s=timeout_s, every_s=0.1)
        except TimeoutError:
            print(f"{self.name}: still behind after {timeout_s:.0f} s", flush=True)

    def add(self, registrations: Iterable[tuple[str, bytes]], count: int) -> None:
        """Register these besides what is held, and wait until every cell has its part: pairs of query id and registration."""
        self._send(registrations)
        self._added += count
        self._until(self.held, 60)

    def memory_bytes(self) -> int:
        """Of all cells."""
        return sum(stats.rss_bytes for stats in cell_stats(self._layer, self.deployment))

    def close(self) -> None:
        self._layer.close()

    def tick(self) -> None:
        """Without ingest nobody else tells the cells where time begins."""
        for part in range(self.shape.write_partitions):
            self._layer.append(streams.writes(self.deployment, part), [workload.tick()])

    def _register(self, numbers: range, collections: Collections) -> None:
        since = workload.now_version()
        self._send(
            (workload.query_id(number, collections), workload.registration(number, collections, since=since))
            for number in numbers
        )

    def _send(self, registrations: Iterable[tuple[str, bytes]]) -> None:
        self.tick()
        partitions = self.shape.query_partitions
        batches: list[list[bytes]] = [[] for _ in range(partitions)]
        for query, payload in registrations:
            batch = batches[query_partition(query, partitions)]
            batch.append(payload)
            if len(batch) >= _AT_ONCE:
                self._flush(batches)
        self._flush(batches)

    def _cancel(self, numbers: range, collections: Collections) -> None:
        for first in range(numbers.start, numbers.stop, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, numbers.stop))
            payloads = workload.cancellations(some, collections)
            for part in range(self.shape.query_partitions):
                self._layer.append(streams.queries(self.deployment, part), payloads)

    def _flush(self, batches: list[list[bytes]]) -> None:
        for part, batch in enumerate(batches):
            self._layer.append(streams.queries(self.deployment, part), batch)
            batch.clear()

    def _until(self, registrations: int, timeout_s: float) -> None:
        """Every cell holds its part: each registration lies in all cells of its row."""
        wanted = registrations * self.shape.write_partitions
        begun_ms = int(time.time() * 1000)

        def held() -> bool:
            stats = cell_stats(self._layer, self.deployment)
            return (
                len(stats) == len(self.shape.cells)
                and all(stat.at_ms >= begun_ms for stat in stats)
                and sum(stat.registrations for stat in stats) == wanted
            )

        harness.until(held, timeout_s=timeout_s, every_s=0.1)


@contextmanager
def on_spark(folder: Path, redis_url: str, mongo_url: str, deployment: str, shape: GridShape) -> Iterator[Grid]:
    """Cells, stages and ingest as tasks of a Spark job in two executors."""
    with ExitStack() as stack:
        folder.mkdir()
        server = programs.grid_server(
            folder,
            deployment=deployment,
            redis_url=redis_url,
            mongo_url=mongo_url,
            shape=shape,
            settings={"QUAESTOR_NODE_MEMORY_BYTES": str(MEMORY_BYTES)},
        )
        stack.callback(reaper.stop_tree, server)
        server.launch()
        server.wait_ready(timeout_s=120)
        grid = Grid(redis_url, deployment, shape, kind="spark")
        stack.callback(grid.close)
        yield grid


@contextmanager
def as_processes(redis_url: str, deployment: str, shape: GridShape) -> Iterator[Grid]:
    """One Python process a cell, running the same loop with the same settings as a Spark task does."""
    processes = [
        _SPAWN.Process(target=_cell, args=(redis_url, deployment, shape, cell), daemon=True) for cell in shape.cells
    ]
    for process in processes:
        process.start()
    grid = Grid(redis_url, deployment, shape, kind="processes")
    grid.pids = tuple(process.pid for process in processes if process.pid is not None)
    try:
        grid.tick()
        yield grid
    finally:
        grid.close()
        for process in processes:
            process.terminate()
        join(processes)


def cell_loop(
    layer: RedisEventLayer,
    deployment: str,
    shape: GridShape,
    cell: Cell,
    *,
    retention_ms: int = RETENTION_MS,
    **limits: int,
) -> CellLoop:
    """A cell's loop with the bounds that it has on Spark. limits: see MatchingNode."""
    node = MatchingNode(
        cell,
        shape,
        retention_ms=retention_ms,
        freeze_every=FREEZE_EVERY,
        limits=NodeLimits(max_registrations=MOST_REGISTRATIONS, max_bytes=MEMORY_BYTES, **limits),
    )
    return CellLoop(
        node,
        layer,
        cell,
        shape,
        LoopContext(deployment=deployment, heartbeat_ms=HEARTBEAT_MS, retention_ms=retention_ms),
    )


def join(processes: Iterable[Any]) -> None:
    """Wait for processes that received the command to end; kill each that has not ended within 10 s."""
    for process in processes:
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _cell(redis_url: str, deployment: str, shape: GridShape, cell: Cell) -> None:
    stop, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    profiled: Any = os.environ.get("QUAESTOR_PROFILE_CELL")
    with closing(RedisEventLayer(redis_url, deployment)) as layer:
        loop = cell_loop(layer, deployment, shape, cell)
        if profiled:
            import cProfile

            profile = cProfile.Profile()
            profile.runcall(loop.run, stop)
            profile.dump_stats(profiled)
        else:
            loop.run(stop)
    sys.stdout.flush()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
