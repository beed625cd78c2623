"""`uvicorn --workers 2` without a Redis: a write to a worker is seen by the other worker within the staleness bound."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pymongo
import pytest

from quaestor.settings import Settings
from tests.examples.started import uvicorn
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

APP = "tests.end_to_end.embedded_workers_app:app"
ROUNDS = 20
PATIENCE_S = 60.0
BOUND_S = Settings(deployment="any").grid.staleness_bound_ms / 1_000


class Worker:
    """One connection, and so one process, as long as the connection stays open."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.process = 0

    async def ask(self, method: str, name: str) -> tuple[int, bool]:
        """Return the value of a counter, and whether the answer is a cached one."""
        answer = await self._client.request(method, f"/counters/{name}")
        answer.raise_for_status()
        self.process = int(answer.headers["x-worker"])
        return answer.json(), "; hit" in answer.headers.get("cache-status", "")


@pytest.fixture
async def workers(mongo_url: str, prefix: str, tmp_path: Path) -> AsyncIterator[tuple[Worker, Worker]]:
    """A connection to each of the two processes."""
    async with AsyncExitStack() as running:
        command = ("--workers", "2", "--timeout-keep-alive", "600")
        starting = uvicorn(tmp_path, APP, *command, MONGO_URL=mongo_url, DATABASE=prefix)
        url = await anyio.to_thread.run_sync(running.enter_context, starting)
        by_process: dict[int, Worker] = {}

        async def both() -> bool:
            # The kernel chooses the worker of a connection.
            client = await running.enter_async_context(httpx.AsyncClient(base_url=url, timeout=PATIENCE_S))
            worker = Worker(client)
            await worker.ask("GET", "any")
            by_process.setdefault(worker.process, worker)
            return len(by_process) == 2

        await eventually(both, within_s=PATIENCE_S)
        yield by_process.popitem()[1], by_process.popitem()[1]
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(prefix)


async def test_a_write_to_a_worker_reaches_the_cache_of_the_other_within_the_bound(
    workers: tuple[Worker, Worker],
) -> None:
    """A POST to a worker, then GETs of the other's cached copy until it is new.

    An old answer began at most the staleness bound after the POST's answer. No answer is older than the write before.
    """
    writer, reader = workers
    old = 0
    for number in range(ROUNDS):
        writer, reader = reader, writer

        async def cached(reader: Worker = reader, before: int = number) -> bool:
            return await reader.ask("GET", "shared") == (before, True)

        await eventually(cached, within_s=PATIENCE_S)
        value, _ = await writer.ask("POST", "shared")
        assert value == number + 1
        written_s = time.monotonic()
        while True:
            began_s = time.monotonic()
            value, _ = await reader.ask("GET", "shared")
            assert writer.process != reader.process
            if value == number + 1:
                break
            assert value == number
            # No matter how slow the machine is: a process whose proof of freshness is older serves nothing.
            assert began_s - written_s <= BOUND_S
            old += 1
    print(f"{old} old answers in {ROUNDS} rounds")
