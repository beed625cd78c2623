"""Cost of a write for one cell of the grid, by the grid's shape: two-dimensional scaling, measured with fewer cores than cells.

How many writes a grid sustains depends on the machine's cores; the CPU time that its work costs a cell does not. The benchmark
first appends all work to the pipelines. Then each cell drains its part alone, as a separate process that runs the grid's own
loop.

Two views. Equal load per cell: queries grow with the query partitions, writes with the write partitions; what a cell uses
should not change. Equal load in all: the same queries and writes for every shape; what a cell uses should fall. There are two
kinds of queries, because they scale differently. An index finds ranges, so a write costs a cell the same for any number of
ranges. No index finds the queries of the second kind: the cell tries each of them. The model and its omissions:
benchmarks/scalability/cell_model.py.

One shape runs on Spark as well, to show that a Spark task uses what a drained process uses. Times are CPU times, the cheapest
of several rounds: other work on the machine makes one dearer and nothing makes it cheaper.
Result: benchmarks/results/cell_cost.json, .md and .svg. Run: python -m benchmarks.cell_cost (4 minutes)
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import psutil
import redis

from benchmarks import harness
from benchmarks.scalability import grids, plots, workload
from benchmarks.scalability.cell_model import cell_points, fitted
from benchmarks.scalability.cell_report import text
from benchmarks.scalability.drained import Drained, DrainedGrid, drained
from benchmarks.scalability.workload import Collections, Load
from quaestor.event_layer import streams
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.cell_processes import cell_pids
from quaestor.model import GridShape
from quaestor.testing import reaper, servers

PARTITIONS: Final = (1, 2, 4)
RANGES: Final = 1_000
UNINDEXED: Final = 200
"""Queries for each query partition."""
RANGES_WRITES: Final = 4_000
UNINDEXED_WRITES: Final = 500
"""Writes for each write partition: without, and with queries that no index finds."""
MATCHED: Final = 0.01
"""Of all writes."""
ROUNDS: Final = 2
ALONE: Final = 500
ON_SPARK: Final = (2, 2)
SPARK_ROUNDS: Final = 2
IDLE_S: Final = 3.0
SUSTAINED: Final = 0.7
"""Of a core: what a cell may use in the calculation, so that its queue does not grow."""
CALCULATED: Final = ((1, 1), (4, 4), (1, 16), (16, 1), (16, 16))
_ONE: Final = Collections()
_FITTED_UP_TO: Final = 2
Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The load of one grid.

    queries, writes: multiples of what one query and one write partition get where the load per cell is equal.
    """

    shape: GridShape
    queries: int
    writes: int

    @property
    def name(self) -> str:
        """Query x write partitions."""
        return f"{self.shape.query_partitions}x{self.shape.write_partitions}"

    @property
    def per_cell(self) -> bool:
        """Whether each cell has the load of the only cell of the smallest grid."""
        return (self.queries, self.writes) == (self.shape.query_partitions, self.shape.write_partitions)

    @property
    def in_all(self) -> bool:
        """Whether the grid has the load of the largest one."""
        return self.queries == self.writes == PARTITIONS[-1]


def works() -> list[Work]:
    """Every shape with both loads; those of the largest are the same."""
    work_sizes: dict[Work, None] = {}
    for queries in PARTITIONS:
        for writes in PARTITIONS:
            shape = GridShape(query_partitions=queries, write_partitions=writes)
            work_sizes[Work(shape=shape, queries=queries, writes=writes)] = None
            work_sizes[Work(shape=shape, queries=PARTITIONS[-1], writes=PARTITIONS[-1])] = None
    return list(work_sizes)


def ranges(first: int, number: int) -> Iterator[tuple[str, bytes]]:
    """The papers' queries with these numbers."""
    since = workload.now_version()
    for query_number in range(first, first + number):
        yield workload.query_id(query_number, _ONE), workload.registration(query_number, _ONE, since=since)


