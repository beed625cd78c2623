"""Write acknowledged -> entry evicted, and -> Varnish purged, at 10, 100 and 1,000 writes/s, beside the bare change stream.

The whole pipeline on real parts: mongod, Valkey, a 2 x 2 grid on Spark, one uvicorn worker, Varnish. Every write changes one
cached response of its own, so nothing is re-cached while it is measured. Writers and the bare change stream that they are
compared with are processes of their own with plain pymongo; all clocks are this machine's.
Aim: p99 within 3x of the bare change stream's. Run: python -m benchmarks.invalidation_latency

With `--concern 1` writers do not wait for the journal, and ingest asks for its flushes (`journal_flush_ms`; with `0` it
does not). The bare change stream beside it gains by the flushes as well. Aim: p99 at most 10 ms.

A full garbage collection stops the app's process for 100 ms and more, and one of them is the p99 of a load; so the middleware
takes what the app has loaded at its start out of them (docs/observability.md). With `--unfrozen` it does not; results go into a
file of their own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import httpx
import pymongo
from fastapi import FastAPI, Response
from pymongo import AsyncMongoClient
from pymongo.write_concern import WriteConcern

from benchmarks import harness
from quaestor import Quaestor
from quaestor.cdn_adapters import VarnishAdapter
from quaestor.middleware import QuaestorMiddleware
from quaestor.observability.hooks import InvalidationDone
from quaestor.testing import programs, reaper, servers

DATABASE = "invalidation_latency"
LOADS = ((10, 200), (100, 1_000), (1_000, 5_000))
"""(writes per second, writes)"""
CONCERNS: dict[str, str | int] = {"majority": "majority", "1": 1}
WRITERS = 8
"""Connections that write side by side: one waits for the journal most of the time."""


def app() -> FastAPI:
    """One response per item; what was invalidated, and when, at /observed."""
    application = FastAPI()
    # No verification: on probation a route's first entries end before their write comes.
    quaestor = Quaestor.from_env(ttl_min_ms=3_600_000, verification=False)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    observed: list[InvalidationDone] = []
    quaestor.on_invalidated(observed.append)
    application.add_middleware(
        QuaestorMiddleware, quaestor=quaestor, cdn=[VarnishAdapter(os.environ["BENCHMARK_VARNISH"])]
    )

    @application.get("/items/{key}")
    async def item(key: int) -> dict[str, Any] | None:
        return await client[DATABASE].items.find_one({"_id": key})

    @application.get("/observed")
    async def everything(response: Response) -> list[tuple[int, int, int, int | None]]:
        response.headers["cache-control"] = "no-store"
        return [
            (
                int(key.rsplit("/", 1)[1].split("?")[0]),
                observation.refused_at_ms,
                observation.evicted_at_ms,
                observation.purged_at_ms,
            )
            for observation in observed
            for key in observation.keys
        ]

    return application


def write(url: str, first: int, count: int, rate_hz: float, concern: str, results: Queue[dict[int, float]]) -> None:
    """Paced writes, one per item; reports when each was acknowledged (ms since the epoch)."""
    acknowledged: dict[int, float] = {}
    with pymongo.MongoClient[dict[str, Any]](url) as client, ThreadPoolExecutor(WRITERS) as pool:
        items = client[DATABASE].get_collection("items", write_concern=WriteConcern(w=CONCERNS[concern]))
        began = time.perf_counter()

        def one(n: int) -> None:
            delay = began + n / rate_hz - time.perf_counter()
            if delay > 0:
                time.sleep(delay)
            items.update_one({"_id": first + n}, {"$inc": {"n": 1}})
            acknowledged[first + n] = time.time_ns() / 1e6

        list(pool.map(one, range(count)))
        acknowledged[-1] = count / (time.perf_counter() - began)
    results.put(acknowledged)


def listen(url: str, count: int, ready: Any, results: Queue[dict[int, float]]) -> None:
    """The bare change stream: when each item's event arrived (ms since the epoch)."""
    seen: dict[int, float] = {}
    with pymongo.MongoClient[dict[str, Any]](url) as client, client[DATABASE].items.watch() as stream:
        ready.set()
        for event in stream:
            seen[event["documentKey"]["_id"]] = time.time_ns() / 1e6
            if len(seen) == count:
                break
    results.put(seen)


def warm(front: str, first: int, count: int) -> None:
    """Every item in the app's cache and in Varnish."""
    with httpx.Client(base_url=front, limits=httpx.Limits(max_connections=8)) as client, ThreadPoolExecutor(8) as pool:

        def one(key: int) -> None:
            def cached() -> bool:
                return client.get(f"/items/{key}").headers.get("x-varnish-cache") == "hit"

            harness.until(cached, timeout_s=60)

        list(pool.map(one, range(first, first + count)))


