"""A whole deployment of real processes, with a link that can fail between every two of its parts, under load, watched.

app worker 0 --.                  .-- cells, stages
app worker 1 --+-- app_redis ----- Valkey ------- grid_redis --+
               '-- app_mongo ----- mongod ------- grid_mongo --'-- ingest
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pymongo

from benchmarks.setups.faults.checker import Checker
from benchmarks.setups.faults.history import History
from benchmarks.setups.faults.load import Load
from benchmarks.setups.faults.members import replica_set
from benchmarks.setups.faults.observed import Heartbeats
from benchmarks.setups.faults.proxy import Link, Links
from quaestor.clock import system_clock
from quaestor.testing import servers
from quaestor.testing.programs import grid_server
from quaestor.testing.servers import HOST, Server

BOUND_MS = 2_000
CELLS = 4
RECORDS = 40
GROUPS = 4
DATABASE = "faults"
DEPLOYMENT = "faults"
_STEP_S = 0.02


def moving_between(groups: int) -> Callable[[int, int], int]:
    """History's group_of: a record moves on to the next list with every third write."""
    return lambda key, number: (key + number // 3) % groups


@dataclass(slots=True)
class Outcome:
    """Effects of one failure. recovered_s: from the failure (or its end, if it had one) until every cell was fresh and every
    worker answered from its cache again. without_cache_s: the longest time that a worker did not."""

    recovered_s: float = 0.0
    without_cache_s: float = 0.0
    stalest_ms: int = 0
    responses: int = 0
    writes: int = 0
    hits: int = 0
    unanswered: int = 0
    violations: int = 0

    def document(self) -> dict[str, Any]:
        return {name: round(value, 2) for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(slots=True)
class World:
    """mongods: one, or the members of a replica set (then nothing is between it and the others)."""

    folder: Path
    mongods: list[Server]
    valkey: Server
    links: Links
    app_redis: Link
    grid_redis: Link
    app_mongo: Link | None
    grid_mongo: Link | None
    grid: Server
    workers: list[Server]
    client: pymongo.MongoClient[dict[str, Any]]
    history: History
    checker: Checker
    load: Load
    heartbeats: Heartbeats
    cells: int = CELLS
    further: list[Server] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def healthy(self, since_ms: int = 0) -> bool:
        """Every cell is fresh, and both workers have answered from the cache in the last half second."""
        recent_s = time.monotonic() - 0.5
        return self.heartbeats.all_fresh(since_ms, self.cells) and all(
            hits_s and hits_s[-1] >= recent_s for hits_s in self.hits_s()
        )

    def hits_s(self) -> list[list[float]]:
        """By worker: when it answered from its cache, to a tenth of a second."""
        count = len(self.workers)
        return [sorted(s for reader in self.load.readers[i::count] for s in list(reader.hits_s)) for i in range(count)]

    def settle(self, *, within_s: float = 60.0) -> None:
        """Return once all is well."""
        self.until(self.healthy, within_s)

    @contextmanager
    def failure(self, *, within_s: float = 60.0) -> Iterator[Outcome]:
        """Break something in the block, and mend it there if it does not mend itself; recovery is counted from the block's end
        and waited for. Violations are the caller's to look at."""
        self.settle()
        self.checker.take_stalest_s()
        began_s, counts, outcomes = time.monotonic(), self.checker.counts.copy(), self.load.outcomes
        writes, violations = self.history.writes, len(self.checker.violations)
        outcome = Outcome()
        yield outcome
        ended_s, ended_ms = time.monotonic(), system_clock()
        self.until(lambda: self.healthy(ended_ms), within_s)
        outcome.recovered_s = time.monotonic() - ended_s
        # Every loss has to show: a worker that still held an old answer has now served it, and the checker has noticed.
        answered = self.checker.counts["responses"]
        self.until(lambda: self.checker.counts["responses"] >= answered + 8 * RECORDS, within_s)
        for worker in self.hits_s():
            hits_s = [began_s, *(s for s in worker if s >= began_s), time.monotonic()]
            longest_s = max(b - a for a, b in pairwise(hits_s))
            outcome.without_cache_s = max(outcome.without_cache_s, longest_s)
        outcome.stalest_ms = int(self.checker.take_stalest_s() * 1000)
        outcome.responses = self.checker.counts["responses"] - counts["responses"]
        outcome.hits = self.checker.counts["hits"] - counts["hits"]
        outcome.writes = self.history.writes - writes
        outcome.unanswered = self.load.outcomes["no answer"] - outcomes["no answer"]
        outcome.violations = len(self.checker.violations) - violations

    def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> None:
        """Return once the condition holds. Raises AssertionError with what is known if it does not in time."""
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not well within {within_s} s: {self.heartbeats.fresh_as_of_ms} at {system_clock()}; "
                    f"{self.load.outcomes}; {self.checker.counts}"
                )
            time.sleep(_STEP_S)

    def answered(self) -> int:
        """How many requests were answered with 200 so far."""
        return self.load.outcomes["hit"] + self.load.outcomes["handler"]

    def grid_of_processes(self, *, query_partitions: int) -> Server:
        """`quaestor grid` for this deployment, not started yet; the world stops it in the end."""
        mongo_url = self.mongods[0].url if self.grid_mongo is None else f"{HOST}:{self.grid_mongo.port}"
        environment = {
            "MONGO_URL": mongo_url if "://" in mongo_url else f"mongodb://{mongo_url}/?directConnection=true",
            "REDIS_URL": f"redis://{HOST}:{self.grid_redis.port}/0", "QUAESTOR_DEPLOYMENT": DEPLOYMENT,
            "QUAESTOR_STALENESS_BOUND_MS": str(BOUND_MS),
        }  # fmt: skip
        folder = self.folder / f"processes{len(self.further)}"
        folder.mkdir()
        server = Server(
            "grid of processes",
            [sys.executable, "-m", "quaestor.cli", "grid", "--query-partitions", str(query_partitions)],
            folder, 0, "", ready=lambda: "cells + ingest running" in server.log_tail(), environment=environment,
        )  # fmt: skip
        self.further.append(server)
        return server

    def forget(self, server: Server) -> None:
        """Delete what Valkey has written; it must not be running."""
        shutil.rmtree(server.folder / "appendonlydir", ignore_errors=True)


def site_server(
    folder: Path,
    name: str,
    *,
    module: str = "benchmarks.setups.faults.site",
    factory: str = "create_app",
    environment: dict[str, str],
) -> Server:
    """One worker of the site: a process of its own on a port of its own."""
    port = servers.free_port()
    url = f"http://{HOST}:{port}"
    return Server(
        name,
        [sys.executable, "-m", "uvicorn", f"{module}:{factory}", "--factory", "--host", HOST, "--port", str(port),
         "--log-level", "warning", "--no-access-log", "--timeout-graceful-shutdown", "2"],
        folder, port, url, lambda: httpx.get(f"{url}/health", timeout=2).status_code == 200, environment,
    )  # fmt: skip


@contextmanager
def world(
    folder: Path,
    *,
    mongods: int = 1,
    workers: int = 2,
    readers: int = 1,
    records: int = RECORDS,
    groups: int = GROUPS,
    writes_per_s: float = 30,
    reads_per_s: float = 80,
    seed: int = 1,
    redis_url: str = "",
    elected: bool = False,
) -> Iterator[World]:
    """All of it, running and well. Everything is ended by its own id in the end. readers: of each worker. redis_url: of a Redis
    that is used instead of the Valkey and the links to it, which then belong to nobody. elected: no grid is started; the app
    workers elect one among them."""
    with ExitStack() as stack:

        def started(server: Server) -> Server:
            server.start()
            stack.callback(server.stop)
            return server

        def place(name: str) -> Path:
            (folder / name).mkdir()
            return folder / name

        if mongods == 1:
            members = [started(servers.mongod_server(place("mongod")))]
            mongo_url = members[0].url
        else:
            made_of = stack.enter_context(replica_set(place("mongods"), mongods))
            members, mongo_url = made_of.members, made_of.url
        valkey = started(servers.redis_server(place("valkey")))
        links = Links()
        stack.callback(links.close)
        app_redis, grid_redis = links.to(valkey.port), links.to(valkey.port)
        app_mongo = grid_mongo = None
        app_mongo_url = grid_mongo_url = mongo_url
        if mongods == 1:
            app_mongo, grid_mongo = links.to(members[0].port), links.to(members[0].port)
            app_mongo_url, grid_mongo_url = (
                f"mongodb://{HOST}:{link.port}/?directConnection=true" for link in (app_mongo, grid_mongo)
            )
        client = stack.enter_context(pymongo.MongoClient[dict[str, Any]](mongo_url, serverSelectionTimeoutMS=3_000))
        settings = {"QUAESTOR_STALENESS_BOUND_MS": str(BOUND_MS)}
        grid = grid_server(
            place("grid"), deployment=DEPLOYMENT, redis_url=redis_url or f"redis://{HOST}:{grid_redis.port}/0",
            mongo_url=grid_mongo_url, settings=settings,
        )  # fmt: skip
        if not elected:
            grid.launch()
        stack.callback(lambda: grid.stop())
        environment = settings | {
            "QUAESTOR_ELECT_GRID": str(int(elected)),
            "MONGO_URL": app_mongo_url, "REDIS_URL": redis_url or f"redis://{HOST}:{app_redis.port}/0",
            "QUAESTOR_DEPLOYMENT": DEPLOYMENT, "SITE_DATABASE": DATABASE,
        }  # fmt: skip
        apps = [started(site_server(place(f"app{i}"), f"app{i}", environment=environment)) for i in range(workers)]
        history = History(records, moving_between(groups))
        checker = Checker(history, bound_s=BOUND_MS / 1000)
        load = Load(
            checker, history, client, database=DATABASE, groups=groups, ports=[app.port for app in apps] * readers,
            writes_per_s=writes_per_s, reads_per_s=reads_per_s, seed=seed,
        )  # fmt: skip
        heartbeats = Heartbeats(redis_url or valkey.url, DEPLOYMENT)
        if not elected:
            grid.wait_ready(150)
        heartbeats.start()
        stack.callback(heartbeats.stop)
        load.start()
        stack.callback(load.stop)
        made = World(
            folder, members, valkey, links, app_redis, grid_redis, app_mongo, grid_mongo, grid, apps, client, history,
            checker, load, heartbeats, cells=1 if elected else CELLS,
        )  # fmt: skip
        stack.callback(lambda: [server.stop() for server in made.further])
        made.settle()
        yield made