def unindexed(first: int, number: int) -> Iterator[tuple[str, bytes]]:
    """Queries that no index finds and no write matches."""
    since = workload.now_version()
    for query_number in range(first, first + number):
        # Characters of a kind only: where a match requires a text, the index would go by that.
        condition: dict[str, object] = {
            "s0": {"$regex": f"[0-9]{{{query_number % 60 + 1}}}[g-z]{{{query_number // 60 + 1}}}"}
        }
        yield (
            workload.query_id(query_number, _ONE),
            workload.registration(query_number, _ONE, since=since, condition=condition),
        )


def load_of(work: Work, experiment: int, *, with_unindexed: bool) -> Load:
    """The writes of one round."""
    writes = work.writes * (UNINDEXED_WRITES if with_unindexed else RANGES_WRITES)
    return Load(
        experiment=experiment,
        rate_hz=writes,
        seconds=1,
        background=work.queries * RANGES,
        write_partitions=work.shape.write_partitions,
        collections=_ONE,
        measured=int(writes * MATCHED),
    )


def measured_queries(load: Load) -> Iterator[tuple[str, bytes]]:
    """The queries that a load's writes match, once each."""
    return ranges(workload.measured_number(load.experiment, 0), load.measured)


def cheapest(rounds: Sequence[Sequence[Drained]]) -> list[Drained]:
    """For each cell, the round with the least time a write, scaled to the cell's average number of writes a round."""
    samples = []
    for cell in zip(*rounds, strict=True):
        best = min(cell, key=lambda sample: sample.cpu_s / sample.entries)
        factor = statistics.mean(sample.entries for sample in cell) / best.entries
        samples.append(
            replace(
                best,
                entries=round(best.entries * factor),
                cpu_s=best.cpu_s * factor,
                tried=best.tried * factor,
            )
        )
    return samples


def point_of(work: Work, cells: Sequence[Drained], *, unindexed_in_all: int) -> Point:
    """One row of the result."""
    of_write = [sample.cpu_s / sample.entries * 1e6 for sample in cells]
    batch = work.writes * (UNINDEXED_WRITES if unindexed_in_all else RANGES_WRITES)
    return {
        "grid": work.name,
        "equal_load_per_cell": work.per_cell,
        "equal_load_in_all": work.in_all,
        "ranges": work.queries * RANGES,
        "queries_without_index": unindexed_in_all,
        "writes": batch,
        "us_per_write_of_a_cell": {
            "mean": round(statistics.mean(of_write), 2),
            "dearest_cell": round(max(of_write), 2),
            "tried": round(statistics.mean(sample.tried / sample.entries for sample in cells), 2),
        },
        "us_of_a_cell_per_write_of_the_grid": round(statistics.mean(sample.cpu_s for sample in cells) / batch * 1e6, 2),
        "us_of_all_cells_per_write_of_the_grid": round(sum(sample.cpu_s for sample in cells) / batch * 1e6, 2),
        "busiest_over_mean_cell": round(
            max(sample.cpu_s for sample in cells) / statistics.mean(sample.cpu_s for sample in cells), 3
        ),
        "cells": [
            {
                "cell": f"{sample.cell.query_partition},{sample.cell.write_partition}",
                "us_per_write": round(sample.cpu_s / sample.entries * 1e6, 3),
                "tried_per_write": round(sample.tried / sample.entries, 3),
                "writes": sample.entries,
                "registrations": sample.held,
            }
            for sample in cells
        ],
    }


def rounds_of(grid: DrainedGrid, work: Work, experiments: Iterator[int], *, with_unindexed: bool) -> list[Drained]:
    """Several rounds of one load, of each cell the cheapest."""
    rounds = []
    for _ in range(ROUNDS):
        load = load_of(work, next(experiments), with_unindexed=with_unindexed)
        grid.hold(measured_queries(load))
        grid.publish(load)
        rounds.append(grid.drain())
    return cheapest(rounds)


