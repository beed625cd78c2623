"""Filling of tables in an app, by the command line and beside the statistics job; retention; pins of snapshots."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from quaestor import ConfigurationError, Quaestor
from quaestor.errors import DependencyError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.filled import filled_table, filled_tables
from quaestor.tables.inference import DELETED
from quaestor.tables.intervals import versions
from quaestor.tables.maintenance import compact, maintain, tidy
from quaestor.tables.pins import oldest_pin, pinned
from quaestor.tables.retention import RETAINED, retain
from quaestor.tables.schema import Column, Schema, Type
from quaestor.tables.versioned import VersionedTable
from tests.support import eventually

NOON_MS = int(datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000
PATIENCE_S = 100.0


@pytest.fixture(scope="module")
def client(mongo_url: str) -> Iterator[pymongo.MongoClient[Any]]:
    with pymongo.MongoClient[Any](mongo_url, w="majority") as client:
        yield client


@pytest.fixture
def items(client: pymongo.MongoClient[Any]) -> Iterator[Collection[Any]]:
    """Collection of this test."""
    database = client[f"filling_{uuid.uuid4().hex[:8]}"]
    yield database.items
    client.drop_database(database)


class Clock:
    """Clock that a test drives."""

    def __init__(self) -> None:
        self.now_ms = NOON_MS

    def __call__(self) -> int:
        return self.now_ms


def until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"never: {what()}"
        time.sleep(0.02)


def numbers(folder: Path, name: str = "items") -> list[int]:
    """Values of `n` in a table, in the order of their instants; none while there is no table."""
    catalogue = Catalogue(folder)
    if name not in catalogue.names():
        return []
    table = catalogue.open(name)
    snapshot = table.snapshot()
    if "n" not in table.schema(snapshot).names:
        return []
    return [row["n"] for row in table.scan(snapshot, -1, snapshot.instant, ["n"]).sort_by("ts").to_pylist()]


@pytest.mark.parametrize(
    ("text", "name", "namespace", "columns"),
    [
        ("shop.orders", "orders", ("shop", "orders"), None),
        ("shop.orders.old", "orders_old", ("shop", "orders.old"), None),
        ("late=shop.orders", "late", ("shop", "orders"), None),
        ("shop.orders(_id:text price:double)", "orders", ("shop", "orders"), ("_id", "price")),
    ],
)
def test_a_text_describes_a_filled_table(
    text: str, name: str, namespace: tuple[str, str], columns: tuple[str, ...] | None
) -> None:
    """Name, namespace and declared columns of each form."""
    table = filled_table(text)
    assert (table.name, (table.database, table.collection)) == (name, namespace)
    assert (None if table.declared is None else table.declared.names) == columns


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (("orders",), "describes no filled table"),
        (("shop.orders(price)",), "'price' is no column"),
        (("shop.orders(price:money)",), "with a type of bigint"),
        (("a.orders", "b.orders"), "two collections fill the table 'orders'"),
    ],
)
def test_a_text_that_describes_no_table_is_refused_with_the_remedy(texts: tuple[str, ...], sentence: str) -> None:
    """The message names the text and the form."""
    with pytest.raises(ConfigurationError, match=sentence):
        filled_tables(texts)


@pytest.mark.anyio
async def test_one_process_of_a_deployment_fills_and_the_next_takes_over(
    items: Collection[Any], mongo_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Two apps on one Redis: one of them fills. After its stop the other goes on; every version is there once."""
    items.insert_one({"_id": 0, "n": 0})

    def app() -> Quaestor:
        return Quaestor(
            mongo_url=mongo_url, redis_url=redis_url, deployment=deployment, continuous_folder=str(tmp_path),
            filled_tables=(f"{items.database.name}.items",),
        )  # fmt: skip

    def fills(quaestor: Quaestor) -> bool:
        return "filling items" in {report.name for report in quaestor.services()}

    deployment = uuid.uuid4().hex[:12]
    first, second = app(), app()
    await first.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await eventually(lambda: numbers(tmp_path) == [0])
            await second.start()
            items.insert_one({"_id": 1, "n": 1})
            await eventually(lambda: numbers(tmp_path) == [0, 1])
            assert fills(first)
            assert not fills(second)
            await first.stop()
            items.insert_one({"_id": 2, "n": 2})
            await eventually(lambda: numbers(tmp_path) == [0, 1, 2])
        assert fills(second)
    finally:
        await first.stop()
        await second.stop()


