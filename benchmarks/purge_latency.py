"""Write acknowledged -> object purged in a real cache, at 1, 10 and 100 writes/s, beside a bare PURGE in the same run.

The whole pipeline on real parts: mongod, Valkey with the outbox, a 2 x 2 grid on Spark, one uvicorn worker and a cache. The
cache has the configuration that `quaestor cdn config` prints. Every write changes its own cached answer. The bare PURGEs go to
the same cache at the same pace, for other objects. A process that does nothing else sends them (httpx on kept connections). All
clocks are this machine's.

The adapter's share begins when the adapter receives the purge and ends when the cache has acknowledged it: outbox, queue,
request.
Aim: its p99 at most 1.5x of the bare PURGE's. Run: python -m benchmarks.purge_latency, about 25 minutes, half of it for each
concern of writers (`--concerns majority`), which are a file of results each. At 1 write/s there are 60, so p99 is the slowest.

`--embedded` leaves Spark and Valkey out: the grid runs in the worker, the outbox lies in its memory. Another cache is one more
row of CACHES.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Final

import httpx
import pymongo
from fastapi import FastAPI, Response
from pymongo import AsyncMongoClient

from benchmarks import harness
from benchmarks.invalidation_latency import CONCERNS, DATABASE, write
from benchmarks.setups import real_caches
from quaestor import Quaestor
from quaestor.cdn_adapters import Answer, Connection, Delivery, Place, Target
from quaestor.cdn_adapters.purge_method import TOKEN_FIELD
from quaestor.cdn_adapters.varnish_node import VarnishNode
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Message, Receive, Scope, Send
from quaestor.testing import programs, reaper, servers

LOADS: Final = ((1, 60), (10, 300), (100, 2_000))
"""(writes per second, writes)"""
_TIMEOUT_S: Final = 10.0
_NUMBER_FIELD: Final = "x-answer"
"""Field with the number that the application gives each answer: one that comes twice came out of a cache before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A cache that is measured.

    package: of Debian, that it comes with.
    there: whether it is installed.
    launch: describes its server, from a folder, the application's port and its own.
    place: what purges it, from its base URL.
    bare: the request that purges one object, from the base URL, and the object as the place spells it.
    """

    package: str
    there: bool
    launch: Callable[..., servers.Server]
    place: Callable[[str], Place]
    bare: Callable[[str, str], httpx.Request]


def _by_url(name: str) -> Cache:
    """One of the caches of the tests, purged by URL."""
    cache = real_caches.CACHES[name]
    return Cache(
        package=cache.package,
        there=cache.there,
        launch=cache.start,
        place=cache.place,
        bare=lambda url, target: httpx.Request("PURGE", target, headers={TOKEN_FIELD: real_caches.TOKEN}),
    )


CACHES: Final = {
    "varnish by tag (xkey)": Cache(
        package=real_caches.CACHES["varnish"].package,
        there=real_caches.CACHES["varnish"].there,
        launch=lambda folder, *, app_port, port: programs.varnish_before(folder, port=port, app_port=app_port),
        place=lambda url: VarnishNode(url, soft=False, token=None, tags=True, timeout_s=_TIMEOUT_S),
        bare=lambda url, tag: httpx.Request("PURGE", url, headers={"xkey-purge": tag}),
    ),
    "varnish by URL (PURGE)": _by_url("varnish"),
    "nginx": _by_url("nginx"),
    "squid": _by_url("squid"),
    "traffic server": _by_url("ats"),
}


class TimedPlace:
    """A place whose purges are timed. Implements Place.

    asked_ms, purged_ms: by target, when it was first asked for, and first acknowledged.
    """

    def __init__(self, place: Place) -> None:
        self.name, self.address, self.capabilities = place.name, place.address, place.capabilities
        self.asked_ms: dict[str, float] = {}
        self.purged_ms: dict[str, float] = {}
        self._place = place

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """See Place."""
        return self._place.response_headers(tags)

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """See Place. An adapter does this first."""
        now_ms = _now_ms()
        targets = self._place.targets(tags=tags, urls=urls)
        for target in targets:
            self.asked_ms.setdefault(target.value, now_ms)
        return targets

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """See Place."""
        async with self._place.connect() as connection:
            yield _Timed(self, connection)


class _Timed:
    """Connection of a TimedPlace."""

    def __init__(self, place: TimedPlace, connection: Connection) -> None:
        self._place = place
        self._connection = connection

    async def send(self, targets: Sequence[Target]) -> Answer:
        """See Connection."""
        answer = await self._connection.send(targets)
        now_ms = _now_ms()
        for target in targets:
            self._place.purged_ms.setdefault(target.value, now_ms)
        return answer

    async def completed(self, ticket: str) -> Answer:
        """See Connection."""
        return await self._connection.completed(ticket)


class Numbered:
    """ASGI middleware, the outermost, that numbers the answers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._numbers = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""

        async def numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                number = (_NUMBER_FIELD.encode(), b"%d" % next(self._numbers))
                message = {**message, "headers": [*message["headers"], number]}
            await send(message)

        await self._app(scope, receive, numbered)


