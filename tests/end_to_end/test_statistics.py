"""The statistics job as its users run it: `quaestor statistics run`, a real Spark, a real Valkey; killed and started
again.

One complete run. Driver and JVM are killed at random moments.
Afterwards every write is in the history once, and the windows equal the counts of the writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pymongo
import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_notification
from quaestor.model import Invalidated, MatchType, WriteKind
from quaestor.statistics.published import Windows
from quaestor.statistics.reader import newest as newest_windows
from quaestor.statistics.reader import writes
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.log import Table
from quaestor.tables.maintenance import maintain
from quaestor.tables.reading import table_rows
from tests.unit.statistics.feed import CELL, TICK, WALL_MS, Feed, feed, image

START_S = 240
NAMESPACES = ("shop.items", "shop.orders", "odd/name of a: collection")
AT_ONCE = 25


class Job:
    """The job's process."""

    def __init__(self, redis_url: str, deployment: str, directory: Path, **variables: str) -> None:
        self.directory = directory
        self.log = directory.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "quaestor.cli", "statistics", "run", "--directory", str(directory), "--windows", "1,5",
                    "--trigger", "0.5", "--lateness", "1",
                ],
                env=os.environ
                | {"REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": deployment, "TMPDIR": str(directory.parent)}
                | variables,
                stdout=log, stderr=log,
            )  # fmt: skip

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not done():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            with pytest.raises(subprocess.TimeoutExpired):
                self.process.wait(0.2)

    def tree(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """The JVM first, so that it cannot end in order; then the driver. Returns when nothing of it is left."""
        tree = self.tree()
        for process in tree:
            with suppress(psutil.NoSuchProcess):  # a worker whose task ended meanwhile
                if process.name() == "java":
                    process.send_signal(signal.SIGKILL)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        assert psutil.wait_procs(tree, timeout=60)[1] == []

    def stop(self) -> None:
        tree = self.tree()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()[-3000:]
        assert psutil.wait_procs(tree, timeout=60)[1] == []


@contextmanager
def running(redis_url: str, deployment: str, directory: Path, **variables: str) -> Iterator[Job]:
    job = Job(redis_url, deployment, directory, **variables)
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.kill()


class Writers:
    """Append the events of a grid, and remember them, until stopped."""

    def __init__(self, fed: Feed) -> None:
        self.fed = fed
        self.written: set[tuple[str, Any, int, str]] = set()
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.version = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.4):
            self.append()

    def append(self) -> None:
        images = []
        for _ in range(AT_ONCE):
            self.version += 1
            namespace = NAMESPACES[self.version % 7 % 3]
            kind = (WriteKind.INSERT, WriteKind.UPDATE, WriteKind.DELETE)[self.version % 5 % 3]
            write = image(self.version, f"k{self.version % 40}", namespace=namespace, kind=kind)
            images.append(write)
            self.written.add((namespace, write.key, write.version, kind.value))
            self.counts["collection", namespace, kind.value] += 1
        again = images[-3:]  # as ingest does when it was restarted
        self.fed.write(*images, *again, TICK)
        notification = Invalidated(
            registration_ids=("a:1",), query_id="q1", match_type=MatchType.CHANGE_INDEX, version=self.version, key="k1",
            written_at_ms=WALL_MS, source=CELL,
        )  # fmt: skip
        self.fed.layer.append(streams.notifications(self.fed.deployment), [encode_notification(notification)])
        self.fed.used(queries=[("q1", 3)])
        self.counts["query", "q1", "changeIndex"] += 1
        self.counts["query", "q1", "hit"] += 3

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def identities(directory: Path) -> list[tuple[str, Any, int, str]]:
    return [(write.namespace, write.key, write.version, write.kind) for write in writes(directory)]


