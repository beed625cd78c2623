"""Hits and misses per second for a list of 100 objects, beside what else a FastAPI app could use for caching it.

Every contender serves the same list out of the same MongoDB through one uvicorn worker (uvloop, httptools). Each peer has its
own environment with pinned versions (benchmarks/peers/http/). wrk sends the load from outside; rounds are interleaved. A miss
is the first request for a URL; peers keep the answer for a fixed time, Quaestor until a write changes it. Quaestor's doorkeeper
refuses most of such answers, because they are not requested again; with `QUAESTOR_DOORKEEPER_SHARE=0` each of them is stored
and guarded. Quaestor exempts objects loaded at the start from garbage collection, and makes the collector run less often. An
app could do the same without Quaestor, so the uncached contender has a twin that does.
Run: python -m benchmarks.http_peers
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks import harness
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.rest import Access, QuaestorRouter
from quaestor.testing import programs, reaper, servers

PEERS = Path(__file__).parent / "peers" / "http"
NAMES = ("uncached", "fastapi_cache2", "cashews", "hishel", "starlette_caches", "fastapi_cachex")
OBJECTS = 100
DATABASE = "http_peers"
ROUNDS = 3
HIT_SECONDS, MISS_SECONDS = 3, 3
BARE = "bare ASGI bytes"
UNCACHED_EASED = "uncached, its collector eased"
EACH_STORED = {"QUAESTOR_DOORKEEPER_SHARE": "0"}


def _handlers(app: FastAPI, client: AsyncMongoClient[dict[str, Any]]) -> None:
    @app.get("/items")
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await client[DATABASE].items.find({"group": 1}).sort("_id", 1).limit(OBJECTS).to_list()


def line_app() -> FastAPI:
    """Quaestor by the one line. Entries in memory; with QUAESTOR_MEMORY_BYTES=1 every hit comes out of Redis."""
    quaestor = Quaestor.from_env()
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    _handlers(app, AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture]))
    return app


def ids_app() -> FastAPI:
    """The same records from the router, as a list of ids, put together from one kept record each at every request."""
    quaestor = Quaestor.from_env()
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    public = Access.public_read("items")
    app.include_router(
        QuaestorRouter(client[DATABASE], prefix="", access=public, quaestor=quaestor, representation="ids")
    )
    return app


def wrapped_app() -> Any:
    """Quaestor around the whole app, so that a hit costs nothing of what FastAPI does for every request."""
    quaestor = Quaestor.from_env()
    app = FastAPI()
    _handlers(app, AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture]))
    return QuaestorMiddleware(app, quaestor=quaestor)


@dataclass
class Contender:
    """One server and what was measured of it. cached: whether an answer came from its cache; None: it does not say."""

    name: str
    url: str
    path: str = "/items"
    cached: Callable[[httpx.Response], bool] | None = None
    hits: list[dict[str, float]] = field(default_factory=list)
    misses: list[dict[str, float]] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        return {
            kind: {key: round(median(run[key] for run in runs), 3) for key in runs[0]}
            for kind, runs in (("hits", self.hits), ("misses", self.misses))
            if runs
        }


def environment_of(name: str) -> Path:
    """The interpreter of a peer's environment; made and filled from its pinned list if need be."""
    pins = PEERS / f"{name}.txt"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "quaestor" / "benchmark-peers" / f"{name}-{digest}"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"installing {name} from {pins.name}", file=sys.stderr)
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder)], check=True)
        python = str(folder / "bin" / "python")
        subprocess.run([*uv, "pip", "install", "-q", "--python", python, "-r", str(pins)], check=True)
        ready.touch()
    return folder / "bin" / "python"


def _from_cache(response: httpx.Response) -> bool:
    return "; hit" in response.headers.get("cache-status", "")