def measure(stack: dict[str, str], first: int, rate_hz: int, count: int, concern: str) -> dict[str, Any]:
    warm(stack["varnish"], first, count)
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    acknowledged_q: Queue[dict[int, float]] = spawn.Queue()
    seen_q: Queue[dict[int, float]] = spawn.Queue()
    listener = spawn.Process(target=listen, args=(stack["mongo"], count, ready, seen_q))
    writer = spawn.Process(target=write, args=(stack["mongo"], first, count, rate_hz, concern, acknowledged_q))
    listener.start()
    ready.wait(30)
    writer.start()
    acknowledged, seen = acknowledged_q.get(timeout=300), seen_q.get(timeout=60)
    writer.join()
    listener.join()
    achieved_hz = acknowledged.pop(-1)
    mine = range(first, first + count)

    def observed() -> dict[int, tuple[int, int, int | None]]:
        rows = httpx.get(f"{stack['app']}/observed", timeout=30).json()
        return {key: (refused, evicted, purged) for key, refused, evicted, purged in rows if key in mine}

    harness.until(lambda: len(observed()) == count, timeout_s=60, every_s=0.5)
    observations = observed()

    def latencies(at: dict[int, float]) -> dict[str, float]:
        return harness.summary([at[key] - acknowledged[key] for key in mine])

    bare = latencies(seen)
    refused = latencies({key: observations[key][0] + 0.5 for key in mine})
    evicted = latencies({key: observations[key][1] + 0.5 for key in mine})
    purged = latencies({key: (observations[key][2] or 0) + 0.5 for key in mine})
    return {
        "writes_per_s_asked": rate_hz,
        "writes_per_s_achieved": round(achieved_hz, 1),
        "bare_change_stream": bare,
        "no_longer_served": refused,
        "evicted": evicted,
        "varnish_purged": purged,
        "no_longer_served_p99_over_bare": round(refused["p99_ms"] / bare["p99_ms"], 2),
        "evicted_p99_over_bare": round(evicted["p99_ms"] / bare["p99_ms"], 2),
        "purged_p99_over_bare": round(purged["p99_ms"] / bare["p99_ms"], 2),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concern", choices=sorted(CONCERNS), default="majority", help="what the writers wait for")
    parser.add_argument("--journal-flush-ms", type=int, help="default: 2 with --concern 1, otherwise 0")
    parser.add_argument("--unfrozen", action="store_true", help="with QUAESTOR_FREEZE_AT_START=0")
    parser.add_argument("--rates", type=int, nargs="+", choices=[rate for rate, _ in LOADS], help="default: all")
    parser.add_argument("--no-save", action="store_true", help="print only")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    loads = [load for load in LOADS if options.rates is None or load[0] in options.rates]
    flush_ms = options.journal_flush_ms
    if flush_ms is None:
        flush_ms = 2 if options.concern == "1" else 0
    with ExitStack() as stack:
        mongo = stack.enter_context(servers.running(servers.mongod_server, "mongod"))
        redis = stack.enter_context(servers.running(servers.redis_server, "valkey"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-")))
        folder.chmod(0o711)  # varnishd gives up root's rights, and has to find its VCL
        with pymongo.MongoClient[dict[str, Any]](mongo.url) as client:
            client[DATABASE].items.insert_many([{"_id": n, "n": 0} for n in range(sum(n for _, n in loads))])
        parts = [folder / name for name in ("grid", "app", "varnish")]
        for part in parts:
            part.mkdir()
        grid = programs.grid_server(
            parts[0],
            deployment=DATABASE,
            redis_url=redis.url,
            mongo_url=mongo.url,
            settings={"QUAESTOR_JOURNAL_FLUSH_MS": str(flush_ms)},
        )
        stack.callback(reaper.stop_tree, grid)
        grid.launch()
        grid.wait_ready(timeout_s=120)
        app_port, varnish_port = servers.free_port(), servers.free_port()
        varnish_url = f"http://{servers.HOST}:{varnish_port}"
        environment = {
            "MONGO_URL": mongo.url, "REDIS_URL": redis.url, "QUAESTOR_DEPLOYMENT": DATABASE, "BENCHMARK_VARNISH": varnish_url,
            "QUAESTOR_FREEZE_AT_START": "0" if options.unfrozen else "1",
        }  # fmt: skip
        stack.enter_context(
            harness.uvicorn(
                "benchmarks.invalidation_latency:app", environment=environment, path="/observed", port=app_port
            )
        )
        varnish = programs.varnish_before(parts[2], app_port=app_port, port=varnish_port)
        varnish.start()
        stack.callback(varnish.stop)
        urls = {"mongo": mongo.url, "app": f"http://{servers.HOST}:{app_port}", "varnish": varnish_url}
        latencies = []
        first = 0
        for rate_hz, count in loads:
            latencies.append(measure(urls, first, rate_hz, count, options.concern))
            print(latencies[-1], flush=True)
            first += count
    if options.no_save:
        return
    harness.save(
        "invalidation_latency"
        + ("" if options.concern == "majority" else f"_w{options.concern}")
        + ("_unfrozen" if options.unfrozen else ""),
        {
            "what": "ms from acknowledged write; 2 x 2 grid on Spark, Valkey, one app worker, Varnish, all on one machine",
            "resolution": "evictions and purges are stamped to 1 ms (0.5 ms is added); the change stream to 1 us",
            "writers_wait_for": options.concern,
            "journal_flush_ms": flush_ms,
            "app_frozen_at_its_start": not options.unfrozen,
            "loads": latencies,
            "aim": "p99 within 3x of the bare change stream's"
            if options.concern == "majority"
            else "p99 at most 10 ms",
        },
    )


if __name__ == "__main__":
    main()