def newest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def repeat_the_last_batch(checkpoint: Path) -> None:
    """As if the driver had died after the batch was published and before Spark noted that."""
    last = newest(checkpoint / "commits")
    if int(newest(checkpoint / "offsets").name) == int(last.name):
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_every_write_is_in_the_history_once_and_counted_though_the_job_is_killed(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    directory = tmp_path / "statistics"
    history = Table(directory / "history")
    with feed(redis_url, prefix) as fed:
        writers = Writers(fed)
        try:
            with running(redis_url, prefix, directory) as job:
                job.until(
                    lambda: len(history.snapshot().files) > 5 and bool(Table(directory / "windows").snapshot().files)
                )
                job.kill()
            before = identities(directory)
            repeat_the_last_batch(directory / "checkpoints" / "history")
            maintain(history, file_bytes=1 << 20, keep_days=0, grace_s=3600, now_ms=WALL_MS)
            assert sorted(identities(directory)) == sorted(before)
            with running(redis_url, prefix, directory) as job:
                job.until(lambda: sum(file.rows for file in history.snapshot().files.values()) > len(before))
                job.until(lambda: _names(newest_windows(fed.layer, prefix, [1])[0]) >= {*NAMESPACES, "q1"})
                assert _shown(redis_url, prefix)
                writers.stop()
                job.until(lambda: sum(file.rows for file in history.snapshot().files.values()) >= len(writers.written))
                job.until(lambda: _counted(fed, directory) == writers.counts)
                job.stop()
        finally:
            writers.stop()
    recorded = identities(directory)
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == writers.written
    assert all(
        write.after == {"_id": write.key, "version": write.version}
        for write in writes(directory)
        if write.kind != "delete"
    )
    assert _counted(None, directory) == writers.counts
    _check_windows(directory)


def test_the_job_fills_tables_from_collections(mongo_url: str, redis_url: str, prefix: str, tmp_path: Path) -> None:
    """The driver fills `filled_tables` beside its own work, and releases the lease at its end."""
    database = f"statistics_{prefix}"
    catalogue = Catalogue(tmp_path / "tables")

    def versions() -> int:
        if "items" not in catalogue.names():
            return 0
        return sum(file.rows for file in catalogue.open("items").snapshot().files.values())

    with pymongo.MongoClient[Any](mongo_url, w="majority") as client, feed(redis_url, prefix) as fed:
        client[database].items.insert_one({"_id": 0, "n": 0})
        with running(
            redis_url, prefix, tmp_path / "statistics", MONGO_URL=mongo_url,
            QUAESTOR_FILLED_TABLES=f"{database}.items", QUAESTOR_CONTINUOUS_FOLDER=str(tmp_path / "tables"),
        ) as job:  # fmt: skip
            job.until(lambda: versions() == 1)
            client[database].items.update_one({"_id": 0}, {"$set": {"n": 1}})
            job.until(lambda: versions() == 2)
            assert fed.layer.leaseholder(streams.filler(prefix)) is not None
            job.stop()
        assert fed.layer.leaseholder(streams.filler(prefix)) is None
        client.drop_database(database)


def _counted(fed: Feed | None, directory: Path) -> Counter[tuple[str, str, str]]:
    """The sums of all final windows of one second; what is appended meanwhile makes time go on."""
    if fed is not None:
        fed.write(TICK)
    sums: Counter[tuple[str, str, str]] = Counter()
    for row in table_rows(Table(directory / "windows"), keep=lambda folders: folders["window_s"] == "1"):
        if row["scope"] != "deployment":
            for measure in ("insert", "update", "delete", "changeIndex", "hit"):
                sums[row["scope"], row["name"], measure] += row[measure]
    return +sums


def _check_windows(directory: Path) -> None:
    rows = []
    for length in ("1", "5"):
        own = list(
            table_rows(Table(directory / "windows"), keep=lambda folders, length=length: folders["window_s"] == length)
        )
        keys = [(row["start"], row["scope"], row["name"]) for row in own]
        assert own
        assert len(keys) == len(set(keys))
        rows += own
    for row in rows:
        if row["scope"] == "collection":
            written = row["insert"] + row["update"] + row["delete"]
            assert sum(row_["count"] for row_ in row["top"]) <= written
            assert row["top"] == sorted(row["top"], key=lambda entry: -entry["count"])
            assert len(row["top"]) <= 20


def _names(windows: Windows) -> set[str]:
    return {row.name for rows in windows.by_start.values() for row in rows}


def _shown(redis_url: str, deployment: str) -> list[Any]:
    output = subprocess.run(
        [sys.executable, "-m", "quaestor.cli", "statistics", "show", "--windows", "1", "--json"],
        env=os.environ | {"REDIS_URL": redis_url, "QUAESTOR_DEPLOYMENT": deployment}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    (windows,) = json.loads(output.stdout)
    return list(windows["windows"])
