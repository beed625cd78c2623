"""Program: one run of a continuous query on Spark, which ends by SIGKILL at a named moment, or goes on to the end.

Arguments: a folder and the moment. The program writes the JVM's process id to the folder, and prints the results.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from quaestor.continuous.executors.spark import SparkExecutor
from quaestor.continuous.executors.spark_session import spark_session
from quaestor.continuous.installed import InstalledQueries, InstalledQuery
from quaestor.continuous.runs.run import run
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

TEXT = """SELECT m.id FROM m WHERE m.id % 7 = 0 AND NOT EXISTS (SELECT 1 FROM r WHERE r.id = m.id)"""
ROWS = 700


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_a_stage(session: Any) -> None:
    """Kill this process as soon as Spark executes a stage."""
    tracker = session.sparkContext.statusTracker()
    while not tracker.getActiveStageIds():
        pass
    kill()


def main(folder: Path, moment: str) -> None:
    """Add rows, run the query, and print all results."""
    catalogue = Catalogue(folder / "tables")
    installed = InstalledQueries(catalogue)
    if "m" not in catalogue.names():
        for name in ("m", "r"):
            catalogue.create(name, Schema((Column("id", Type.BIGINT),)))
        installed.install(InstalledQuery(name="q", text=TEXT, every="1m"))
    table = catalogue.open("m")
    first = sum(file.rows for file in table.snapshot().files.values())
    table.append({"id": number} for number in range(first, first + ROWS))

    def start() -> Any:
        session = spark_session("local[1]")
        (folder / "jvm").write_text(str(session.sparkContext._gateway.proc.pid))
        if moment == "stage":
            threading.Thread(target=partial(kill_in_a_stage, session), daemon=True).start()
        return session

    class Ending(SparkExecutor):
        """Spark that is killed before its rows are used."""

        def rows(self, *args: Any, **given: Any) -> Any:
            rows = super().rows(*args, **given)
            if moment == "rows":
                kill()
            return rows

    with Ending(start) as executor:
        query = installed.get("q")
        run(query, SqlEngine(catalogue, executor).prepare(query.text), catalogue)
        if moment == "published":
            kill()
    results = catalogue.open(query.results)
    snapshot = results.snapshot()
    rows = results.scan(snapshot, 0, snapshot.instant, ["id"]).column("id").to_pylist()
    print(json.dumps({"results": sorted(rows), "rows": first + ROWS}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
