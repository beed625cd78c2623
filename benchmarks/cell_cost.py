"""What a write costs one cell of the grid, by its shape: the scaling in two dimensions, on a machine with fewer cores than cells.

How many writes a grid sustains depends on the machine's cores; the CPU time that a write costs a cell does not. So every shape
gets the same load, far below what the machine can do, and what is measured is each cell's own CPU time (a process of its own,
its beginning and its idle time taken off). Two loads: ranges, which an index finds, so that a write costs a cell the same
whatever its number of queries is; and besides them queries that no index finds, all of which are tried.

The model, with w writes/s to the whole grid, u of the queries without an index, Q query and W write partitions:

    CPU seconds a second of one cell = w / W * (read + tried * u / Q)

Fitted by least squares; its residuals are in the result. At low rates a cell wakes up for every write, which costs more than the
write: the model leaves that out, so its residuals are large there. What it says of larger grids is a calculation, and says so.
Run: python -m benchmarks.cell_cost (4 minutes)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import psutil
import redis

from benchmarks import harness
from benchmarks.scalability import grids, workload
from benchmarks.scalability.client import Client, client
from benchmarks.scalability.grids import Grid
from benchmarks.scalability.workload import Collections, Load
from quaestor.demo import servers
from quaestor.model import GridShape

SHAPES: Final = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (4, 4))
"""Query partitions, write partitions."""
QUERIES: Final = 10_000
UNINDEXED: Final = 1_000
RANGES_HZ: Final = 2_000
UNINDEXED_HZ: Final = 200
SECONDS: Final = 5.0
IDLE_S: Final = 3.0
MEASURED: Final = 100
ROUNDS: Final = 2
_CALCULATED: Final = ((1, 16), (16, 1), (8, 8))
_SUSTAINED: Final = 0.7
"""Of a core: what a cell may use in the calculation, so that its queue does not grow."""
_ONE: Final = Collections()
Point = dict[str, Any]


def cpu_s(pids: Sequence[int]) -> list[float]:
    """CPU seconds that each of these has used so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return [float(one.user + one.system) for one in times]


def unindexed() -> Iterator[tuple[str, bytes]]:
    """Queries that no index finds and no write matches, with their ids."""
    since = workload.now_version()
    for number in range(QUERIES, QUERIES + UNINDEXED):
        condition: dict[str, object] = {"s0": {"$regex": f"[0-9]{number}"}}
        yield (
            workload.query_id(number, _ONE),
            workload.registration(number, _ONE, since=since, condition=condition),
        )


def measure(grid: Grid, measuring: Client, *, rate_hz: int, idle: Sequence[float], with_unindexed: int) -> Point:
    """CPU time of every cell under one load."""
    experiment = grid.measure_with(MEASURED, _ONE)
    load = Load(
        experiment=experiment,
        rate_hz=rate_hz,
        seconds=SECONDS,
        background=QUERIES,
        write_partitions=grid.shape.write_partitions,
        collections=_ONE,
        measured=MEASURED,
    )
    before, begun_s = cpu_s(grid.pids), time.monotonic()
    outcome = measuring.run(load)
    grid.settle(load.writes)
    took_s = time.monotonic() - begun_s
    grid.forget_measured(experiment, MEASURED, _ONE)
    used = [after - was - took_s * unused for after, was, unused in zip(cpu_s(grid.pids), before, idle, strict=True)]
    return {
        "grid": grid.name,
        "writes_per_s": rate_hz,
        "achieved_writes_per_s": round(outcome.achieved_hz),
        "queries_without_index": with_unindexed,
        "lost": outcome.lost,
        "us_per_write_of_the_grid": {
            "mean_cell": round(statistics.mean(used) / load.writes * 1e6, 2),
            "dearest_cell": round(max(used) / load.writes * 1e6, 2),
            "all_cells": round(sum(used) / load.writes * 1e6, 2),
        },
    }


def of_shape(redis_url: str, shape: GridShape) -> list[Point]:
    """Both loads on a new grid of one shape, each several times; the cheapest round counts, because other work on the machine
    makes one dearer and nothing makes it cheaper."""
    deployment = f"cost-{shape.query_partitions}x{shape.write_partitions}"
    with grids.as_processes(redis_url, deployment, shape) as grid, client(redis_url, deployment) as measuring:
        grid.hold(QUERIES, _ONE)
        before = cpu_s(grid.pids)
        time.sleep(IDLE_S)
        idle = [(after - was) / IDLE_S for after, was in zip(cpu_s(grid.pids), before, strict=True)]
        points = []
        for count, rate_hz in ((0, RANGES_HZ), (UNINDEXED, UNINDEXED_HZ)):
            if count:
                grid.add(unindexed(), count)
            rounds = [measure(grid, measuring, rate_hz=rate_hz, idle=idle, with_unindexed=count) for _ in range(ROUNDS)]
            best = min(rounds, key=lambda point: float(point["us_per_write_of_the_grid"]["mean_cell"]))
            best["idle_cpu_share_of_a_cell"] = round(statistics.mean(idle), 4)
            points.append(best)
            print(best, flush=True)
        return points


def fit(points: Sequence[Point]) -> dict[str, Any]:
    """The model's two costs, and how far it is from each point."""
    rows, costs = [], []
    for point in points:
        queries, writes = map(int, point["grid"].split("x"))
        rows.append([1 / writes, point["queries_without_index"] / queries / writes])
        costs.append(point["us_per_write_of_the_grid"]["mean_cell"])
    # Relative errors count: a cell of a large grid has little to do.
    weights = 1 / np.array(costs)
    (read, tried), *_ = np.linalg.lstsq(np.array(rows) * weights[:, None], np.array(costs) * weights, rcond=None)
    calculated = np.array(rows) @ np.array([read, tried])
    return {
        "read_us": round(float(read), 2),
        "tried_us": round(float(tried), 4),
        "calculated_over_measured": [round(float(a / b), 3) for a, b in zip(calculated, costs, strict=True)],
        "writes_per_s_calculated": {
            f"{queries}x{writes}": {
                "ranges": round(_SUSTAINED * 1e6 * writes / read),
                f"and {UNINDEXED:,} without an index": round(
                    _SUSTAINED * 1e6 * writes / (read + tried * UNINDEXED / queries)
                ),
            }
            for queries, writes in ((1, 1), *_CALCULATED)
        },
        "calculated_with": f"a core for each cell, {_SUSTAINED} of it in use; Redis and ingest not counted",
    }


def main() -> None:
    """Measure every shape and save the result."""
    points: list[Point] = []
    with servers.running(partial(servers.redis_server, persistent=False), "valkey") as server:
        for queries, writes in SHAPES:
            points += of_shape(server.url, GridShape(query_partitions=queries, write_partitions=writes))
            with redis.Redis.from_url(server.url) as emptied:
                emptied.flushall()
    harness.save(
        "cell_cost",
        {
            "what": "CPU us of a cell for each write to the whole grid; cells as processes of their own, the same load for every "
            f"shape: {QUERIES:,} ranges at {RANGES_HZ:,} writes/s; and {UNINDEXED:,} queries without an index more at "
            f"{UNINDEXED_HZ} writes/s",
            "points": points,
            "model": fit(points),
        },
    )


if __name__ == "__main__":
    main()
