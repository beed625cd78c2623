"""One run: servers, records, load, and what the workers say of themselves in the end."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pymongo
import uvloop

from benchmarks.setups.faults.world import site_server
from benchmarks.setups.soaked_inputs import app
from benchmarks.setups.soaked_inputs.asks import World
from benchmarks.setups.soaked_inputs.load import Load
from quaestor.testing.programs import grid_server
from quaestor.testing.servers import Server

BOUND_MS = 2_000
OWN_WRITES_MS = 1_000
"""How long an answer to a write waits at most: long enough that machines that stand still for a moment are no excuse."""
_TOLD = re.compile(
    r"^quaestor_(own_writes|verifications|divergences|invalidations)_total(?:\{(.*)\})? (\S+)$", re.MULTILINE
)
RAISED = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Failure|Timeout)(?:: .*)?$", re.MULTILINE)
"""The last line of a traceback."""


@contextmanager
def servers(
    folder: Path, *, mongo_url: str, database: str, workers: int, mutation: str = "", redis_url: str = ""
) -> Iterator[tuple[list[Server], Server]]:
    """The workers and the bare twin. redis_url: what they share, with a grid; empty: each is embedded."""
    environment = {
        "MONGO_URL": mongo_url, app.DATABASE: database, app.MUTATION: mutation,
        "QUAESTOR_STALENESS_BOUND_MS": str(BOUND_MS), "QUAESTOR_TTL_MIN_MS": "600000",
        "QUAESTOR_READ_YOUR_WRITES_MS": str(OWN_WRITES_MS),
    }  # fmt: skip
    with ExitStack() as stack:
        if redis_url:
            environment |= {"REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": database}
            (folder / "grid").mkdir()
            grid = grid_server(
                folder / "grid", deployment=database, redis_url=redis_url, mongo_url=mongo_url,
                settings={"QUAESTOR_STALENESS_BOUND_MS": str(BOUND_MS)},
            )  # fmt: skip
            stack.callback(grid.stop)
            grid.start(150)
        made = []
        for number, factory in enumerate(["create_app"] * workers + ["create_bare_app"]):
            (place := folder / f"app{number}").mkdir()
            made.append(
                site_server(
                    place,
                    f"app{number}",
                    module="benchmarks.setups.soaked_inputs.app",
                    factory=factory,
                    environment=environment,
                )
            )
            stack.callback(made[-1].stop)
            made[-1].start()
        yield made[:-1], made[-1]


def run(
    folder: Path,
    *,
    mongo_url: str,
    requests: int,
    seed: int,
    workers: int = 2,
    readers: int = 6,
    writes_per_s: float = 30,
    every: int = 200,
    for_s: float = 3_600,
    mutation: str = "",
    redis_url: str = "",
) -> dict[str, Any]:
    """Run so many requests; return their outcome. for_s: longer than it takes. readers: of each worker."""
    database = f"soak{uuid.uuid4().hex[:8]}"
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        try:
            world = World(bound_s=BOUND_MS / 1000, begun_s=int(time.time()), for_s=for_s)
            _fill(client[database], world)
            with servers(
                folder, mongo_url=mongo_url, database=database, workers=workers, mutation=mutation, redis_url=redis_url
            ) as (cached, bare):
                load = Load(
                    world, mongo_url=mongo_url, database=database, ports=[server.port for server in cached], bare_port=bare.port,
                    readers=readers, writes_per_s=writes_per_s, own_writes_s=OWN_WRITES_MS / 1000, every=every, seed=seed,
                )  # fmt: skip
                began_s = time.time()
                uvloop.run(load.run(requests))
                took_s = time.time() - began_s
                metrics = [_told(httpx.get(f"{server.url}/metrics", timeout=10).text) for server in cached]
                raised = _raised([*cached, bare])
        finally:
            client.drop_database(database)
    where = {"workers": workers, "on": "a grid" if redis_url else "embedded"}
    return _result(load, took_s, metrics) | {"raised": raised} | where


def _fill(database: Any, world: World) -> None:
    """The records as they are in the beginning, and the index whose second field nobody names."""
    database.ranked.create_index([("kind", 1), ("rank", 1)])
    for book in world.books:
        documents = world.moments.documents() if book is world.moments.book else book.documents()
        database[book.collection].insert_many(documents)


def _told(metrics: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, labels, value in _TOLD.findall(metrics):
        series = f"{name} {labels}".strip().replace('"', "")
        values[series] = values.get(series, 0.0) + float(value)
    return values


def _raised(servers: Sequence[Server]) -> dict[str, int]:
    """Exceptions of handlers, by the exception's own line in the workers' logs: the reasons of answers with 500."""
    return dict(Counter(line[:300] for server in servers for line in RAISED.findall(server.log_path.read_text())))


def _result(load: Load, took_s: float, metrics: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    tally, world = load.tally, load.world
    kept = {ask.route: ask.cached for ask in world.asks}
    routes: dict[str, Any] = {}
    for route, cached in kept.items():
        ways = {how: count for (of, how), count in sorted(tally.by_route.items()) if of == route}
        routes[route] = {
            "cached": cached, "answers": sum(ways.values()), "hits": ways.pop("hit", 0), "stored": ways.pop("stored", 0),
            "not_stored": ways, "wrong": {what: n for (of, what), n in tally.wrong_by_route.items() if of == route},
        }  # fmt: skip
    names = sorted({name for values in metrics for name in values})
    wrong = dict(tally.wrong)
    return {
        "requests": tally.answered, "took_s": round(took_s, 1), "requests_per_s": round(tally.answered / took_s),
        "bound_ms": BOUND_MS, "own_writes_ms": OWN_WRITES_MS,
        "hits": sum(counts["hits"] for counts in routes.values()),
        "foreign": wrong.pop("foreign", 0), "stale": sum(wrong.values()), "of_these": dict(tally.wrong),
        "first_wrong": tally.first_wrong,
        "failed": dict(tally.failed), "writes": dict(tally.writes), "asked_after_own_writes": tally.after_own_writes,
        "stalest_ms": int(1000 * max(book.checker.take_stalest_s() for book in world.books)),
        "bare_twin": dict(tally.twin),
        "workers_say": {name: sum(values.get(name, 0) for values in metrics) for name in names},
        "routes": routes,
    }  # fmt: skip


def complaints(result: Mapping[str, Any]) -> list[str]:
    """Broken promises of a result; empty: none."""
    said = [f"{result[what]} {what} answers" for what in ("foreign", "stale") if result[what]]
    said += [f"failed: {what} ({count})" for what, count in result["failed"].items()]
    said += [f"raised: {what} ({count})" for what, count in result["raised"].items()]
    twin = {
        what: count for what, count in result["bare_twin"].items() if what.startswith(("found", "another")) and count
    }
    said += [f"the bare twin: {what} ({count})" for what, count in twin.items()]
    for route, counts in result["routes"].items():
        if counts["cached"] and not counts["hits"]:
            said.append(f"{route}: never answered from the cache")
        if not counts["cached"] and counts["hits"]:
            said.append(f"{route}: {counts['hits']} hits where the cache is to keep out")
        if "diverged" in counts["not_stored"]:
            said.append(f"{route}: quarantined")
    return said
