"""A collection as a versioned table, on a real mongod: every version once, in the order of the writes, as `find()` shows."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import json_util
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId
from pymongo.collection import Collection

from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.collections import POSITION, FollowedCollection
from quaestor.tables.intervals import versions
from quaestor.tables.maintenance import maintain
from quaestor.tables.schema import Column, Schema, SchemaError, Type
from quaestor.tables.versioned import VersionedTable

PATIENCE_S = 60.0
NUMBERS = Schema((Column("_id", Type.BIGINT), Column("n", Type.BIGINT)))


@pytest.fixture(scope="module")
def client(mongo_url: str) -> Iterator[pymongo.MongoClient[Any]]:
    with pymongo.MongoClient[Any](mongo_url, w="majority") as client:
        yield client


@pytest.fixture
def items(client: pymongo.MongoClient[Any]) -> Iterator[Collection[Any]]:
    """Collection of this test."""
    database = client[f"tables_{uuid.uuid4().hex[:8]}"]
    yield database.items
    client.drop_database(database)


def until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"never: {what()}"
        time.sleep(0.02)


@contextmanager
def filling(followed: FollowedCollection) -> Iterator[None]:
    """Run the filling in a thread; its error is raised at the end."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            followed.run(stop)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def history(table: VersionedTable) -> list[dict[str, Any]]:
    """All versions of the present table, by key and time."""
    snapshot = table.snapshot()
    rows: list[dict[str, Any]] = versions(table, snapshot, snapshot.instant).to_pylist()
    return rows


def alive(table: VersionedTable) -> dict[Any, Any]:
    """Records that are alive at the last instant: key -> value of `n`."""
    return {row["_id"]: row.get("n") for row in history(table) if row["valid_to"] is None}


def present(items: Collection[Any]) -> dict[Any, Any]:
    return {document["_id"]: document.get("n") for document in items.find()}


class Writer:
    """Random writes, each of which leaves a new value in its records.

    written: by key, its states in order; None: it was deleted.
    """

    def __init__(self, items: Collection[Any], seed: int) -> None:
        self.items = items
        self.written: dict[int, list[int | None]] = {}
        self._random = random.Random(seed)
        self._number = 0

    def write(self) -> None:
        """One write, or one transaction of several."""
        if self._random.random() < 0.15:
            with self.items.database.client.start_session() as session, session.start_transaction():
                keys = self._random.sample(range(8), 3)
                for key in keys:
                    self._one(key, session)
        else:
            self._one(self._random.randrange(8), None)

    def _one(self, key: int, session: Any) -> None:
        self._number += 1
        exists = self.written.get(key, [None])[-1] is not None
        state: int | None = self._number
        if not exists:
            self.items.insert_one({"_id": key, "n": state}, session=session)
        else:
            kind = self._random.choice(["update", "update", "replace", "delete"])
            if kind == "update":
                self.items.update_one({"_id": key}, {"$set": {"n": state}}, session=session)
            elif kind == "replace":
                self.items.replace_one({"_id": key}, {"n": state}, session=session)
            else:
                self.items.delete_one({"_id": key}, session=session)
                state = None
        self.written.setdefault(key, []).append(state)

    def check(self, table: VersionedTable, *, since: dict[int, int] | None = None) -> None:
        """The table has the states since then, each once, in the order of the writes, with intervals that follow each other."""
        rows = history(table)
        starts: list[tuple[int, Any]] = []
        for key, states in self.written.items():
            own = [row for row in rows if row["_id"] == key]
            expected = states[(since or {}).get(key, 0) :]
            assert [row["n"] for row in own] == [state for state in expected if state is not None], key
            for row, following in zip(own, [*own[1:], None], strict=True):
                place = expected.index(row["n"])
                replaced = place + 1 < len(expected) and expected[place + 1] is not None
                assert row["valid_from"] < (
                    row["valid_to"] or row["valid_from"].max.replace(tzinfo=row["valid_from"].tzinfo)
                )
                assert (row["valid_to"] is None) == (place + 1 == len(expected))
                if replaced:
                    assert following is not None
                    assert row["valid_to"] == following["valid_from"]
            starts += [(row["n"], row["valid_from"]) for row in own]
        in_order = [start for _, start in sorted(starts)]
        assert in_order == sorted(in_order), "instants do not follow the order of the writes"