class _Stage:
    """Servers side by side on one MongoDB. Use as a context manager."""

    def __init__(self, mongo: str) -> None:
        self.mongo = mongo
        self.stack = ExitStack()
        self.contenders: list[Contender] = []

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

    def peer(self, name: str) -> None:
        self._serve(name, f"app_{name}:create_app", python=str(environment_of(name)), app_dir=PEERS)

    def uncached_eased(self) -> None:
        python, environment = str(environment_of("uncached")), {"BENCHMARK_EASE": "1"}
        self._serve(UNCACHED_EASED, "app_uncached:create_app", python=python, app_dir=PEERS, environment=environment)

    def ours(self, name: str, factory: str, **environment: str) -> None:
        own = self._serve(name, f"benchmarks.http_peers:{factory}", environment=environment)
        own.cached = _from_cache

        def answers_from_cache() -> bool:
            return _from_cache(httpx.get(f"{own.url}/items"))

        harness.until(answers_from_cache, timeout_s=60)

    def ids(self, name: str) -> None:
        contender = self._serve(name, "benchmarks.http_peers:ids_app")
        contender.path = "/items?filter=%7B%22group%22%3A1%7D&sort=%7B%22_id%22%3A1%7D&limit=100"
        assert len(httpx.get(contender.url + contender.path).raise_for_status().json()) == OBJECTS

    def bare(self) -> None:
        """The bytes of the contender before it."""
        environment = {"BARE_FROM": f"{self.contenders[-1].url}/items"}
        self._serve(BARE, "benchmarks.harness:bare_app", environment=environment)

    def measure(self) -> dict[str, dict[str, Any]]:
        """Rounds in which every contender has its turn; medians by contender."""
        for turn in range(1, ROUNDS + 1):
            for number, contender in enumerate(self.contenders, start=1):
                contender.hits.append(harness.wrk(contender.url + contender.path, seconds=HIT_SECONDS))
                if contender.cached is not None:
                    assert contender.cached(httpx.get(contender.url + contender.path)), (
                        f"{contender.name} did not answer from its cache"
                    )
                if contender.name != BARE and contender.path == "/items":
                    contender.misses.append(
                        harness.wrk(contender.url + contender.path, seconds=MISS_SECONDS, unique=10 * number + turn)
                    )
                print(contender.name, contender.hits[-1], file=sys.stderr, flush=True)
        return {contender.name: contender.report() for contender in self.contenders}

    def _serve(self, name: str, app: str, *, environment: dict[str, str] | None = None, **how: Any) -> Contender:
        environment = {"MONGO_URL": self.mongo, **(environment or {})}
        server = self.stack.enter_context(harness.uvicorn(app, environment=environment, path="/items", **how))
        self.contenders.append(Contender(name, server.url))
        return self.contenders[-1]


def _over(reports: dict[str, dict[str, Any]], kind: str, name: str, baseline: str) -> float:
    return round(float(reports[name][kind]["requests_per_s"]) / float(reports[baseline][kind]["requests_per_s"]), 3)


def main() -> None:
    given = harness.arguments(__doc__)
    line, around, shared = "quaestor, by the one line", "quaestor, around the app", "quaestor, out of Redis"
    ids, stored, shared_stored = "quaestor, a list of ids", "quaestor, each stored", "quaestor, each stored, in Redis"
    with ExitStack() as stack:
        mongo = stack.enter_context(servers.running(servers.mongod_server, "mongod")).url
        with pymongo.MongoClient[dict[str, Any]](mongo) as client:
            client[DATABASE].items.insert_many(
                {"_id": i, "group": 1, "name": f"item {i}", "price": i * 1.25, "tags": ["a", "b"], "stock": {"n": i}}
                for i in range(OBJECTS)
            )
        with _Stage(mongo) as stage:
            for name in NAMES:
                stage.peer(name)
            stage.uncached_eased()
            stage.ours(around, "wrapped_app")
            stage.ours(line, "line_app")
            stage.bare()
            stage.ours(stored, "line_app", **EACH_STORED)
            stage.ids(ids)
            in_memory = stage.measure()
        # By itself, because the grid on Spark takes its share of the machine.
        redis = stack.enter_context(servers.running(servers.redis_server, "valkey")).url
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-")))
        grid = programs.grid_server(folder, deployment=DATABASE, redis_url=redis, mongo_url=mongo)
        stack.callback(reaper.stop_tree, grid)
        grid.launch()
        grid.wait_ready(timeout_s=120)
        with _Stage(mongo) as stage:
            stage.peer("uncached")
            stage.uncached_eased()
            out_of_redis = {"REDIS_URL": redis, "QUAESTOR_DEPLOYMENT": DATABASE, "QUAESTOR_MEMORY_BYTES": "1"}
            stage.ours(shared, "line_app", **out_of_redis)
            stage.bare()
            stage.ours(shared_stored, "line_app", **out_of_redis, **EACH_STORED)
            distributed = stage.measure()
    harness.report(
        "http_peers",
        {
            "what": f"GET of {OBJECTS} objects as JSON, one uvicorn worker, wrk with 32 connections, medians of {ROUNDS} rounds",
            "in_memory": in_memory,
            "beside_a_2x2_grid": distributed,
            "hits_over_bare": {
                line: _over(in_memory, "hits", line, BARE),
                around: _over(in_memory, "hits", around, BARE),
                ids: _over(in_memory, "hits", ids, BARE),
                shared: _over(distributed, "hits", shared, BARE),
            },
            "hits_over_fastapi_cache2": {
                name: _over(in_memory, "hits", name, "fastapi_cache2") for name in (line, around, ids)
            },
            **{
                f"misses_over_{uncached.replace(',', '').replace(' ', '_')}": {
                    line: _over(in_memory, "misses", line, uncached),
                    around: _over(in_memory, "misses", around, uncached),
                    stored: _over(in_memory, "misses", stored, uncached),
                    shared: _over(distributed, "misses", shared, uncached),
                    shared_stored: _over(distributed, "misses", shared_stored, uncached),
                }
                for uncached in ("uncached", UNCACHED_EASED)
            },
            "aims": "hits in memory at least 0.8 of bare and 8 times fastapi-cache2; stored misses at least 0.75 of uncached, "
            "in Redis 0.55",
        },
        keep=not given.no_save,
    )


if __name__ == "__main__":
    main()