def measure(redis_url: str, work: Work, deployment: str) -> tuple[list[Point], float]:
    """Both kinds of queries on a new grid; and what registering a range cost a cell, in CPU microseconds."""
    experiments = count(1)
    number = work.queries * UNINDEXED
    with drained(redis_url, deployment, work.shape) as grid:
        filled = grid.hold(ranges(0, work.queries * RANGES))
        points = [point_of(work, rounds_of(grid, work, experiments, with_unindexed=False), unindexed_in_all=0)]
        grid.hold(unindexed(work.queries * RANGES, number))
        cells = rounds_of(grid, work, experiments, with_unindexed=True)
        points.append(point_of(work, cells, unindexed_in_all=number))
    for point in points:
        print({name: value for name, value in point.items() if name != "cells"}, flush=True)
    return points, statistics.mean(point.cpu_s / point.entries for point in filled) * 1e6


def alone(redis_url: str) -> float:
    """CPU microseconds of a write that wakes a cell for itself alone."""
    work = Work(shape=GridShape(query_partitions=1, write_partitions=1), queries=1, writes=1)
    with drained(redis_url, "alone", work.shape) as grid:
        grid.hold(ranges(0, RANGES))
        load = Load(
            experiment=1, rate_hz=ALONE, seconds=1, background=RANGES, write_partitions=1, collections=_ONE, measured=1
        )
        grid.hold(measured_queries(load))
        done = grid.one_at_a_time(load)
        return done.cpu_s / done.entries * 1e6


def on_spark(folder: Path, redis_url: str, mongo_url: str) -> list[Point]:
    """The same load in all on Spark: cells are tasks that run all the time, so what they use when idle is taken off."""
    queries, writes = ON_SPARK
    shape = GridShape(query_partitions=queries, write_partitions=writes)
    work = Work(shape=shape, queries=PARTITIONS[-1], writes=PARTITIONS[-1])
    experiments, points = count(1), []
    deployment = f"spark-{work.name}"
    with (
        grids.on_spark(folder / work.name, redis_url, mongo_url, deployment, shape) as grid,
        closing(RedisEventLayer(redis_url, deployment)) as layer,
    ):
        grid.hold(work.queries * RANGES, _ONE)
        pids = list(cell_pids(layer, deployment).values())
        before = _cpu_s(pids)
        time.sleep(IDLE_S)
        idle = [(after - was) / IDLE_S for after, was in zip(_cpu_s(pids), before, strict=True)]
        for number in (0, work.queries * UNINDEXED):
            if number:
                grid.add(unindexed(work.queries * RANGES, number), number)
            used = min(
                _burst(grid, layer, work, next(experiments), pids, idle, bool(number)) for _ in range(SPARK_ROUNDS)
            )
            points.append(
                {
                    "grid": work.name,
                    "ranges": work.queries * RANGES,
                    "queries_without_index": number,
                    "us_of_a_cell_per_write_of_the_grid": round(used, 2),
                    "idle_cpu_share_of_a_cell": round(statistics.mean(idle), 4),
                }
            )
            print(f"Spark: {points[-1]}", flush=True)
    return points


def _burst(
    grid: grids.Grid,
    layer: RedisEventLayer,
    work: Work,
    experiment: int,
    pids: Sequence[int],
    idle: Sequence[float],
    with_unindexed: bool,
) -> float:
    """CPU microseconds of a cell for each write of a load that is appended all at once."""
    load = load_of(work, experiment, with_unindexed=with_unindexed)
    # The grid counts experiments itself; its numbers are the same as long as nobody else asks.
    assert grid.measure_with(load.measured, _ONE) == experiment
    batches: list[list[bytes]] = [[] for _ in range(load.write_partitions)]
    for write in workload.writes(load, start_ms=int(time.time() * 1000)):
        batches[write.partition].append(write.payload)
    before, begun_s = _cpu_s(pids), time.monotonic()
    for part, batch in enumerate(batches):
        for first in range(0, len(batch), 1_000):
            layer.append(streams.writes(grid.deployment, part), batch[first : first + 1_000])
    grid.settle(load.writes)
    took_s = time.monotonic() - begun_s
    grid.forget_measured(experiment, load.measured, _ONE)
    used = [after - was - took_s * unused for after, was, unused in zip(_cpu_s(pids), before, idle, strict=True)]
    return statistics.mean(used) / load.writes * 1e6