def test_alive_versions_are_what_find_returns(items: Collection[Any], tmp_path: Path) -> None:
    """Random writes before, during and after the first fill, and over a restart. Compaction changes nothing."""
    seed = 20270115
    writer = Writer(items, seed)
    for _ in range(20):
        writer.write()
    base = {key: len(states) - 1 if states[-1] is not None else len(states) for key, states in writer.written.items()}
    catalogue = Catalogue(tmp_path)
    for _ in range(3):
        with filling(FollowedCollection(items, catalogue, "items")):
            until(lambda: "items" in catalogue.names() and POSITION in catalogue.open("items").snapshot().notes)
            for _ in range(40):
                writer.write()
            until(lambda: alive(catalogue.open("items")) == present(items), lambda: alive(catalogue.open("items")))
        for _ in range(10):
            writer.write()
    table = catalogue.open("items")
    with filling(FollowedCollection(items, catalogue, "items")):
        until(lambda: alive(table) == present(items))
    writer.check(table, since=base)
    maintain(table.table, file_bytes=1 << 20, keep_days=0, grace_s=3600, now_ms=0)
    assert len(table.snapshot().files) == 1
    writer.check(table, since=base)


def test_writes_of_a_transaction_share_an_instant(items: Collection[Any], tmp_path: Path) -> None:
    """No reader sees half of a transaction. Other writes have instants of their own, also within one batch."""
    catalogue = Catalogue(tmp_path)
    with filling(FollowedCollection(items, catalogue, "items", declared=NUMBERS)):
        until(lambda: "items" in catalogue.names() and POSITION in catalogue.open("items").snapshot().notes)
        with items.database.client.start_session() as session, session.start_transaction():
            items.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}], session=session)
            items.update_one({"_id": 1}, {"$set": {"n": 2}}, session=session)
        items.insert_many([{"_id": 3, "n": 3}, {"_id": 4, "n": 4}])
        table = catalogue.open("items")
        until(lambda: len(alive(table)) == 4)
    rows = history(table)
    starts = {(row["_id"], row["n"]): row["valid_from"] for row in rows}
    assert starts[1, 1] == starts[1, 2] == starts[2, 1] < starts[3, 3] < starts[4, 4]
    assert next(row for row in rows if (row["_id"], row["n"]) == (1, 1))["valid_to"] == starts[1, 2]


@pytest.mark.parametrize(("fillers", "steps"), [(1, range(5)), (2, (1, 3))])
def test_a_filler_killed_at_any_step_loses_and_repeats_no_version(
    items: Collection[Any], tmp_path: Path, mongo_url: str, fillers: int, steps: Sequence[int]
) -> None:
    """Processes die by SIGKILL between the steps of their entries while writes go on. Two at a time fill the table once."""
    writer = Writer(items, 77)
    catalogue = Catalogue(tmp_path)

    def filler(die_at: int) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.versioned.filler",
            mongo_url,
            items.database.name,
            str(tmp_path),
            str(die_at),
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])

    with filling(FollowedCollection(items, catalogue, "items", declared=NUMBERS)):
        until(lambda: "items" in catalogue.names() and POSITION in catalogue.open("items").snapshot().notes)
    table = catalogue.open("items")
    for die_at in steps:
        children = [filler(die_at) for _ in range(fillers)]
        assert {child.stdout.readline() for child in children if child.stdout} == {b"ready\n"}
        while any(child.poll() is None for child in children):
            writer.write()
        for child in children:
            child.communicate()
        assert {child.returncode for child in children} == {-9}
    last = filler(-1)
    until(lambda: alive(table) == present(items), lambda: (alive(table), present(items)))
    last.communicate(b"")
    assert last.returncode == 0
    writer.check(table)


