"""Latency and throughput of query caching: uncached, with a CDN, with caching clients besides (Fig. 5.8 of Wingerath's thesis).

Real parts on one machine, distance by delaying proxies: 150 ms to the origin, of which 4 ms to the CDN; purges take the 146
ms too. A real mongod, the application in one process, Valkey and a 1 x 1 grid on Spark, Varnish. Closed loop, as in the
source: each connection waits for its answer and asks again. Connections belong to ten client machines, which are one process
here. The source's mix: 1 % writes (inserts, updates, deletes), 49.5 % reads of records, 49.5 % queries with 10 records each
at first; collections, records and queries by Zipf.

Differences from the source. A tenth of its records, and everything is asked for once before it counts: the source's runs were
long enough to be warm by themselves. Δ is 10 s and not 1, because this client keeps next to nothing below about 4 s
(docs/python_client.md). Everything shares one machine; the result names parts without processor time left ("limited_by"). The
load should not be such a part. Its network is therefore the benchmark's own (benchmarks/query_caching/network.py): httpx's
takes ten times the processor time for an answer. The client's code handles the answer.

An answer is stale if it does not show a write that was acknowledged before the request. Beside each figure stands the
simulator's prediction. The simulator uses the estimator of production, the distances, and service times without load
(benchmarks/query_caching/prediction.py).
Aims: full at least 30x lower mean latency and 11x the throughput of uncached, CDN only 7x and 5x; the simulator's hit rates
within 1 point, its p50 and p99 within 10 %.
Result: benchmarks/results/quaestor_fig58.json, .md and .svg.
Run: python -m benchmarks.quaestor_fig58 [--connections 10 20 40 80] [--seconds 15] [--settle 10] [--delta 10] [--embedded]
[--no-save] (9 minutes)
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import uvloop

from benchmarks import harness
from benchmarks.query_caching import figures, prediction, report, service_times, setups
from benchmarks.query_caching.app import fill
from benchmarks.query_caching.load import Load, Phase, warm
from benchmarks.query_caching.prediction import Step
from benchmarks.query_caching.service_times import ServiceTimes, spare_reads
from quaestor.testing import reaper, servers

WHAT = (
    "Closed loop: each connection waits for its answer and asks again; 1 % writes, 49.5 % reads of records, 49.5 % queries; one "
    "application process, one process with all clients."
)


async def measured(
    stack: setups.Stack, setup: str, steps: Sequence[Step], delta_s: int
) -> tuple[ServiceTimes, float, list[Phase]]:
    """Service times, how long warming took (s), and each step's phase, of a set-up that runs."""
    kept_s = float(delta_s) if setup == "full" else None
    warm_s = 0.0
    if setup == "uncached":
        times = await service_times.of_uncached(stack.url)
    else:
        warm_s = await warm(stack.url, spare_reads())
        say(f"{setup}: warm after {warm_s:.0f} s")
        times = await service_times.of_cached(stack.url, delta_s=kept_s)
    say(f"{setup}: service times {times.report()}")
    phases = []
    async with Load(stack.url, delta_s=kept_s, used_s=stack.meter().read_s) as load:
        for step in steps:
            phases.append(await load.phase(step.seed, step.connections, settle_s=step.settle_s, seconds=step.seconds))
            say(f"{setup}, {step.connections} connections: {len(phases[-1].reads):,} reads counted")
    return times, warm_s, phases


def one_setup(
    mongod: servers.Server, setup: str, steps: Sequence[Step], *, grid: bool, delta_s: int
) -> tuple[ServiceTimes, list[dict[str, Any]]]:
    """Service times and figures of a set-up, with their predictions."""
    say(f"{setup}: starting")
    fill(mongod.url)
    with setups.running(setup, mongod, grid=grid, delta_s=delta_s) as stack:
        times, warm_s, phases = uvloop.run(measured(stack, setup, steps, delta_s))
    rows = [figures.row(phase, cores=os.cpu_count() or 1) for phase in phases]
    say(f"{setup}: simulating")
    if setup == "uncached":
        predicted = prediction.uncached(times, steps)
    else:
        predicted = prediction.cached(times, steps, browsers=setup == "full", delta_s=delta_s, warm_s=warm_s)
    for row, said in zip(rows, predicted, strict=True):
        row |= {"simulator": said, "simulator_off_by": figures.beside(row, said)}
        say(f"{setup}: {row}")
    return times, rows


def compared(
    connections: Sequence[int], seconds: float, settle_s: float, delta_s: int, *, grid: bool
) -> dict[str, Any]:
    """All set-ups, one after the other, and how they compare."""
    steps = [Step(str(count), count, settle_s, seconds) for count in connections]
    rows: dict[str, list[dict[str, Any]]] = {}
    times: dict[str, ServiceTimes] = {}
    with servers.running(servers.mongod_server, "mongod") as mongod:
        for setup in setups.SETUPS:
            times[setup], rows[setup] = one_setup(mongod, setup, steps, grid=grid, delta_s=delta_s)
    return {
        "what": WHAT,
        "beside_the_app": "Valkey and a 1 x 1 grid on Spark"
        if grid
        else "Everything of Quaestor in the application's process",
        "cores": os.cpu_count(),
        "delta_s": delta_s,
        "seconds": seconds,
        "settle_s": settle_s,
        "aims": figures.AIMS,
        "over_uncached": figures.over_uncached(rows),
        "service_times": {setup: step_times.report() for setup, step_times in times.items()},
        "setups": rows,
    }


_BEGUN_S = time.monotonic()


def say(text: str) -> None:
    """Show progress."""
    print(f"{time.monotonic() - _BEGUN_S:6.0f} s  {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure, compare, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[10, 20, 40, 80])
    parser.add_argument("--seconds", type=float, default=15.0, help="that are counted, with each number of connections")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before that")
    parser.add_argument("--delta", type=int, default=10, help="age in s of a Cache Sketch that clients rely on")
    parser.add_argument("--embedded", action="store_true", help="without Valkey and Spark")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    reaper.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        result = compared(
            options.connections, options.seconds, options.settle, options.delta, grid=not options.embedded
        )
    finally:
        reaper.sweep()
    if options.no_save:
        print(report.text(result))
        return
    path = harness.save("quaestor_fig58", result)
    path.with_suffix(".md").write_text(report.text(result))
    with suppress(ImportError):
        report.draw(path.with_suffix(".svg"), result)


if __name__ == "__main__":
    main()
