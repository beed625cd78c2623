"""The grid on a real Spark with separate executors: 2 x 2 cells and ingest, a real mongod, a real Valkey.

One grid for the whole module, run as its users run it: `python -m quaestor.invalidation.grid.spark`.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pymongo
import pytest
from anyio import to_thread

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification, encode_query_event
from quaestor.event_layer.partitioning import query_partition, write_partition
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.incremental import ResultEvent, replay
from quaestor.invalidation.grid.spark import SparkGrid, cell_pids
from quaestor.invalidation.grid.spark.home import require_java
from quaestor.invalidation.grid.spark.slots import default_master, require_slots
from quaestor.model import (
    Activated,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    Notification,
    Operation,
    Query,
    Registration,
)
from quaestor.planning.plan import plan_query
from quaestor.realtime.live import Whole
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.support import eventually

START_S = 150
DEADLINE_S = 60
SHAPE = GridShape(query_partitions=2, write_partitions=2)
CELLS = [Cell(query_partition=q, write_partition=w) for q in (0, 1) for w in (0, 1)]
DEPLOYMENT = "spark"
DATABASE = "spark_grid"


class Grid:
    """The grid's process, and an app process's view of what it says."""

    def __init__(self, process: subprocess.Popen[str], layer: RedisEventLayer, client: Any) -> None:
        self.process, self.layer = process, layer
        self.flights = client[DATABASE].flights
        self.stream = streams.notifications(DEPLOYMENT)
        self.after = "0"
        self.said: list[Notification] = []
        self.counter = itertools.count()

    def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < deadline, [n for n in self.said if not isinstance(n, Heartbeat)]
            assert self.process.poll() is None
            for entry in self.layer.read({self.stream: self.after}, count=1000, block_ms=100):
                self.after = entry.offset
                self.said.append(decode_notification(entry.payload))

    def fresh(self) -> int:
        """Every cell proves the present moment; returns the newest version that one of them has seen."""
        now_ms = system_clock()
        self.until(
            lambda: {n.cell for n in self.said if isinstance(n, Heartbeat) and n.fresh_as_of_ms >= now_ms} == set(CELLS)
        )
        return max(n.watermark for n in self.said if isinstance(n, Heartbeat))

    def register(self, row: int) -> str:
        """A cached result of its own, in this row of the grid; returns after both of its cells have activated it."""
        name = next(name for i in self.counter if query_partition(name := f"result-{i}", 2) == row)
        since = self.fresh()
        registration = Registration(
            id=name, tenant=DEPLOYMENT, query_id=name, since=since, read_at=since, members=(), last=None,
            query=Query(namespace=f"{DATABASE}.flights", operation=Operation.FIND, filter={"board": name}),
            expires_at_ms=system_clock() + 600_000,
        )  # fmt: skip
        self.layer.append(streams.queries(DEPLOYMENT, row), [encode_query_event(registration)])
        columns = {Cell(query_partition=row, write_partition=w) for w in (0, 1)}
        self.until(
            lambda: columns <= {n.cell for n in self.said if isinstance(n, Activated) and n.registration_id == name}
        )
        return name

    def write(self, board: str, column: int) -> None:
        """A new flight on this board whose record belongs to this column of the grid."""
        key = next(i for i in self.counter if write_partition(i, 2) == column)
        self.flights.insert_one({"_id": key, "board": board})

    def invalidated_by(self, name: str, cell: Cell) -> None:
        self.until(
            lambda: cell in {n.source for n in self.said if isinstance(n, Invalidated) and name in n.registration_ids}
        )


def executor_of(pid: int) -> psutil.Process:
    """The executor of a task's process; between them is the daemon that forks the workers."""
    daemon = psutil.Process(pid).parent()
    assert daemon is not None
    executor = daemon.parent()
    assert executor is not None
    return executor


@pytest.fixture(scope="module")
def client(mongo_url: str) -> Iterator[Any]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(DATABASE)
        client[DATABASE].create_collection("flights")
        yield client
        client.drop_database(DATABASE)


def started(mongo_url: str, redis_url: str, deployment: str = DEPLOYMENT, **environment: str) -> subprocess.Popen[str]:
    """The grid's process, after it has said that all cells run."""
    environment |= {"MONGO_URL": mongo_url, "REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": deployment}
    process = subprocess.Popen(
        [sys.executable, "-m", "quaestor.invalidation.grid.spark"],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "4 cells + ingest running" in line:
            return process
    process.wait()
    raise AssertionError(f"the grid did not start: {said}")


@pytest.fixture(scope="module")
def grid(mongo_url: str, redis_url: str, client: Any) -> Iterator[Grid]:
    process = started(mongo_url, redis_url)
    layer = RedisEventLayer(redis_url, DEPLOYMENT)
    tree = psutil.Process(process.pid).children(recursive=True)
    yield Grid(process, layer, client)
    layer.close()
    tree += psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert output.endswith("quaestor grid: stopped\n")
    _, alive = psutil.wait_procs(tree, timeout=DEADLINE_S)
    assert alive == []


@pytest.mark.timeout(START_S * 2)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"row {cell.query_partition}, column {cell.write_partition}")
def test_each_cell_invalidates_what_is_cached_in_its_row_and_written_in_its_column(grid: Grid, cell: Cell) -> None:
    name = grid.register(cell.query_partition)
    grid.write(name, cell.write_partition)
    grid.invalidated_by(name, cell)


