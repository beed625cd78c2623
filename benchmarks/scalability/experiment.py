"""One experiment, and the search for the load that a grid sustains."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import psutil

from benchmarks import harness
from benchmarks.scalability.client import Client, Outcome
from benchmarks.scalability.grids import Grid
from benchmarks.scalability.workload import Collections, Load

BOUNDS_MS: Final = (20, 30, 50, 100)
"""Bounds on the 99th percentile, as in the papers."""
_ACHIEVED: Final = 0.98
"""A client that does not get its writes out has not put the grid under this load."""

_ONE_COLLECTION: Final = Collections()

_TELLING: Final = 5_000
"""Number of queries registered at once to measure the time of one registration."""
_GUESSED_S: Final = 2e-4

Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how thoroughly to measure.

    seconds: of one experiment; at high rates fewer, but at least `least_seconds`. measured: notifications a experiment.
    attempts: at a load whose p99 is above the strictest bound, before the result is accepted. Other work on the machine makes
    an experiment worse, nothing makes it better. bisections: between the last load that held a bound and the first that did
    not. budget_s: for everything; reserve_s: kept of it for each grid that
    is still to come; what could be left out is when it is used up. factor: between rates. spreads: numbers of collections.
    """

    seconds: float
    least_seconds: float
    measured: int
    attempts: int
    bisections: int
    budget_s: float
    reserve_s: float
    factor: int
    spreads: tuple[int, ...]
    most_queries: int
    most_writes_hz: int

    def seconds_at(self, rate_hz: int) -> float:
        return min(self.seconds, max(self.least_seconds, 40_000 / rate_hz))


class Bench:
    """A grid, its client, and what is measured with them. Points are collected in `points`."""

    def __init__(
        self, grid: Grid, client: Client, effort: Effort, bare: dict[int, dict[str, float]], *, until_s: float
    ) -> None:
        """until_s: monotonic time from which on nothing is measured that could be left out."""
        self.points: list[Point] = []
        self._until_s = until_s
        self._registering_s = _GUESSED_S * grid.shape.write_partitions
        self._grid = grid
        self._client = client
        self._effort = effort
        self._bare = bare

    def point(
        self,
        *,
        queries: int,
        rate_hz: int,
        collections: Collections = _ONE_COLLECTION,
        instead: Connection | None = None,
        what: str = "",
    ) -> Point:
        """Measured once, or again while it misses the strictest bound; the best attempt is taken."""
        attempts = []
        for _ in range(self._effort.attempts):
            attempts.append(self._once(queries, rate_hz, collections, instead))
            if sustains(attempts[-1], BOUNDS_MS[0]) or self.late():
                break
        best = min(attempts, key=lambda point: (point["lost"], point["p99_ms"]))
        best |= {"attempts_p99_ms": [point["p99_ms"] for point in attempts]}
        if what:
            best["what"] = what
        self.points.append(best)
        print(f"{best['kind']} {best['grid']}: {best}", flush=True)
        return best

    def late(self, queries: int = 0) -> bool:
        """Whether time is up, or would be once so many queries are registered."""
        missing = max(0, queries - self._grid.held)
        return time.monotonic() + missing * self._registering_s > self._until_s

    def _once(self, queries: int, rate_hz: int, collections: Collections, instead: Connection | None) -> Point:
        grid, effort = self._grid, self._effort
        missing = queries - grid.held
        registering_s = grid.hold(queries, collections)
        if missing > _TELLING:
            self._registering_s = registering_s / missing
        experiment = grid.measure_with(effort.measured, collections)
        load = Load(
            experiment=experiment,
            rate_hz=rate_hz,
            seconds=effort.seconds_at(rate_hz),
            background=queries,
            write_partitions=grid.shape.write_partitions,
            collections=collections,
            measured=effort.measured,
        )
        with _others() as others:
            outcome = self._client.run(load, instead=instead)
        grid.settle(load.writes)
        grid.forget_measured(experiment, effort.measured, collections)
        return {
            "grid": grid.name,
            "kind": grid.kind,
            "queries": queries,
            "writes_per_s": rate_hz,
            "collections": collections.count,
            "achieved_writes_per_s": round(outcome.achieved_hz),
            **figures(outcome, self._bare_at(rate_hz)),
            "lost": outcome.lost,
            "cores_used_by_others": others[0],
            **({"registering_s": round(registering_s, 1)} if registering_s else {}),
        }

    def _bare_at(self, rate_hz: int) -> dict[str, float]:
        return self._bare[min(self._bare, key=lambda rate: abs(math.log(rate / rate_hz)))]

    def sustained_queries(self, *, rate_hz: int, least: int) -> dict[str, int]:
        """See _sustained. Stops early if more queries could not be registered in time."""
        return self._sustained(
            lambda queries: self.point(queries=queries, rate_hz=rate_hz),
            least,
            self._effort.most_queries,
            factor=10,
            queries_of=lambda queries: queries,
        )

    def sustained_writes(self, *, queries: int, least: int) -> dict[str, int]:
        """See _sustained."""
        return self._sustained(
            lambda rate_hz: self.point(queries=queries, rate_hz=rate_hz),
            least,
            self._effort.most_writes_hz,
            factor=self._effort.factor,
            queries_of=lambda _: 0,
        )

    def _sustained(
        self,
        measure: Callable[[int], Point],
        least: int,
        most: int,
        *,
        factor: int,
        queries_of: Callable[[int], int],
    ) -> dict[str, int]:
        """The largest load under which each bound held: multiply until all are missed, then bisect. 0: not even the least.
        "tried": the largest that was put to the test."""
        points: dict[int, Point] = {}
        load = least
        while True:
            points[load] = measure(load)
            following = min(load * factor, most)
            if load >= most or not sustains(points[load], BOUNDS_MS[-1]) or self.late(queries_of(following)):
                break
            load = following
        for bound in (BOUNDS_MS[0], BOUNDS_MS[-1]):
            for _ in range(self._effort.bisections):
                held = _largest(points, bound)
                missed = min((load for load in points if load > held), default=0)
                if not held or not missed or missed < 1.2 * held or self.late():
                    break
                middle = _round(math.sqrt(held * missed))
                points[middle] = measure(middle)
        return {f"{bound} ms": _largest(points, bound) for bound in BOUNDS_MS} | {"tried": max(points)}