def app() -> FastAPI:
    """One answer per item; when each purge was asked for and acknowledged, at /observed."""
    application = FastAPI()
    # No verification: on probation a route's first entries end before their write comes.
    quaestor = Quaestor.from_env(ttl_min_ms=3_600_000, verification=False)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    place = TimedPlace(CACHES[os.environ["BENCHMARK_CACHE"]].place(os.environ["BENCHMARK_CACHE_URL"]))
    application.add_middleware(QuaestorMiddleware, quaestor=quaestor, cdn=[Delivery(place)])
    application.add_middleware(Numbered)

    @application.get("/items/{key}")
    async def item(key: int) -> dict[str, Any] | None:
        return await client[DATABASE].items.find_one({"_id": key})

    @application.get("/observed")
    async def everything(response: Response) -> dict[str, tuple[float, float]]:
        response.headers["cache-control"] = "no-store"
        return {
            value: (place.asked_ms[value], at_ms) for value, at_ms in place.purged_ms.items() if value in place.asked_ms
        }

    return application


def bare_purges(cache: str, url: str, objects: Sequence[str], rate_hz: float, results: Queue[list[float]]) -> None:
    """Paced PURGEs of these objects, by a process that does nothing else: how many ms each but the first took, which connects."""

    async def run() -> list[float]:
        took_ms: list[float] = []
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:

            async def one(target: str) -> None:
                began = time.perf_counter()
                response = await client.send(CACHES[cache].bare(url, target))
                took_ms.append((time.perf_counter() - began) * 1_000)
                response.raise_for_status()

            await one(objects[0])
            took_ms.clear()
            began = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as purges:
                for n, target in enumerate(objects[1:]):
                    await asyncio.sleep(began + n / rate_hz - asyncio.get_running_loop().time())
                    purges.create_task(one(target))
        return took_ms

    results.put(asyncio.run(run()))


def kept_objects(cache: Cache, front: str, behind: str, keys: Sequence[int]) -> dict[int, str]:
    """Every one of these items in the cache; the object that each is there, as a purge names it."""
    place = cache.place(front)
    field = place.capabilities.tag_field
    fields = {"host": httpx.URL(front).netloc.decode()}
    with httpx.Client(limits=httpx.Limits(max_connections=8), trust_env=False) as client, ThreadPoolExecutor(8) as pool:

        def one(key: int) -> str:
            def kept() -> bool:
                first, second = (client.get(f"{front}/items/{key}").headers[_NUMBER_FIELD] for _ in range(2))
                return first == second

            harness.until(kept, timeout_s=60)
            if field is None:
                return f"{front}/items/{key}"
            answer = client.get(f"{behind}/items/{key}", headers=fields)
            return answer.headers[field.name].split(field.separator)[0]

        return dict(zip(keys, pool.map(one, keys), strict=True))


def measure(cache: str, stack: dict[str, str], first: int, rate_hz: int, count: int, concern: str) -> dict[str, Any]:
    """One load: count items are written, and as many others are purged barely."""
    written, barely = range(first, first + count), range(first + count, first + _items(count))
    objects = kept_objects(CACHES[cache], stack["cache"], stack["app"], [*written, *barely])
    spawn = multiprocessing.get_context("spawn")
    acknowledged_q: Queue[dict[int, float]] = spawn.Queue()
    bare_q: Queue[list[float]] = spawn.Queue()
    writer = spawn.Process(target=write, args=(stack["mongo"], first, count, rate_hz, concern, acknowledged_q))
    purger = spawn.Process(
        target=bare_purges, args=(cache, stack["cache"], [objects[key] for key in barely], rate_hz, bare_q)
    )
    writer.start()
    purger.start()
    acknowledged, bare_ms = acknowledged_q.get(timeout=600), bare_q.get(timeout=600)
    writer.join()
    purger.join()
    achieved_hz = acknowledged.pop(-1)

    def observed() -> dict[str, list[float]]:
        observed_ms: dict[str, list[float]] = httpx.get(f"{stack['app']}/observed", timeout=30).json()
        return observed_ms

    harness.until(
        lambda: {objects[key] for key in written} <= observed().keys(),
        timeout_s=60,
        every_s=0.5,
    )
    observations = observed()
    asked_ms = {key: observations[objects[key]][0] for key in written}
    purged_ms = {key: observations[objects[key]][1] for key in written}
    bare = harness.summary(bare_ms)
    share = harness.summary([purged_ms[key] - asked_ms[key] for key in written])
    return {
        "cache": cache,
        "writers_wait_for": concern,
        "writes_per_s_asked": rate_hz,
        "writes_per_s_achieved": round(achieved_hz, 1),
        "acknowledged_to_purged": harness.summary([purged_ms[key] - acknowledged[key] for key in written]),
        "acknowledged_to_adapter": harness.summary([asked_ms[key] - acknowledged[key] for key in written]),
        "adapters_share": share,
        "bare_purge": bare,
        "adapters_share_p50_over_bare": round(share["p50_ms"] / bare["p50_ms"], 2),
        "adapters_share_p99_over_bare": round(share["p99_ms"] / bare["p99_ms"], 2),
    }