def _cpu_s(pids: Sequence[int]) -> list[float]:
    """CPU seconds that each of these has used so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return [float(cpu_times.user + cpu_times.system) for cpu_times in times]


def modelled(points: Sequence[Point], *, registering_us: float, alone_us: float) -> dict[str, Any]:
    """The fit, how far it is from each cell, whether small grids tell of large ones, and what it says of larger ones."""
    cells = cell_points(points)
    model = fitted(cells)
    small = [point for point in cells if max(point.query_partitions, point.write_partitions) <= _FITTED_UP_TO]
    large = [point for point in cells if point not in small]
    from_small = fitted(small)
    most = PARTITIONS[-1] * UNINDEXED
    return {
        "what": "CPU us of a cell for each write that it reads: read_us + tried_us x predicates tried; it reads 1/W of the "
        "grid's writes and tries 1/Q of the queries without an index",
        "read_us": round(model.read_us, 2),
        "tried_us": round(model.tried_us, 4),
        "cells_fitted": len(cells),
        "calculated_over_measured": model.spread(cells),
        f"fitted_to_shapes_up_to_{_FITTED_UP_TO}x{_FITTED_UP_TO}_only": {
            "read_us": round(from_small.read_us, 2),
            "tried_us": round(from_small.tried_us, 4),
            "calculated_over_measured_of_the_larger": from_small.spread(large),
        },
        "registering_us_per_cell": round(registering_us, 1),
        "us_of_a_write_that_wakes_the_cell_alone": round(alone_us, 1),
        "writes_per_s_calculated": {
            f"{queries}x{writes}": {
                "ranges": round(model.writes_per_s(queries, writes, unindexed=0, share=SUSTAINED)),
                f"and {most:,} without an index": round(
                    model.writes_per_s(queries, writes, unindexed=most, share=SUSTAINED)
                ),
            }
            for queries, writes in CALCULATED
        },
        "calculated_with": f"a core for each cell, {SUSTAINED} of it in use; cells that always find work; Redis, ingest and the "
        "network not counted",
    }


def main() -> None:
    """Measure every shape, one on Spark, and save result, text and plot."""
    begun_s = time.monotonic()
    reaper.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    points: list[Point] = []
    registering: list[float] = []
    with ExitStack() as stack:
        stack.callback(reaper.sweep)
        server = stack.enter_context(servers.running(partial(servers.redis_server, persistent=False), "valkey"))
        for number, work in enumerate(works()):
            measured, registering_us = measure(server.url, work, f"cost-{number}")
            points += measured
            registering.append(registering_us)
            _forget(server.url)
        alone_us = alone(server.url)
        mongo = stack.enter_context(servers.running(servers.mongod_server, "mongod"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-")))
        spark = on_spark(folder, server.url, mongo.url)
    for row in spark:
        row["over_drained"] = _over_drained(row, points)
    result = {
        "what": "CPU us of a cell; writes appended beforehand, cells drain them one after the other, each a process of its own; "
        f"{100 * MATCHED:.0f} % of the writes match one query",
        "took_s": round(time.monotonic() - begun_s),
        "model": modelled(points, registering_us=statistics.median(registering), alone_us=alone_us),
        "on_spark": spark,
        "points": points,
    }
    harness.save("cell_cost", result).with_suffix(".md").write_text(text(result))
    plots.draw_cell_cost(harness.RESULTS, result)


def _over_drained(spark_point: Point, points: Sequence[Point]) -> float:
    """CPU time of a Spark task, as a multiple of the drained process's."""
    same = ("grid", "ranges", "queries_without_index")
    beside = next(
        point
        for point in points
        if point["equal_load_in_all"] and all(point[name] == spark_point[name] for name in same)
    )
    return round(
        float(spark_point["us_of_a_cell_per_write_of_the_grid"]) / float(beside["us_of_a_cell_per_write_of_the_grid"]),
        3,
    )


def _forget(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        server.flushall()


if __name__ == "__main__":
    main()