def test_columns_are_inferred_and_grow_with_the_records(items: Collection[Any], tmp_path: Path) -> None:
    """Types of BSON become types of SQL. A later field is a new column; an integer column widens with its first double."""
    key = ObjectId()
    items.insert_one({"_id": key, "n": 1, "name": "x", "tags": ["a"], "seen": None})
    catalogue = Catalogue(tmp_path)
    with filling(FollowedCollection(items, catalogue, "items")):
        until(lambda: "items" in catalogue.names() and bool(alive(catalogue.open("items"))))
        items.update_one({"_id": key}, {"$set": {"n": 1.5, "seen": True, "more": {"b": 1}}})
        table = catalogue.open("items")
        until(lambda: alive(table) == {str(key): 1.5})
    assert table.schema().type_of("n") is Type.DOUBLE
    first, second = history(table)
    assert (first["n"], first["name"], first["tags"], first["seen"], first["more"]) == (1.0, "x", '["a"]', None, None)
    assert (second["seen"], second["more"]) == (True, '{"b": 1}')


def test_a_value_of_another_type_is_null_and_an_alarm(items: Collection[Any], tmp_path: Path) -> None:
    """The version is kept, the value is NULL, the event names the column, and the metric counts."""
    items.insert_one({"_id": 1, "n": 1, "Name": "x"})
    telemetry = Telemetry()
    seen: list[tuple[str, Any]] = []
    telemetry.hooks.failures.append(lambda failure: seen.append((failure.name, failure.fields.get("column"))))
    catalogue = Catalogue(tmp_path)
    with filling(FollowedCollection(items, catalogue, "items", telemetry=telemetry)):
        until(lambda: "items" in catalogue.names() and bool(alive(catalogue.open("items"))))
        items.insert_one({"_id": 2, "n": "two", "name": "y", "ts": 1, "at": DatetimeMS((1 << 63) - 1)})
        table = catalogue.open("items")
        until(lambda: len(alive(table)) == 2)
    assert alive(table) == {1: 1, 2: None}
    assert sorted(seen) == [
        ("tables.value_refused", "at"),
        ("tables.value_refused", "n"),
        ("tables.value_refused", "name"),
        ("tables.value_refused", "ts"),
    ]
    assert b'quaestor_table_values_refused_total{table="items"} 4.0' in telemetry.exposition()
    assert b'quaestor_table_versions_total{table="items"} 2.0' in telemetry.exposition()


def test_a_declared_schema_keeps_its_columns_and_refuses_drops(items: Collection[Any], tmp_path: Path) -> None:
    """Other fields are left out. A declaration without a column, or with another type, is an alarm; the rows stay."""
    items.insert_one({"_id": 1, "n": 1, "secret": "x"})
    catalogue = Catalogue(tmp_path)
    declared = Schema((Column("n", Type.BIGINT), Column("note", Type.TEXT)))
    with filling(FollowedCollection(items, catalogue, "items", declared=declared)):
        until(lambda: "items" in catalogue.names() and bool(alive(catalogue.open("items"))))
    table = catalogue.open("items")
    assert set(table.schema().names) == {"_id", "_deleted", "n", "note"}
    telemetry = Telemetry()
    for wrong in (Schema((Column("n", Type.BIGINT),)), Schema((Column("n", Type.TEXT), Column("note", Type.TEXT)))):
        with pytest.raises(SchemaError, match=r"declare it again|another name"):
            FollowedCollection(items, catalogue, "items", declared=wrong, telemetry=telemetry).run(threading.Event())
    assert len(telemetry.lasting) == 2
    assert alive(table) == {1: 1}