def figures(outcome: Outcome, bare: dict[str, float]) -> dict[str, Any]:
    """As in the papers' Table 3, and as multiples of the bare round trip at the nearest rate."""
    latencies = outcome.latencies_ms or [math.inf]
    summary = (
        harness.summary(latencies)
        if outcome.latencies_ms
        else {"p50_ms": 1e9, "p99_ms": 1e9, "mean_ms": 1e9, "max_ms": 1e9}
    )
    return {
        "notifications": len(outcome.latencies_ms),
        "mean_ms": summary["mean_ms"],
        "sd_ms": round(statistics.pstdev(latencies), 3) if outcome.latencies_ms else 1e9,
        "p50_ms": summary["p50_ms"],
        "p99_ms": summary["p99_ms"],
        "max_ms": summary["max_ms"],
        "p50_over_bare": round(summary["p50_ms"] / bare["p50_ms"], 2),
        "p99_over_bare": round(summary["p99_ms"] / bare["p99_ms"], 2),
    }


def sustains(point: Point, bound_ms: int) -> bool:
    return bool(
        point["p99_ms"] <= bound_ms
        and not point["lost"]
        and point["achieved_writes_per_s"] >= _ACHIEVED * point["writes_per_s"]
    )


def _largest(points: dict[int, Point], bound_ms: int) -> int:
    return max((load for load, point in points.items() if sustains(point, bound_ms)), default=0)


def _round(load: float) -> int:
    """To two digits."""
    digits = max(0, int(math.log10(load)) - 1)
    return round(load / 10**digits) * 10**digits


@contextmanager
def _others() -> Iterator[list[float]]:
    """The list gets the cores that processes which are not ours kept busy meanwhile; -1: not known."""
    position = [-1.0]
    begun_s, machine_s, ours_s = time.monotonic(), _machine_s(), _ours_s()
    yield position
    took_s = time.monotonic() - begun_s
    position[0] = round(max(0.0, (_machine_s() - machine_s) - (_ours_s() - ours_s)) / max(took_s, 1e-3), 2)


def _machine_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _ours_s() -> float:
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def table(points: Sequence[Point], columns: Sequence[str]) -> str:
    """For people."""
    rows = [columns, *([str(point.get(column, "")) for column in columns] for point in points)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