@pytest.mark.anyio
async def test_filled_tables_without_a_folder_are_refused(mongo_url: str) -> None:
    """The start raises with the setting that is missing."""
    quaestor = Quaestor(mongo_url=mongo_url, filled_tables=("shop.items",))
    with pytest.raises(ConfigurationError, match="continuous_folder"):
        await quaestor.start()


def command(folder: Path, *arguments: str, stdin: str = "") -> str:
    """Output of a command of the group `quaestor tables`."""
    done = subprocess.run(
        [sys.executable, "-m", "quaestor.cli", "tables", *arguments], input=stdin, text=True, capture_output=True,
        env=os.environ | {"QUAESTOR_CONTINUOUS_FOLDER": str(folder)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_makes_fills_shows_and_drops_tables(
    items: Collection[Any], mongo_url: str, tmp_path: Path
) -> None:
    """`append` and `fill` write what `list` and `show` report; a killed `fill` loses nothing; `drop` ends a table."""
    instant = int(
        command(
            tmp_path, "append", "notes", "--column", "id:bigint", "--column", "due:timestamp",
            stdin='{"id": 1, "due": {"$date": "2026-11-28T12:00:00Z"}}\n{"id": 2}\n',
        )
    )  # fmt: skip
    assert instant == Catalogue(tmp_path).open("notes").snapshot().instant
    for number in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "quaestor.cli", "tables", "fill", f"stock={items.database.name}.items(_id:bigint n:bigint)"],
            env=os.environ | {"QUAESTOR_CONTINUOUS_FOLDER": str(tmp_path), "MONGO_URL": mongo_url},
        )  # fmt: skip
        try:
            items.insert_one({"_id": number, "n": number, "ignored": "x"})
            until(lambda upto=number: numbers(tmp_path, "stock") == [*range(upto + 1)])  # type: ignore[misc]
        finally:
            process.send_signal(signal.SIGKILL if number == 0 else signal.SIGTERM)
            assert process.wait(60) == (-signal.SIGKILL if number == 0 else 0)
    assert [text.split()[:2] for text in command(tmp_path, "list").splitlines()] == [["notes", "2"], ["stock", "2"]]
    described, *rows = map(json.loads, command(tmp_path, "show", "stock", "--rows", "1").splitlines())
    assert described["key"] == ["_id"]
    assert set(described["columns"]) == {"_id", DELETED, "n"}
    assert [row["n"] for row in rows] == [1]
    command(tmp_path, "drop", "notes")
    assert Catalogue(tmp_path).names() == ["stock"]


def test_a_wrong_line_appends_nothing(tmp_path: Path) -> None:
    """The message names the line, and the status is 2."""
    command(tmp_path, "append", "notes", "--column", "id:bigint")
    done = subprocess.run(
        [sys.executable, "-m", "quaestor.cli", "tables", "append", "notes", "--folder", str(tmp_path)],
        input='{"id": 1}\n[2]\n', text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "line 2 is no object" in done.stderr) == (2, True)
    assert command(tmp_path, "list").split()[1] == "0"


KEYED = Schema((Column("_id", Type.BIGINT), Column(DELETED, Type.BOOL), Column("n", Type.BIGINT)), ("_id",))


def history(table: VersionedTable) -> list[tuple[Any, ...]]:
    snapshot = table.snapshot()
    rows = versions(table, snapshot, snapshot.instant).to_pylist()
    return sorted(
        (row["_id"], row["valid_from"].timestamp(), row["n"], row["valid_to"] and row["valid_to"].timestamp())
        for row in rows
    )


