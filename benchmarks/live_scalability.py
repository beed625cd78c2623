"""Scalability of live queries: figures 4 and 5 and table 3 of the paper on InvaliDB, with results that are followed.

A real mongod, Valkey, and `quaestor grid` as processes. The grids have 1 x 1, 2 x 1 and 1 x 2 cells (query x write partitions).
One process follows all queries. Each insert enters the result of one query. Latency counts from the acknowledgement of an insert
until its event is there.

`queries`: the most followed queries at 300 writes/s (figure 4). `writes`: the most writes/s with 1,000 followed queries
(figure 5). A load is sustained if 95 % of the asked rate is reached, and the p99 stays below 100 ms. Loads double, and one step
between the last two is tried. `table_3`: latencies at 80 and 66 % of both sustained loads.

All parts share two cores, so more cells show the price of a partition, not its gain.
Run: python -m benchmarks.live_scalability [--shapes 1x1,2x1,1x2] [--no-save] (10 minutes)
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pymongo

from benchmarks import harness
from benchmarks.realtime_fig6 import of_grid
from benchmarks.setups.live_clients import most_open_files
from benchmarks.setups.live_grid import Child, Deployment, follower, paced_inserts, running_databases, running_grid

DEPLOYMENT: Final = "live_scalability"
FIXED_QUERIES: Final = 1_000
FIXED_HZ: Final = 300
LEAST_QUERIES: Final = 1_000
LEAST_HZ: Final = 250
MOST_QUERIES: Final = 64_000
MOST_HZ: Final = 8_000
SECONDS: Final = 5
BOUND_MS: Final = 100.0
ACHIEVED: Final = 0.95
SHARES: Final = (0.8, 0.66)

Load = tuple[int, int]
"""Number of followed queries, and writes a second."""


class Experiments:
    """Experiments with one grid.

    seconds: length of each.
    points: all of them.
    """

    def __init__(self, items: Any, reader: Child, writer: Child, *, seconds: float) -> None:
        self._items = items
        self._reader = reader
        self._writer = writer
        self._seconds = seconds
        self.points: list[dict[str, Any]] = []

    async def measure(self, load: Load) -> dict[str, Any]:
        """Return the figures under a load, and whether the grid sustains it."""
        queries, rate_hz = load
        self._items.delete_many({})
        writes = round(rate_hz * self._seconds)
        try:
            latencies_ms, achieved_hz = await of_grid(self._reader, self._writer, (queries, writes, rate_hz))
        except TimeoutError:
            return self._noted({"queries": queries, "writes_per_s": rate_hz, "sustained": False, "lost": True})
        latency = harness.summary(latencies_ms)
        return self._noted(
            {
                "queries": queries,
                "writes_per_s": rate_hz,
                "achieved_writes_per_s": round(achieved_hz),
                "latency": latency,
                "sustained": latency["p99_ms"] <= BOUND_MS and achieved_hz >= ACHIEVED * rate_hz,
            }
        )

    def _noted(self, point: dict[str, Any]) -> dict[str, Any]:
        self.points.append(point)
        print(point, flush=True)
        return point

    async def most(self, load_of: Callable[[int], Load], *, least: int, limit: int) -> int:
        """Return the largest sustained number. 0: not even the least one; `limit` ends the search."""
        sustained, number = 0, least
        while number <= limit and (await self.measure(load_of(number)))["sustained"]:
            sustained, number = number, 2 * number
        between = sustained * 3 // 2
        if sustained and between <= limit and (await self.measure(load_of(between)))["sustained"]:
            return between
        return sustained


async def of_shape(experiments: Experiments, *, limits: Load) -> dict[str, Any]:
    """Return the figures of one grid. limits: loads that end the searches."""
    await experiments.measure((LEAST_QUERIES, LEAST_HZ))  # warms up
    experiments.points.clear()
    queries = await experiments.most(lambda count: (count, FIXED_HZ), least=LEAST_QUERIES, limit=limits[0])
    rate_hz = await experiments.most(lambda hz: (FIXED_QUERIES, hz), least=LEAST_HZ, limit=limits[1])
    table = [
        await experiments.measure(load)
        for share in SHARES
        for load in ((round(queries * share), FIXED_HZ), (FIXED_QUERIES, round(rate_hz * share)))
        if all(load)
    ]
    return {"queries": queries, "writes_per_s": rate_hz, "table_3": table, "points": experiments.points}


async def measured(
    mongo_url: str,
    redis_url: str,
    folder: Path,
    *,
    shapes: list[tuple[int, int]],
    seconds: float = SECONDS,
    limits: Load = (MOST_QUERIES, MOST_HZ),
) -> dict[str, Any]:
    """Return the figures of all grids."""
    result: dict[str, Any] = {}
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        for shape in shapes:
            name = f"{shape[0]}x{shape[1]}"
            deployment = Deployment(mongo_url=mongo_url, redis_url=redis_url, name=f"{DEPLOYMENT}_{name}")
            items = client[deployment.name].items
            items.create_index("k")
            with ExitStack() as stack:
                stack.enter_context(running_grid(folder / name, deployment, shape))
                children = Child(follower, deployment), Child(paced_inserts, deployment)
                for child in children:
                    stack.callback(child.close)
                result[name] = await of_shape(Experiments(items, *children, seconds=seconds), limits=limits)
            client.drop_database(deployment.name)
    return {"seconds": seconds, "bound_p99_ms": BOUND_MS, "shapes": result}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--shapes", default="1x1,2x1,1x2")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    most_open_files()
    shapes = [
        (int(queries), int(writes)) for queries, _, writes in (name.partition("x") for name in given.shapes.split(","))
    ]
    with running_databases() as (mongo_url, redis_url, folder):
        result = asyncio.run(measured(mongo_url, redis_url, folder, shapes=shapes))
    harness.report("live_scalability", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
