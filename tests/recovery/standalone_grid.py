"""`quaestor cluster --master spark://...` as an operator runs it, and an app that caches what it guards."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pymongo

from benchmarks.setups.faults.processes import executor_of
from quaestor.clock import system_clock
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.spark import cell_pids
from quaestor.model import Cell
from quaestor.settings import Settings
from tests.recovery.test_resizing import App
from tests.support import eventually

START_S = 120
STOP_S = 60
RECOVERY_S = 90


class Command:
    """The command's process, and what it says, line by line."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quaestor.cli", "cluster", *arguments],
            env=os.environ | dict(environment or {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line)
                self._queue.put(line)
        self._queue.put(None)

    def until(self, text: str, *, within_s: float = START_S) -> None:
        """Return once it has said this; fails if it ends before."""
        while True:
            line = self._queue.get(timeout=within_s)
            assert line is not None, self.lines
            if text in line:
                return

    def ended(self, *, within_s: float = START_S) -> tuple[int, str]:
        """Its exit status and all that it said."""
        status = self.process.wait(within_s)
        self._reader.join(within_s)
        return status, "".join(self.lines)

    def stop(self) -> tuple[int, str]:
        """As Ctrl-C would. Nothing that it started is left."""
        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.terminate()
            _, alive = psutil.wait_procs(family, timeout=STOP_S)
            assert alive == []
        return self.ended(within_s=STOP_S)


@contextmanager
def command(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Command]:
    """Run a command, and stop it at the end in any case."""
    made = Command(*arguments, environment=environment)
    try:
        yield made
    finally:
        made.stop()
        print("".join(made.lines)[-3_000:])


@dataclass(slots=True, kw_only=True)
class Site:
    """One app process's view of a grid. where: what every command needs to find it."""

    deployment: str
    client: pymongo.MongoClient[dict[str, Any]]
    layer: RedisEventLayer
    app: App
    where: tuple[str, ...]

    @property
    def collection(self) -> Any:
        return self.app.collection

    def cells(self) -> dict[Cell, int]:
        """The process of each cell."""
        return cell_pids(self.layer, self.deployment)

    def on(self, executor: int) -> dict[Cell, int]:
        """The processes of the cells in this executor."""
        return {cell: pid for cell, pid in self.cells().items() if executor_of(pid).pid == executor}

    def serving(self) -> bool:
        return self.app.registry.serving(now_ms=system_clock())

    async def healthy(self, *, within_s: float = RECOVERY_S) -> None:
        """Every cell is fresh, and results can be cached."""
        await eventually(self.serving, within_s=within_s)

    async def cached(self, *values: int) -> None:
        """Return once these results are cached, guarded, and right."""

        async def all_live() -> bool:
            for value in values:
                if not self.app.live(value):
                    await self.app.cache(value)
            return all(self.app.live(value) for value in values)

        await eventually(all_live, within_s=RECOVERY_S)

    async def invalidates_exactly(self, first: int) -> None:
        """Check that a write invalidates the one of two cached results that it changes, and not the other."""
        await self.cached(first, first + 1)
        self.collection.insert_one({"a": first})
        await eventually(lambda: not self.app.live(first))
        await eventually(lambda: self.app.live(first + 1))  # what is dead never lives again; what lags does
        await self.cached(first)

    def status(self) -> tuple[int, dict[str, Any]]:
        """Exit status of `quaestor cluster status --json`, and what it tells."""
        done = subprocess.run(
            [
                sys.executable, "-m", "quaestor.cli", "cluster", "status", "--json",
                "--redis-url", self.where[3], "--deployment", self.deployment,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        status: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, status

    def silent(self) -> list[Any]:
        """The cells that status says are silent."""
        return [cell["cell"] for cell in self.status()[1]["cells"] if cell["lag_ms"] is None]


@contextmanager
def site(mongo_url: str, redis_url: str, deployment: str) -> Iterator[Site]:
    settings = Settings(deployment=deployment, activation_deadline_ms=10_000)
    with ExitStack() as opened:
        client = opened.enter_context(pymongo.MongoClient[dict[str, Any]](mongo_url))
        opened.callback(client.drop_database, deployment)
        client[deployment]["c"].insert_many([{"a": value} for value in range(10)])
        layer = opened.enter_context(closing(RedisEventLayer(redis_url, deployment)))
        app = App(layer, client[deployment]["c"], settings)
        app.registry.start()
        opened.callback(app.registry.stop)
        where = ("--mongo-url", mongo_url, "--redis-url", redis_url, "--deployment", deployment)
        yield Site(deployment=deployment, client=client, layer=layer, app=app, where=where)
