"""Instants of publication: they increase with any steps of the clocks, and compaction,
sums and the old format keep them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.errors import DependencyError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.entries import FORMAT
from quaestor.tables.files import described, instants
from quaestor.tables.log import FULL_EVERY, Table
from quaestor.tables.maintenance import compact, groups, maintain
from quaestor.tables.reading import opened

NOW_US = 1_800_000_000_000_000
HOUR_S = 3_600.0
_MANY = 1_000


def add(table: Table, name: str, now_us: int, *, part: str = "a", rows: int = 1, steps: int = 1) -> int:
    """Publish rows named `name`; return the instant of the last one."""
    path = table.data / f"part={part}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"name": pa.array([name] * rows)}
    if rows > _MANY:
        columns["pad"] = pa.array([os.urandom(16) for _ in range(rows)])
    if steps > 1:
        columns["_step"] = pa.array([row % steps for row in range(rows)], pa.int64())
    pq.write_table(pa.table(columns), path)
    return table.publish(lambda _: Change(add=(described(table, path),), instants=steps), now_us=now_us).instant


def rows_of(table: Table, snapshot: Snapshot) -> list[tuple[str, int]]:
    """(name, instant) of every row, sorted. Each instant lies within its file's range."""
    rows = []
    for file in snapshot.files.values():
        with pq.ParquetFile(opened(table, file)) as content:
            read = content.read()
        at = [moment.value for moment in instants(read, file)]
        assert all(file.first <= instant <= file.last for instant in at)
        rows += list(zip(read.column("name").to_pylist(), at, strict=True))
    return sorted(rows)


def test_instants_increase_although_the_clock_steps_back(tmp_path: Path) -> None:
    table = Table(tmp_path)
    clocks = [NOW_US, NOW_US - 5_000_000, NOW_US - 5_000_000, NOW_US + 7, 0]
    seen = [add(table, f"f{number}", clock) for number, clock in enumerate(clocks)]
    assert seen == [NOW_US, NOW_US + 1, NOW_US + 2, NOW_US + 7, NOW_US + 8]
    assert Table(tmp_path).snapshot().instant == NOW_US + 8
    assert [instant for _, instant in rows_of(table, Table(tmp_path).snapshot())] == seen


def test_rows_after_a_closed_instant_are_later(tmp_path: Path) -> None:
    """A writer with an earlier clock, and an old view of the table, publishes after the closed instant."""
    table, slow = Table(tmp_path), Table(tmp_path)
    slow.snapshot()
    closed = table.close(now_us=NOW_US)
    assert closed == NOW_US
    assert add(slow, "late", NOW_US - 1_000) > closed
    assert table.close(now_us=NOW_US) > closed + 1


def test_rows_of_one_entry_may_have_several_instants(tmp_path: Path) -> None:
    table = Table(tmp_path)
    assert add(table, "two", NOW_US, rows=3, steps=2) == NOW_US + 1
    assert add(table, "next", NOW_US) == NOW_US + 2
    assert rows_of(table, table.snapshot()) == [
        ("next", NOW_US + 2),
        ("two", NOW_US),
        ("two", NOW_US),
        ("two", NOW_US + 1),
    ]


def test_progress_and_notes_are_kept_by_sums(tmp_path: Path) -> None:
    """The newest value of each name counts; a note of None is forgotten."""
    table = Table(tmp_path)
    for number in range(2 * FULL_EVERY + 3):
        change = Change(
            progress={f"q{number % 3}": number}, notes={"place": str(number), "gone": None if number else "x"}
        )
        table.publish(lambda _, change=change: change, now_us=NOW_US)
    last = 2 * FULL_EVERY + 2
    for reader in (table, Table(tmp_path)):
        snapshot = reader.snapshot()
        assert sorted(snapshot.progress.values()) == [last - 2, last - 1, last]
        assert snapshot.notes == {"place": str(last)}
        assert snapshot.instant == NOW_US + last


def test_a_decision_sees_the_table_of_its_own_entry(tmp_path: Path) -> None:
    """A run that another process has published meanwhile is not published a second time."""
    table, other = Table(tmp_path), Table(tmp_path)
    seen: list[Mapping[str, int]] = []

    def decide(before: Snapshot) -> Change | None:
        if not seen:
            other.publish(lambda _: Change(progress={"query": 7}), now_us=NOW_US)
        seen.append(before.progress)
        return None if before.progress.get("query", 0) >= 7 else Change(progress={"query": 7})

    assert table.publish(decide, now_us=NOW_US).progress == {"query": 7}
    assert seen == [{}, {"query": 7}]
    assert Table(tmp_path).snapshot().number == 0


