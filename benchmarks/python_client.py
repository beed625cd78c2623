"""Hits of the Python client beside hishel's and beside a plain request over loopback, and look-ups in the sketch per second.

One process, one request at a time, a list of 100 objects as JSON (about 10 kB) from one uvicorn worker, rounds interleaved.
Hits are measured twice. Through `AsyncClient.get` and `Client.get`, most of the time is httpx itself ("httpx with nothing
behind it" shows how much). With the transports alone, the caches differ. hishel keeps its answers in SQLite's memory, its
fastest storage. Aim: 10 times hishel's hits. Look-ups stand beside pybloom_live's on the same bytes.
Run: python -m benchmarks.python_client
"""

from __future__ import annotations

import asyncio
import io
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from statistics import median
from typing import Any

import anysqlite
import httpx
import pybloom_live
from hishel import AsyncSqliteStorage, SqliteStorage
from hishel.httpx import AsyncCacheTransport, CacheTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks import harness
from quaestor import QuaestorSyncTransport, QuaestorTransport
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.sizing import DEFAULT
from quaestor.cache_sketch.wire_format import digest, encode
from quaestor.client.flat_sketch import FlatSketch

OBJECTS = 100
ROUNDS = 5
SECONDS = 1.0
LOOKUPS = 200_000
ENTRIES = (1_000, 20_000)
RFC = {"shared": False}


def app() -> Starlette:
    """The list, for both kinds of caches, and an empty sketch."""
    body = [
        {"_id": i, "name": f"item {i}", "price": i * 1.25, "tags": ["a", "b"], "stock": {"n": i}}
        for i in range(OBJECTS)
    ]
    empty = encode(DEFAULT, keys=0, bits=bytes(DEFAULT.size_bytes))

    async def items(request: Request) -> Response:
        life = f"3600;at={time.time_ns() // 1_000_000}"
        return JSONResponse(body, headers={"quaestor-ttl": life, "cache-control": "max-age=3600", "etag": '"1"'})

    async def sketch(request: Request) -> Response:
        said = f"made={time.time_ns() // 1_000_000}, delta=60, nonce={request.query_params.get('nonce', 0)}"
        return Response(empty, headers={"quaestor-sketch": said})

    return Starlette(routes=[Route("/items", items), Route("/quaestor/sketch", sketch)])


class Nothing(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """Answers at once with what it was given."""

    def __init__(self, answer: httpx.Response) -> None:
        self._headers, self._body = answer.headers.raw, answer.content

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=self._headers, content=self._body)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


def rate(repeat: Callable[[], Any]) -> float:
    """Calls per second."""
    count, begun = 0, time.perf_counter()
    while (gone := time.perf_counter() - begun) < SECONDS:
        repeat()
        count += 1
    return count / gone


async def async_rate(repeat: Callable[[], Awaitable[Any]]) -> float:
    count, begun = 0, time.perf_counter()
    while (gone := time.perf_counter() - begun) < SECONDS:
        await repeat()
        count += 1
    return count / gone


def from_cache(response: httpx.Response) -> bool:
    status = response.extensions.get("caching") or {}
    return response.extensions.get("quaestor") == "memory" or bool(status.get("from_cache"))


async def asynchronous(url: str, answer: httpx.Response) -> dict[str, float]:
    """Hits per second of each contender, through the client and as its transport alone."""
    target = f"{url}/items"
    storages = [AsyncSqliteStorage(connection=await anysqlite.connect(":memory:")) for _ in range(2)]
    ours = QuaestorTransport(url)
    transports: dict[str, httpx.AsyncBaseTransport] = {
        "quaestor": ours,
        "hishel by RFC 9111": AsyncCacheTransport(httpx.AsyncHTTPTransport(), storages[0], rfc=RFC),  # type: ignore[arg-type]
        "hishel by URL": AsyncCacheTransport(httpx.AsyncHTTPTransport(), storages[1], rfc=False),
        "httpx with nothing behind it": Nothing(answer),
        "a request over loopback": httpx.AsyncHTTPTransport(),
    }
    await ours.refresh()
    clients = {name: httpx.AsyncClient(transport=transport) for name, transport in transports.items()}
    request = httpx.Request("GET", target)
    for name, client in clients.items():
        await client.get(target)
        again = await client.get(target)
        assert from_cache(again) == (name.startswith(("quaestor", "hishel"))), name

    async def alone(transport: httpx.AsyncBaseTransport) -> None:
        await (await transport.handle_async_request(request)).aread()

    measured: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, client in clients.items():
            measured.setdefault(f"{name}, AsyncClient", []).append(await async_rate(lambda: client.get(target)))  # noqa: B023
            transport = transports[name]
            measured.setdefault(f"{name}, transport", []).append(await async_rate(lambda: alone(transport)))  # noqa: B023
    for name, client in clients.items():
        last = await client.get(target)
        assert from_cache(last) == (name.startswith(("quaestor", "hishel"))), name
        await client.aclose()
    return {name: round(median(rates)) for name, rates in measured.items()}