def _items(count: int) -> int:
    """Items of one load: written ones, as many for bare PURGEs, and one for the connection of the purging process."""
    return 2 * count + 1


def run_stack(
    concern: str, loads: Sequence[tuple[int, int]], caches: Sequence[str], *, embedded: bool
) -> Iterator[dict[str, Any]]:
    """All loads on each cache, with writers of one concern; each result when it is there."""
    with ExitStack() as stack:
        mongo = stack.enter_context(servers.running(servers.mongod_server, "mongod"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-")))
        folder.chmod(0o711)  # varnishd gives up root's rights, and has to find its VCL
        flush = {"QUAESTOR_JOURNAL_FLUSH_MS": "2" if concern == "1" else "0"}
        with pymongo.MongoClient[dict[str, Any]](mongo.url) as client:
            total = sum(_items(count) for _, count in loads)
            client[DATABASE].items.insert_many([{"_id": n, "n": 0} for n in range(total)])
        environment = {"MONGO_URL": mongo.url, **flush}
        if not embedded:
            redis = stack.enter_context(servers.running(servers.redis_server, "valkey"))
            (folder / "grid").mkdir()
            grid = programs.grid_server(
                folder / "grid", deployment=DATABASE, redis_url=redis.url, mongo_url=mongo.url, settings=flush
            )
            stack.callback(reaper.stop_tree, grid)
            grid.launch()
            grid.wait_ready(timeout_s=120)
            environment |= {"REDIS_URL": redis.url, "QUAESTOR_DEPLOYMENT": DATABASE}
        for number, name in enumerate(caches):
            with ExitStack() as front:
                app_port, port = servers.free_port(), servers.free_port()
                url = f"http://{servers.HOST}:{port}"
                named = {"BENCHMARK_CACHE": name, "BENCHMARK_CACHE_URL": url}
                front.enter_context(
                    harness.uvicorn(
                        "benchmarks.purge_latency:app", environment=environment | named, path="/observed", port=app_port
                    )
                )
                (folder / str(number)).mkdir()
                cache = CACHES[name].launch(folder / str(number), app_port=app_port, port=port)
                front.callback(cache.stop)
                cache.start()
                urls = {"mongo": mongo.url, "app": f"http://{servers.HOST}:{app_port}", "cache": url}
                first = 0
                for rate_hz, count in loads:
                    yield measure(name, urls, first, rate_hz, count, concern)
                    first += _items(count)


def arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concerns", choices=sorted(CONCERNS), nargs="+", default=sorted(CONCERNS, reverse=True))
    parser.add_argument("--caches", choices=list(CACHES), nargs="+", default=list(CACHES))
    parser.add_argument("--rates", type=int, nargs="+", choices=[rate for rate, _ in LOADS], help="default: all")
    parser.add_argument("--writes", type=int, help="of each load, instead of those for p99")
    parser.add_argument("--embedded", action="store_true", help="no Spark and no Valkey: the outbox lies in memory")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    missing = sorted({CACHES[name].package for name in options.caches if not CACHES[name].there})
    if missing:
        parser.error(f"not on this machine: apt-get install {' '.join(missing)}; or name others by --caches")
    return options


def main() -> None:
    """Measure what the command line asks for."""
    options = arguments()
    loads = [
        (rate, options.writes or count) for rate, count in LOADS if options.rates is None or rate in options.rates
    ]  # fmt: skip
    for concern in options.concerns:
        results: list[dict[str, Any]] = []
        try:
            for result in run_stack(concern, loads, options.caches, embedded=options.embedded):
                results.append(result)
                print(result, flush=True)
        finally:  # what was measured before something failed is kept
            if results and not options.no_save:
                _save(results, concern, embedded=options.embedded)


def _save(results: Sequence[dict[str, Any]], concern: str, *, embedded: bool) -> None:
    where = "the worker's memory" if embedded else "Valkey"
    harness.save(
        "purge_latency" + ("_embedded" if embedded else "") + ("_w1" if concern == "1" else ""),
        {
            "what": f"ms; outbox in {where}, one app worker, one cache before it, bare PURGEs beside it, all on one machine",
            "aim": "the adapter's share p99 at most 1.5x of the bare PURGE's",
            "loads": results,
        },
    )


def _now_ms() -> float:
    return time.time_ns() / 1e6


if __name__ == "__main__":
    main()