def test_the_old_format_is_read_and_continued(tmp_path: Path) -> None:
    """Files of old entries have the time of their entry, moved behind the last one; files of an old sum come before all."""
    log = tmp_path / "_log"
    log.mkdir()
    entry = {
        "v": 1,
        "at": NOW_US // 1000,
        "add": [["data/a.parquet", 1, 10, []]],
        "remove": [],
        "batch": ["q", 3],
        "forget": [],
    }
    full = {
        "v": 1,
        "number": 4,
        "files": [["data/0.parquet", 1, 10, []]],
        "batches": {"q": 2},
        "removed": {"data/x": 5},
    }
    (log / f"{4:020d}.full.json").write_text(json.dumps(full))
    (log / f"{5:020d}.json").write_text(json.dumps(entry))
    entry |= {"at": NOW_US // 1000 - 9, "add": [["data/b.parquet", 1, 10, [["date", "x"]]]]}
    (log / f"{6:020d}.json").write_text(json.dumps(entry))
    table = Table(tmp_path)
    snapshot = table.snapshot()
    assert {path: (file.first, file.last) for path, file in snapshot.files.items()} == {
        "data/0.parquet": (0, 0), "data/a.parquet": (NOW_US, NOW_US), "data/b.parquet": (NOW_US + 1, NOW_US + 1),
    }  # fmt: skip
    assert (snapshot.batches, dict(snapshot.removed)) == ({"q": 3}, {"data/x": 5})
    assert table.close(now_us=0) == NOW_US + 2
    assert json.loads((log / f"{7:020d}.json").read_text())["v"] == FORMAT
    assert Table(tmp_path).snapshot() == table.snapshot()


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "missing"])
def test_a_damaged_entry_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    """An entry that lacks its end, that was changed, or that is gone: the error names the entry and the remedy."""
    table = Table(tmp_path)
    for number in range(3):
        add(table, f"f{number}", NOW_US)
    entry = tmp_path / "_log" / f"{1:020d}.json"
    text = entry.read_text()
    if damage == "missing":
        entry.unlink()
    else:
        entry.write_text(
            {"cut": text[:-9], "changed": text.replace('"rows"', "").replace("f1", "f2"), "empty": ""}[damage]
        )
    with pytest.raises(DependencyError, match=rf"{1:020d}\.json.*restore it") as refused:
        Table(tmp_path).snapshot()
    assert not refused.value.retryable
    assert table.snapshot().number == 2, "a process that has read the entry needs it no more"


def test_only_files_adjacent_in_time_are_joined(tmp_path: Path) -> None:
    """A large file between small ones separates them; files of other partitions do not."""
    table = Table(tmp_path)
    for number in range(2):
        add(table, f"before{number}", NOW_US)
        add(table, f"other{number}", NOW_US, part="b")
    add(table, "large", NOW_US, rows=2 * _MANY)
    limit = next(file.bytes for file in table.snapshot().files.values() if "large" in file.path)
    for number in range(2):
        add(table, f"after{number}", NOW_US)
    names = [sorted(Path(file.path).stem for file in group) for group in groups(table.snapshot(), limit)]
    assert sorted(names) == [["after0", "after1"], ["before0", "before1"], ["other0", "other1"]]
    before = rows_of(table, table.snapshot())
    maintain(table, file_bytes=limit, keep_days=0, grace_s=HOUR_S, now_ms=NOW_US // 1000)
    assert rows_of(table, table.snapshot()) == before
    spans = sorted((file.first, file.last) for file in table.snapshot().files.values() if "part=a" in file.path)
    assert all(earlier[1] < later[0] for earlier, later in pairwise(spans))


def test_a_pinned_snapshot_is_readable_for_the_grace_period(tmp_path: Path) -> None:
    """A run that began before a compaction reads the same rows until the grace period is over, then gets an error."""
    table = Table(tmp_path)
    for number in range(4):
        add(table, f"f{number}", NOW_US)
    pinned = table.snapshot()
    rows = rows_of(table, pinned)
    now_ms = NOW_US // 1000 + 1
    maintain(Table(tmp_path), file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=now_ms)
    maintain(Table(tmp_path), file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=now_ms + 3_599_000)
    assert rows_of(table, pinned) == rows == rows_of(table, table.snapshot())
    maintain(Table(tmp_path), file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=now_ms + 3_600_000)
    with pytest.raises(DependencyError, match="read again"):
        rows_of(table, pinned)
    assert rows_of(table, table.snapshot()) == rows


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "steps", "close", "compact", "anew"]),
        st.integers(0, 40),
        st.integers(0, 3),
    ),
    max_size=25,
)


@given(STEPS)
def test_no_row_changes_its_instant(steps: list[Step]) -> None:
    """Random writers, clocks and compactions: each row keeps the instant of its publication, and instants increase."""
    root = Path(tempfile.mkdtemp())
    try:
        table, expected, last = Table(root), list[tuple[str, int]](), 0
        for number, (kind, clock, choice) in enumerate(steps):
            if kind == "anew":
                table = Table(root)
            elif kind == "compact":
                for group in list(groups(table.snapshot(), 1 << 20))[:choice]:
                    assert compact(table, group, now_ms=0)
            else:
                now_us = NOW_US + clock
                instant = max(now_us, table.snapshot().instant + 1)
                if kind == "close":
                    last_of_entry = table.close(now_us=now_us)
                else:
                    count = 1 + choice if kind == "steps" else 1
                    last_of_entry = add(table, f"f{number}", now_us, part=str(choice), rows=count, steps=count)
                    expected += [(f"f{number}", instant + step) for step in range(count)]
                    instant += count - 1
                assert last_of_entry == instant > last
            last = table.snapshot().instant
        assert rows_of(table, table.snapshot()) == sorted(expected)
        assert rows_of(table, Table(root).snapshot()) == sorted(expected)
    finally:
        shutil.rmtree(root)