def synchronous(url: str, answer: httpx.Response) -> dict[str, float]:
    target = f"{url}/items"
    storage = SqliteStorage(connection=sqlite3.connect(":memory:", check_same_thread=False))
    ours = QuaestorSyncTransport(url)
    ours.refresh()
    clients = {
        "quaestor": httpx.Client(transport=ours),
        "hishel by RFC 9111": httpx.Client(transport=CacheTransport(httpx.HTTPTransport(), storage, rfc=RFC)),  # type: ignore[arg-type]
        "httpx with nothing behind it": httpx.Client(transport=Nothing(answer)),
        "a request over loopback": httpx.Client(),
    }
    for client in clients.values():
        client.get(target)
    measured: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, client in clients.items():
            measured.setdefault(f"{name}, Client", []).append(rate(lambda: client.get(target)))  # noqa: B023
    for client in clients.values():
        client.close()
    return {name: round(median(rates)) for name, rates in measured.items()}


def _per_second(contains: Callable[[Any], bool], keys: Iterable[Any]) -> int:
    begun = time.perf_counter()
    count = sum(1 for key in keys if contains(key) is not None)
    return round(count / (time.perf_counter() - begun))


def lookups(entries: int) -> dict[str, float]:
    """Look-ups per second of resources that were never put in, among so many that were; the best of all rounds."""
    filled = CountingFilter(DEFAULT)
    for number in range(entries):
        filled.add(digest(f"/stale/{number}"))
    body = encode(DEFAULT, keys=filled.keys, bits=filled.bits)
    ours, their_filter = FlatSketch.read(body), pybloom_live.BloomFilter.fromfile(io.BytesIO(body))
    assert ours is not None
    names = [f"/items/{number}?page=1" for number in range(LOOKUPS)]
    digests = [digest(name) for name in names]
    runs = [
        {
            "by resource": _per_second(ours.__contains__, names),
            "by digest, as copies are": _per_second(ours.holds, digests),
            "pybloom_live": _per_second(their_filter.__contains__, names[: LOOKUPS // 4]),
        }
        for _ in range(ROUNDS)
    ]
    false = sum(name in ours for name in names) / LOOKUPS
    return {name: max(run[name] for run in runs) for name in runs[0]} | {"false_positives": round(false, 4)}


def main() -> None:
    given = harness.arguments(__doc__)
    with harness.uvicorn("benchmarks.python_client:app", environment={}) as server:
        answer = httpx.get(f"{server.url}/items")
        hits = asyncio.run(asynchronous(server.url, answer)) | synchronous(server.url, answer)
    best = "hishel by RFC 9111"
    harness.report(
        "python_client",
        {
            "what": f"hits per second of a list of {OBJECTS} objects, one at a time, median of {ROUNDS} rounds of {SECONDS:g} s",
            "versions": {name: version(name) for name in ("httpx", "hishel", "pybloom_live", "xxhash")},
            "hits_per_s": hits,
            "over_hishel": {
                "transport alone": round(hits["quaestor, transport"] / hits[f"{best}, transport"], 1),
                "through httpx.AsyncClient": round(hits["quaestor, AsyncClient"] / hits[f"{best}, AsyncClient"], 1),
                "through httpx.Client": round(hits["quaestor, Client"] / hits[f"{best}, Client"], 1),
            },
            "over_a_request": round(hits["quaestor, AsyncClient"] / hits["a request over loopback, AsyncClient"], 1),
            "lookups_per_s": {f"{entries} entries": lookups(entries) for entries in ENTRIES},
            "aim": "over_hishel >= 10; lookups: a million per second in the browser",
        },
        keep=not given.no_save,
    )


if __name__ == "__main__":
    main()
