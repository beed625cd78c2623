"""A started app with one cached route, in a fresh interpreter: what it costs while it rests. Prints one line of JSON.

Run by path, with PYTHONPATH naming the checkout whose `quaestor` is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from child import memory

_REQUESTS = 50
_PAUSE_S = 0.2


def run_s() -> float:
    """Seconds that the threads of this process have run so far; ended threads do not count."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in _tasks()) / 1e9


def _tasks() -> list[Path]:
    return list(Path("/proc/self/task").iterdir())


async def started(mongo_url: str, *, with_quaestor: bool, settled_s: float, seconds: float) -> dict[str, Any]:
    """Memory, threads and processor time of an app that rests, after its one route was answered from the cache."""
    from fastapi import FastAPI
    from pymongo import AsyncMongoClient

    app, listeners = FastAPI(), list[Any]()
    if with_quaestor:
        from quaestor import Quaestor, QuaestorMiddleware

        quaestor = Quaestor()
        app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
        listeners.append(quaestor.capture)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=listeners)

    @app.get("/items")
    async def items() -> list[Any]:
        return await client.idle.items.find({"a": 1}, {"_id": 0}).to_list()

    stop, ready = asyncio.Event(), asyncio.Event()
    life = asyncio.create_task(_lifespan(app, ready, stop))
    await ready.wait()
    hit = await _hit(app, wanted=with_quaestor)
    await asyncio.sleep(settled_s)
    began_s, ran_s = time.monotonic(), run_s()
    await asyncio.sleep(seconds)
    core = (run_s() - ran_s) / (time.monotonic() - began_s)
    report = {"hit": hit, "core": core, "threads": len(_tasks()), **memory()}
    report |= {"modules": len(sys.modules), "loaded": sorted(sys.modules)}
    report["thread_names"] = sorted(thread.name for thread in threading.enumerate())
    stop.set()
    await life
    await client.close()
    return report


async def _lifespan(app: Any, ready: asyncio.Event, stop: asyncio.Event) -> None:
    begun = False

    async def receive() -> dict[str, str]:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "lifespan.startup"}
        await stop.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "lifespan.startup.failed":
            raise RuntimeError(message["message"])
        ready.set()

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


async def _hit(app: Any, *, wanted: bool) -> bool:
    """Whether the route was answered from the cache."""
    for _ in range(_REQUESTS):
        if await _answer_says_hit(app) or not wanted:
            return wanted
        await asyncio.sleep(_PAUSE_S)
    return False


async def _answer_says_hit(app: Any) -> bool:
    fields: dict[bytes, bytes] = {}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            fields.update(message["headers"])

    await app(
        {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": "/items", "raw_path": b"/items", "query_string": b"", "root_path": "",
            "headers": [(b"host", b"idle.example")], "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        },
        receive,
        send,
    )  # fmt: skip
    return b"hit" in fields.get(b"cache-status", b"")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(started(**json.loads(sys.argv[1])))))
