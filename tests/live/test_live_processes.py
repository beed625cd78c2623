"""Live pages of real processes: what they do together, and what becomes of streams when one is stopped or killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest

from quaestor.testing.servers import HOST, free_port
from tests.live.streamed import Client, following
from tests.support import DEADLINE_S, PATIENT, eventually

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


class Workers:
    """App processes of one deployment. Their standard error holds a line for each run of the handler."""

    def __init__(self, mongo_url: str, deployment: str, directory: Path) -> None:
        self.mongo = pymongo.MongoClient[Any](mongo_url)
        self.items = self.mongo[deployment].items
        self._mongo_url, self._deployment, self._directory = mongo_url, deployment, directory
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, redis_url: str = "", **settings: Any) -> str:
        port = free_port()
        environment = os.environ | {f"QUAESTOR_{name.upper()}": str(value) for name, value in settings.items()}
        command = [
            sys.executable,
            "-m",
            "tests.live.live_worker",
            self._mongo_url,
            redis_url,
            self._deployment,
            str(port),
        ]
        with (self._directory / f"worker-{len(self.all)}").open("wb") as runs:
            self.all.append(subprocess.Popen(command, stderr=runs, cwd=ROOT, env=environment))
        return f"http://{HOST}:{port}"

    def runs(self) -> int:
        """Runs of the handler in all processes."""
        return sum(path.read_bytes().count(b"run\n") for path in self._directory.glob("worker-*"))

    def close(self) -> None:
        for worker in self.all:
            worker.kill()
            worker.wait(timeout=DEADLINE_S)
        self.mongo.drop_database(self._deployment)
        self.mongo.close()


@pytest.fixture
def workers(mongo_url: str, prefix: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(mongo_url, prefix, tmp_path)
    yield workers
    workers.close()


def client_of(url: str) -> httpx.AsyncClient:
    """A client of one process, by the name that all of them have behind a load balancer."""
    return httpx.AsyncClient(base_url=url, timeout=30, headers={"host": "shop.test"})


async def cached(client: httpx.AsyncClient) -> None:
    """Wait until the process answers from its cache."""

    async def hit() -> bool:
        try:
            answer = await client.get("/items/tea")
        except httpx.TransportError:
            return False
        return "hit" in answer.headers.get("cache-status", "")

    await eventually(hit, within_s=90)


async def until(stream: Client, n: int) -> list[int]:
    """Read a stream until its first item has this number; returns the numbers that came first in each answer."""
    seen: list[int] = []
    while not seen or seen[-1] != n:
        event = await stream.event()
        assert event is not None, seen
        assert event.name == "message", event
        items = json.loads(event.data)
        seen.append(items[0]["n"] if items else 0)
    return seen


async def test_two_processes_run_the_handler_once_for_a_change(workers: Workers, redis_url: str) -> None:
    urls = [workers.start(redis_url, **PATIENT) for _ in range(2)]
    async with (
        client_of(urls[0]) as one,
        client_of(urls[1]) as other,
    ):
        await asyncio.gather(cached(one), cached(other))
        async with (
            following(one, "/items/tea") as a,
            following(one, "/items/tea") as b,
            following(other, "/items/tea") as c,
            following(other, "/items/tea") as d,
        ):
            streams = (a, b, c, d)
            await asyncio.gather(*(until(stream, 0) for stream in streams))
            before = workers.runs()
            for n in range(1, 11):
                workers.items.insert_one({"tag": "tea", "n": n})
                await asyncio.gather(*(until(stream, n) for stream in streams))
            runs = workers.runs() - before
    # A process that is late with a notification runs the handler itself; most do not.
    assert 10 <= runs < 20, f"{runs} runs for 10 changes, 4 followers, 2 processes"


async def test_a_killed_process_loses_no_change_for_clients_that_come_back(workers: Workers, redis_url: str) -> None:
    """kill -9 of the process that carries the grid, or of the other: both must go on."""
    urls = [workers.start(redis_url) for _ in range(2)]
    async with (
        client_of(urls[0]) as one,
        client_of(urls[1]) as other,
    ):
        await asyncio.gather(cached(one), cached(other))
        async with following(other, "/items/tea") as survivor:
            async with following(one, "/items/tea") as victim:
                await asyncio.gather(until(survivor, 0), until(victim, 0))
                workers.items.insert_one({"tag": "tea", "n": 1})
                await asyncio.gather(until(survivor, 1), until(victim, 1))
                workers.all[0].kill()
                workers.items.insert_one({"tag": "tea", "n": 2})
                with pytest.raises(httpx.TransportError):
                    await victim.rest()
            tag = '"of the answer before"'
            async with following(other, "/items/tea", last_event_id=tag) as again:
                await asyncio.gather(until(survivor, 2), until(again, 2))
                workers.items.insert_one({"tag": "tea", "n": 3})
                await asyncio.gather(until(survivor, 3), until(again, 3))


async def test_a_stopped_process_ends_its_streams_and_stops(workers: Workers) -> None:
    """uvicorn waits for open streams before it stops: these do not keep it waiting."""
    url = workers.start()
    async with client_of(url) as client:
        await cached(client)
        async with following(client, "/items/tea") as one, following(client, "/items/tea") as other:
            await asyncio.gather(until(one, 0), until(other, 0))
            workers.all[0].send_signal(signal.SIGTERM)
            waits = [await stream.any_event() for stream in (one, other)]
            assert all(wait is not None and 500 <= wait.retry_ms <= 5000 for wait in waits)
            assert [await stream.any_event() for stream in (one, other)] == [None, None]
    await eventually(lambda: workers.all[0].poll() is not None)