@pytest.mark.parametrize("seed", range(5))
def test_retention_changes_nothing_from_its_instant_on(seed: int, tmp_path: Path) -> None:
    """Random versions. A version that was valid at the instant or later stays as it was; the others go."""
    chance, clock = random.Random(seed), Clock()
    table = Catalogue(tmp_path, clock=clock).create("items", KEYED)
    for number in range(60):
        clock.now_ms += HOUR_MS
        rows = [
            {"_id": key, DELETED: chance.random() < 0.3, "n": number}
            for key in chance.sample(range(8), chance.randint(1, 3))
        ]
        table.append(rows)
        if chance.random() < 0.1:
            maintain(table.table, file_bytes=1 << 20, keep_days=0, grace_s=0, now_ms=clock.now_ms)
    before = (NOON_MS + 40 * HOUR_MS) * 1000
    edge_s = before / 1e6
    whole = history(table)
    dropped = retain(table, before=before)
    left = history(table)
    assert dropped > 0
    assert [row for row in left if row[3] is None or row[3] > edge_s] == [
        row for row in whole if row[3] is None or row[3] > edge_s
    ]
    assert [row for row in left if row[3] is not None and row[3] <= edge_s] == []
    assert table.snapshot().notes[RETAINED] == str(before)
    assert retain(table, before=before) == 0


def test_retention_of_a_table_without_a_key_drops_whole_old_entries(tmp_path: Path) -> None:
    """Rows after the instant stay."""
    clock = Clock()
    table = Catalogue(tmp_path, clock=clock).create("notes", Schema((Column("n", Type.BIGINT),)))
    for number in range(4):
        clock.now_ms += HOUR_MS
        table.append([{"n": number}])
    assert retain(table, before=(NOON_MS + 2 * HOUR_MS) * 1000) == 2
    assert numbers(tmp_path, "notes") == [2, 3]


def test_the_pin_of_a_run_keeps_its_files(tmp_path: Path) -> None:
    """A run reads its snapshot after a compaction and a clean-up without grace. Without its pin it gets an error."""
    clock = Clock()
    table = Catalogue(tmp_path, clock=clock).create("notes", Schema((Column("n", Type.BIGINT),)))
    for number in range(3):
        table.append([{"n": number}])
    snapshot = table.snapshot()

    def clean() -> int:
        clock.now_ms += 1_000
        compact(table.table, [*table.snapshot().files.values()], now_ms=clock.now_ms)
        clock.now_ms += 1_000
        return tidy(table.table, grace_s=0, now_ms=clock.now_ms)

    with pinned({table.table: snapshot}, after_s=0, clock=clock):
        assert clean() == 0
        assert table.scan(snapshot, -1, snapshot.instant).num_rows == 3
    assert oldest_pin(table.table, now_ms=clock.now_ms) is None
    table.append([{"n": 3}])
    assert clean() == 3 + 2
    with pytest.raises(DependencyError):
        table.scan(snapshot, -1, snapshot.instant)


def test_the_pin_of_a_killed_run_ends_after_a_day(tmp_path: Path) -> None:
    """Clean-up deletes it, and the files that it kept."""
    clock = Clock()
    table = Catalogue(tmp_path, clock=clock).create("notes", Schema((Column("n", Type.BIGINT),)))
    table.append([{"n": 0}])
    table.append([{"n": 1}])
    killed = pinned({table.table: table.snapshot()}, after_s=0, clock=clock)
    killed.__enter__()
    clock.now_ms += 1_000
    compact(table.table, [*table.snapshot().files.values()], now_ms=clock.now_ms)
    clock.now_ms += 20 * HOUR_MS
    assert tidy(table.table, grace_s=0, now_ms=clock.now_ms) == 0
    clock.now_ms += 5 * HOUR_MS
    assert tidy(table.table, grace_s=0, now_ms=clock.now_ms) == 2


def test_a_short_run_writes_no_pin(tmp_path: Path) -> None:
    """The grace period protects it: nothing is written."""
    table = Catalogue(tmp_path).create("notes", Schema((Column("n", Type.BIGINT),)))
    with pinned({table.table: table.snapshot()}):
        assert oldest_pin(table.table, now_ms=NOON_MS) is None
