"""Run and delivery, killed at each durable step: a program that forks, kills its child at one `fsync`, and goes on.

Prints one JSON object: number of kills, and what the tables, the file and the receiver hold in the end of each.
The engine is `plain`; `joined`, which joins the result files after each run and is killed at each change of a folder too; or
`sql`: the service with the real compiler, and a query whose rows repeat.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.file import FileSink
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.runs import results
from quaestor.continuous.runs.deliveries import deliver
from quaestor.continuous.runs.results import maintain_results
from quaestor.continuous.service import ContinuousService, ServiceParts
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.schema import Type
from quaestor.tables.storage import FolderStorage
from tests.continuous.runs.world import NOON, World

RUNS = 2
REPEATING = "SELECT r.id, r.note FROM reminders r, rooms WHERE r.due_at = now()"
_FOLDER_CHANGES = ("unlink", "rename", "replace", "link")


class KeyLog:
    """Sink that notes each delivery durably before it confirms, as a receiver of another machine would."""

    kind = "file"
    name = "file:log"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def deliver(self, batch: Any) -> None:
        with self._path.open("a") as file:
            for key, row in batch.keyed_rows():
                file.write(json.dumps([key, row["id"]]) + "\n")
            file.flush()
            os.fsync(file.fileno())


def kill_at(step: int, calls: tuple[str, ...] = ("fsync",)) -> None:
    """Kill this process before the call of this number. The page cache outlives the process, so after it is the same."""
    count = 0

    def counted(call: Any) -> Any:
        def struck(*args: Any, **given: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **given)

        return struck

    for name in calls:
        setattr(os, name, counted(getattr(os, name)))


def prepare(folder: Path, engine: str) -> None:
    """Make the tables: a reminder is due in each of the minutes, and was due in the first one too."""
    world = World(folder / "tables")
    world.reminders()
    sinks = "file:results.ndjson", "file:log"
    if engine != "sql":
        world.install(sinks=sinks)
    else:
        world.table("rooms", id=Type.BIGINT)
        world.add("rooms", {"id": 1}, {"id": 2})
        world.install(text=REPEATING, sinks=sinks)
    for minute in range(1, RUNS + 1):
        world.add("reminders", {"id": minute, "note": "x", "due_at": NOON + timedelta(minutes=minute)})
    world.add("reminders", {"id": 1, "note": "x", "due_at": NOON + timedelta(minutes=RUNS)})


def work(folder: Path, engine: str) -> None:
    """Run the query at each minute and deliver its results, from wherever the process before was."""
    world = World(folder / "tables")
    telemetry = Telemetry()
    courier = Courier(DeadLetters(FolderStorage(folder)), telemetry, attempts=1)
    sinks = {
        "file:results.ndjson": FileSink("file:results.ndjson", folder / "results.ndjson"),
        "file:log": KeyLog(folder / "log"),
    }
    if engine == "sql":
        service = ContinuousService(
            ServiceParts(
                catalogue=world.catalogue, installed=world.installed, engine=SqlEngine(world.catalogue, DuckDbExecutor()),
                courier=courier, sink_of=sinks.get, telemetry=telemetry, clock=world.clock,
            )
        )  # fmt: skip
    for _ in range(RUNS):
        world.advance(minutes=1)
        if engine == "sql":
            asyncio.run(service.run_due())
            continue
        world.run()
        if engine == "joined":
            join(world, folder)
        for sink in sinks.values():
            asyncio.run(deliver(world.installed.get("due"), sink, world.catalogue, courier))
    if engine == "joined":
        world.advance(hours=2)
        join(world, folder)


def join(world: World, folder: Path) -> None:
    """Join the files of the results, and delete the files that no reader can need any more."""
    results.MANY_FILES = 1  # type: ignore[misc]
    (folder / "joining").touch()
    maintain_results(world.catalogue, "results.due", world.clock())
    os.remove(folder / "joining")


def state(folder: Path) -> dict[str, Any]:
    """Return the results, and the keys with values that the sinks have."""
    world = World(folder / "tables")
    log = folder / "log"
    return {
        "results": [[f"due/{row['_run']}/{row['_row']}", row["id"]] for row in world.results()],
        "file": [[line["key"], line["row"]["id"]] for line in map(json.loads, (folder / "results.ndjson").open())],
        "log": [json.loads(line) for line in log.open()],
        "files": len(world.catalogue.open("results.due").snapshot().files),
        "struck": (folder / "struck").exists(),
    }


def keep_state(folder: Path) -> None:
    """Write the state for the parent."""
    (folder / "state").write_text(json.dumps(state(folder)))


def in_child(job: Any) -> int:
    """Run a job in a child; return its wait status."""
    child = os.fork()
    if child == 0:
        try:
            job()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def strike(folder: Path, engine: str, step: int) -> bool:
    """Prepare a folder, and kill a process that works in it at a step; return whether it came that far."""
    folder.mkdir()
    assert in_child(partial(prepare, folder, engine)) == 0

    def struck() -> None:
        kill_at(step, ("fsync", *(_FOLDER_CHANGES if engine == "joined" else ())))
        work(folder, engine)

    status = in_child(struck)
    assert status == 0 or os.WIFSIGNALED(status), status
    if (folder / "joining").exists():
        (folder / "struck").touch()
    return status != 0


def main(root: Path, engine: str) -> None:
    """Kill at each step, and let another process go on, until a process ends by itself."""
    pa.array([NOON], pa.timestamp("us", tz="UTC")).to_pylist()  # loads in the parent what every child would load
    ended = []
    step = 1
    while strike(folder := root / str(step), engine, step):
        assert in_child(partial(work, folder, engine)) == 0
        assert in_child(partial(keep_state, folder)) == 0
        ended.append(json.loads((folder / "state").read_text()))
        step += 1
    print(json.dumps(ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
