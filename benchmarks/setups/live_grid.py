"""Processes of benchmarks with a grid of its own: the grid, paced inserts, and a follower of its results without a socket."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pymongo

from quaestor import Operation, Quaestor, Query, ResultEvent
from quaestor.realtime.live import LiveResult
from quaestor.testing import reaper, servers
from quaestor.testing.servers import Server

SUBSCRIBED_AT_ONCE: Final = 50
WRITERS: Final = 8
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Addresses of one deployment, and the name of its database."""

    mongo_url: str
    redis_url: str
    name: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the processes that belong to it."""
        return os.environ | {
            "MONGO_URL": self.mongo_url, "REDIS_URL": self.redis_url, "QUAESTOR_MONGO_URL": self.mongo_url,
            "QUAESTOR_REDIS_URL": self.redis_url, "QUAESTOR_DEPLOYMENT": self.name, "DATABASE": self.name,
        }  # fmt: skip


def grid(folder: Path, deployment: Deployment, shape: tuple[int, int] = (1, 1)) -> Server:
    """Return `quaestor grid`, not started yet: cells, stages and ingest as processes.

    shape: numbers of query partitions and of write partitions.
    """
    partitions = ["--query-partitions", str(shape[0]), "--write-partitions", str(shape[1])]
    server = Server(
        "grid", [sys.executable, "-m", "quaestor.cli", "grid", *partitions], folder, 0, "",
        ready=lambda: "running" in server.log_tail(), environment=deployment.environment,
    )  # fmt: skip
    return server


@contextmanager
def running_grid(folder: Path, deployment: Deployment, shape: tuple[int, int] = (1, 1)) -> Iterator[Server]:
    """The grid, until the end of the block."""
    folder.mkdir(exist_ok=True)
    server = grid(folder, deployment, shape)
    server.launch()
    try:
        server.wait_ready(timeout_s=120)
        yield server
    finally:
        reaper.stop_tree(server)


@contextmanager
def running_databases() -> Iterator[tuple[str, str, Path]]:
    """Yield the URLs of a mongod and a Valkey, and an empty folder. All processes have ended after the block."""
    reaper.adopt_orphans()
    with ExitStack() as stack:
        stack.callback(reaper.sweep)
        mongo = stack.enter_context(servers.running(partial(servers.mongod_server, journal_ms=10), "mongod"))
        redis = stack.enter_context(servers.running(partial(servers.redis_server, persistent=False), "valkey"))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-"))
        yield mongo.url, redis.url, Path(folder)


class Child:
    """A process of its own that answers what it receives. Its function takes the deployment and its end of the pipe."""

    def __init__(self, target: Any, deployment: Deployment) -> None:
        self.pipe, child_end = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=target, args=(deployment, child_end), daemon=True)
        self._process.start()
        child_end.close()

    async def ask(self, question: Any) -> Any:
        """Send a question and wait for the answer."""
        self.pipe.send(question)
        return await asyncio.to_thread(self.pipe.recv)

    def close(self) -> None:
        """End the process."""
        self.pipe.send(None)
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def paced_inserts(deployment: Deployment, pipe: Connection) -> None:
    """Insert records at a fixed rate, from several threads, whenever the pipe holds (queries, writes, rate in Hz).

    The record of number n has `k: n % queries`. The answer: moment of each acknowledgement by the monotonic clock in s, and the
    achieved rate in Hz.
    """
    with (
        pymongo.MongoClient[dict[str, Any]](deployment.mongo_url) as client,
        ThreadPoolExecutor(WRITERS) as threads,
    ):
        items = client[deployment.name].items
        while (load := pipe.recv()) is not None:
            _, writes, rate_hz = load
            acknowledged_s = [0.0] * writes
            begun_s = time.perf_counter()

            def write(
                first: int, acknowledged_s: list[float] = acknowledged_s, begun_s: float = begun_s, load: Any = load
            ) -> None:
                queries, writes, rate_hz = load
                for number in range(first, writes, WRITERS):
                    time.sleep(max(0.0, begun_s + number / rate_hz - time.perf_counter()))
                    items.insert_one({"_id": number, "k": number % queries, "n": number})
                    acknowledged_s[number] = time.perf_counter()

            list(threads.map(write, range(WRITERS)))
            pipe.send((acknowledged_s, writes / max(time.perf_counter() - begun_s, writes / rate_hz)))


def follower(deployment: Deployment, pipe: Connection) -> None:
    """Follow queries in this process, without a socket, whenever the pipe holds their number.

    The first answer comes when all results are here. After another message the answer is the moment at which each record
    arrived, by its number `n`.
    """
    asyncio.run(_follow(deployment, pipe))


async def _follow(deployment: Deployment, pipe: Connection) -> None:
    quaestor = Quaestor(
        mongo_url=deployment.mongo_url, redis_url=deployment.redis_url, deployment=deployment.name, verification=False
    )
    await quaestor.start()
    try:
        while (queries := await asyncio.to_thread(pipe.recv)) is not None:
            arrived: dict[int, float] = {}
            followed: list[LiveResult] = []
            for start in range(0, queries, SUBSCRIBED_AT_ONCE):
                numbers = range(start, min(queries, start + SUBSCRIBED_AT_ONCE))
                followed += await asyncio.gather(
                    *(quaestor.subscribe(_query(deployment, number)) for number in numbers)
                )
            tasks = [asyncio.ensure_future(_note(live, arrived)) for live in followed]
            pipe.send("ready")
            while await asyncio.to_thread(pipe.recv) is not None:
                pipe.send(dict(arrived))
            for live in followed:
                await live.cancel()
            await asyncio.gather(*tasks)
            pipe.send("ended")
    finally:
        await quaestor.stop()


def _query(deployment: Deployment, number: int) -> Query:
    return Query(namespace=f"{deployment.name}.items", operation=Operation.FIND, filter={"k": number})


async def _note(live: LiveResult, arrived: dict[int, float]) -> None:
    async for message in live:
        if isinstance(message, ResultEvent):
            arrived.setdefault(message.document["n"], time.perf_counter())


__all__ = ["Child", "Deployment", "follower", "paced_inserts", "running_databases", "running_grid"]