def test_another_type_of_id_stops_the_table_with_an_alarm(items: Collection[Any], tmp_path: Path) -> None:
    """Without its key a version cannot be kept, and a table with a version missing would be wrong."""
    items.insert_one({"_id": 1, "n": 1})
    catalogue = Catalogue(tmp_path)
    telemetry = Telemetry()
    followed = FollowedCollection(items, catalogue, "items", telemetry=telemetry)
    with filling(followed):
        until(lambda: "items" in catalogue.names() and bool(alive(catalogue.open("items"))))
    items.insert_one({"_id": "two", "n": 2})
    with pytest.raises(ConfigurationError, match="_id str is not bigint"):
        followed.run(threading.Event())
    assert len(telemetry.lasting) == 1
    assert alive(catalogue.open("items")) == {1: 1}


@pytest.mark.parametrize("loss", ["dropped", "forgotten"])
def test_a_lost_stream_is_an_alarm_and_the_table_agrees_again(
    items: Collection[Any], tmp_path: Path, loss: str
) -> None:
    """After a drop, or when the oplog no longer reaches back: differences are appended; what did not change keeps its version."""
    items.insert_many([{"_id": number, "n": number} for number in range(5)])
    catalogue = Catalogue(tmp_path)
    telemetry = Telemetry()
    with filling(FollowedCollection(items, catalogue, "items", telemetry=telemetry)):
        until(lambda: "items" in catalogue.names() and len(alive(catalogue.open("items"))) == 5)
        items.insert_one({"_id": 5, "n": 5})
        until(lambda: len(alive(catalogue.open("items"))) == 6)
    table = catalogue.open("items")
    before = {row["_id"]: row["valid_from"] for row in history(table)}
    if loss == "dropped":
        items.drop()
        items.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 20}])
    else:
        place = json_util.loads(table.snapshot().notes[POSITION])["token"]["_data"]
        earlier = f"{place[:2]}{int(place[2:10], 16) - 1:08x}{place[10:]}".upper()
        table.append([], notes={POSITION: json_util.dumps({"token": {"_data": earlier}})})
        items.delete_many({"_id": {"$in": [0, 3, 4, 5]}})
        items.update_one({"_id": 2}, {"$set": {"n": 20}})
    with filling(FollowedCollection(items, catalogue, "items", telemetry=telemetry)):
        until(lambda: alive(table) == {1: 1, 2: 20}, lambda: alive(table))
        items.update_one({"_id": 1}, {"$set": {"n": 10}})
        until(lambda: alive(table) == {1: 10, 2: 20}, lambda: alive(table))
    kept = next(row for row in history(table) if row["_id"] == 1)
    assert kept["valid_from"] == before[1], "a record that did not change has no new version"
    assert b'quaestor_table_gaps_total{table="items"} 1.0' in telemetry.exposition()


def test_the_supervisor_keeps_the_filling_running(items: Collection[Any], tmp_path: Path) -> None:
    """A service of the runtime: after a failure it is started again, and goes on at its position."""
    telemetry = Telemetry()
    supervisor = Supervisor(telemetry)
    catalogue = Catalogue(tmp_path)
    kept = supervisor.thread("table-items", FollowedCollection(items, catalogue, "items", telemetry=telemetry).run)
    try:
        items.insert_one({"_id": ObjectId(), "n": 1})
        until(lambda: "items" in catalogue.names() and len(alive(catalogue.open("items"))) == 1)
        table = catalogue.open("items")
        hidden = table.table.root.with_name("hidden")
        (table.table.root / "_log").rename(hidden)
        (table.table.root / "_log").write_text("a file in place of the log")
        items.insert_one({"_id": ObjectId(), "n": 2})
        until(lambda: supervisor.service("table-items").failures > 0)
        (table.table.root / "_log").unlink()
        hidden.rename(table.table.root / "_log")
        until(lambda: sorted(alive(table).values()) == [1, 2])
    finally:
        kept.stop()
    assert kept.done