@pytest.mark.anyio
async def test_subscriptions_go_on_when_their_cells_and_stages_are_killed(grid: Grid, redis_url: str) -> None:
    """A sorted window through two cells and a stage: first a cell is killed, then every task of the grid at once.

    The subscriber receives the whole result once, and never anew.
    """
    layer = RedisEventLayer(redis_url, DEPLOYMENT)
    app = Subscriptions(layer, ProcessContext.of(Settings(deployment=DEPLOYMENT)), shape=lambda: SHAPE)
    board = {"board": "subscribed"}
    query = Query(namespace=f"{DATABASE}.flights", operation=Operation.FIND, filter=board, sort=(("_id", -1),), limit=3)
    wholes, rows = 0, list[tuple[Any, Any]]()

    async def right() -> bool:
        nonlocal wholes, rows
        while live.waiting:
            event = await anext(live)
            if isinstance(event, Whole):
                rows, wholes = list(event.rows), wholes + 1
            elif isinstance(event, ResultEvent):
                rows = replay(rows, [event])
        return [row for _, row in rows] == list(grid.flights.find(board).sort("_id", -1).limit(3))

    try:
        async with await app.subscribe(query, deadline_s=DEADLINE_S) as live:
            for number in range(6):
                grid.write("subscribed", number % 2)
            await eventually(right, within_s=DEADLINE_S)
            grid.flights.delete_one({"_id": rows[0][0]})
            await eventually(right, within_s=DEADLINE_S)
            row = query_partition(plan_query(query).query_id, 2)
            victim = Cell(query_partition=row, write_partition=1)
            os.kill(cell_pids(grid.layer, DEPLOYMENT)[victim], signal.SIGKILL)
            for number in range(6):
                grid.write("subscribed", number % 2)
            grid.flights.delete_many({"_id": {"$in": [key for key, _ in rows]}})
            await eventually(right, within_s=DEADLINE_S)
            await to_thread.run_sync(grid.fresh)
            for executor in {executor_of(pid) for pid in cell_pids(grid.layer, DEPLOYMENT).values()}:
                for task in executor.children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # it ended when what had forked it did
                        task.kill()  # cells, stages, ingest and what forks them; Spark starts each again
            for number in range(6):
                grid.write("subscribed", number % 2)
            grid.flights.delete_many({"_id": {"$in": [key for key, _ in rows]}})
            await eventually(right, within_s=DEADLINE_S)
            assert wholes == 1
    finally:
        app.stop()
        layer.close()


@pytest.mark.slow
def test_nothing_outlives_a_killed_driver(mongo_url: str, redis_url: str, prefix: str, tmp_path: Path) -> None:
    process = started(mongo_url, redis_url, prefix, TMPDIR=str(tmp_path))  # what it leaves there goes with the test
    tree = psutil.Process(process.pid).children(recursive=True)
    assert len(tree) >= 1 + 2 + 2 + 5  # JVM, executors, daemons, workers
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(tree, timeout=DEADLINE_S)
    assert alive == []


@pytest.mark.parametrize(
    ("master", "remedy"),
    [
        (
            "local-cluster[2,2,1024]",
            r"has 4 slots, but 4 cells, 2 stages and ingest need 7: use local-cluster\[2,4,1024\]",
        ),
        ("local[4,8]", "has 4 slots"),
        ("local[8,1]", "never restarts a task"),
        ("local[8]", "is unknown to the grid"),
        ("mesos://x", "is unknown to the grid"),
        ("", "is unknown to the grid"),
    ],
)
def test_a_master_that_cannot_run_the_grid_is_refused_with_the_remedy(master: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        require_slots(master, SHAPE)


@pytest.mark.parametrize(
    "master", ["local-cluster[2,4,1024]", "local[7,20]", "spark://host:7077", "yarn", default_master(SHAPE)]
)
def test_a_master_with_room_is_accepted(master: str) -> None:
    require_slots(master, SHAPE)
    assert SparkGrid(master, shape=SHAPE, redis_url="redis://x", mongo_url="mongodb://x").job.tasks == 7


def test_no_java_is_one_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=f"no Java found in JAVA_HOME={tmp_path}.*apt-get install openjdk-17"):
        require_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(ConfigurationError, match="is Java 11, but Spark needs 17 or 21"):
        require_java()


def test_the_command_without_a_server_is_one_sentence(mongo_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "MONGO_URL")}
    process = subprocess.run(
        [sys.executable, "-m", "quaestor.invalidation.grid.spark"],
        env=environment | {"MONGO_URL": mongo_url}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 2
    assert process.stderr == "quaestor grid: the grid needs REDIS_URL: set it to the server's URL\n"
