"""Log of a table: a reader sees each row once, although writers are interrupted at any moment."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quaestor.errors import DependencyError
from quaestor.tables import maintenance
from quaestor.tables.changes import KEPT_WRITERS, Change, Snapshot
from quaestor.tables.files import described
from quaestor.tables.log import FULL_EVERY, Table
from quaestor.tables.maintenance import compact, expire, maintain, tidy
from quaestor.tables.reading import table_rows
from quaestor.tables.storage import FolderStorage

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
HOUR_S = 3_600.0


def add(table: Table, name: str, rows: list[int], *, day: str = "2027-01-15", batch: int | None = None) -> None:
    """A file of these rows, published."""
    path = written(table, name, rows, day=day)

    def decide(_: object) -> Change:
        return Change(add=(described(table, path),), batch=None if batch is None else ("query", batch))

    table.publish(decide, now_us=NOW_MS * 1000)


def written(table: Table, name: str, rows: list[int], *, day: str = "2027-01-15") -> Path:
    path = table.data / f"date={day}" / f"collection={'a%2Fb'}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), path)
    return path


def rows(root: Path) -> list[int]:
    """As a process sees them that has just come."""
    return sorted(row["n"] for row in table_rows(Table(root)))


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path / "nowhere") == []


def test_a_file_counts_once_it_is_in_the_log(tmp_path: Path) -> None:
    table = Table(tmp_path)
    add(table, "one", [1, 2])
    written(table, "unpublished", [3])
    assert rows(tmp_path) == [1, 2]
    (file,) = table.snapshot().files.values()
    assert file.partition == (("date", "2027-01-15"), ("collection", "a/b"))


def test_the_log_is_summed_up_and_old_entries_go(tmp_path: Path) -> None:
    table, old = Table(tmp_path), Table(tmp_path)
    for number in range(3 * FULL_EVERY + 7):
        add(table, f"f{number}", [number], batch=number)
        if number == 10:
            assert len(old.snapshot().files) == 11
    assert rows(tmp_path) == list(range(3 * FULL_EVERY + 7))
    assert len(old.snapshot().files) == 3 * FULL_EVERY + 7
    assert len(list((tmp_path / "_log").iterdir())) < 2 * FULL_EVERY + 10
    assert Table(tmp_path).snapshot().has(("query", 3 * FULL_EVERY + 6))
    assert not Table(tmp_path).snapshot().has(("query", 3 * FULL_EVERY + 7))
    assert not Table(tmp_path).snapshot().has(("another", 0))


def test_a_writer_that_stood_still_publishes_after_the_others(tmp_path: Path) -> None:
    """Its number is free again, because the entry of that number was summed up and removed: an entry there would be lost."""
    table, other = Table(tmp_path), Table(tmp_path)
    add(table, "first", [0])
    slept: list[int] = []

    def decide(before: Snapshot) -> Change:
        if not slept:
            for number in range(3 * FULL_EVERY):
                add(other, f"o{number}", [1])
        slept.append(before.number)
        return Change(add=(described(table, late),))

    late = written(table, "late", [2])
    assert table.publish(decide, now_us=0).number == 3 * FULL_EVERY + 1
    assert slept == [0, 3 * FULL_EVERY]
    assert Counter(rows(tmp_path)) == {0: 1, 1: 3 * FULL_EVERY, 2: 1}
    assert Counter(row["n"] for row in table_rows(other)) == {0: 1, 1: 3 * FULL_EVERY, 2: 1}
    assert not (tmp_path / "_log" / f"{1:020d}.json").exists()


@pytest.mark.parametrize("entries", [3 * FULL_EVERY, 5 * FULL_EVERY])
def test_a_writer_that_stood_still_after_its_publication_does_not_repeat_it(
    tmp_path: Path, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writers have summed up its entry before it looked. After very many entries it reports that it does not know."""
    table, other = Table(tmp_path), Table(tmp_path)
    create = table.storage.create_if_absent

    def slow(path: str, content: bytes) -> bool:
        created = create(path, content)
        monkeypatch.undo()
        for number in range(entries):
            add(other, f"o{number}", [1])
        return created

    monkeypatch.setattr(table.storage, "create_if_absent", slow)
    if entries > KEPT_WRITERS:
        with pytest.raises(DependencyError, match="stood still"):
            add(table, "late", [2])
    else:
        add(table, "late", [2])
    assert Counter(rows(tmp_path)) == {1: entries, 2: 1}


def test_a_sum_that_was_half_done_is_no_damage(tmp_path: Path) -> None:
    """Old entries are removed the oldest first. Any left over beside a newer sum are not needed."""
    table = Table(tmp_path)
    for number in range(2 * FULL_EVERY):
        add(table, f"f{number}", [number])
    kept = (tmp_path / "_log" / f"{60:020d}.json").read_bytes()
    for number in range(2 * FULL_EVERY, 4 * FULL_EVERY):
        add(table, f"f{number}", [number])
    (tmp_path / "_log" / f"{60:020d}.json").write_bytes(kept)
    assert rows(tmp_path) == list(range(4 * FULL_EVERY))


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    def write(name: str) -> None:
        table = Table(tmp_path)
        for number in range(20):
            add(table, f"{name}{number}", [number])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(rows(tmp_path)) == Counter(dict.fromkeys(range(20), 3))


def test_compaction_keeps_every_row_and_makes_fewer_files(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for number in range(20):
        add(table, f"f{number}", [number, number])
    done = maintain(table, file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=NOW_MS)
    assert (done.compacted, done.made) == (20, 1)
    assert rows(tmp_path) == sorted([*range(20), *range(20)])
    assert len(table.snapshot().files) == 1
    again = maintain(table, file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=NOW_MS)
    assert (again.compacted, again.made, again.deleted) == (0, 0, 0)


def test_replaced_files_go_when_nobody_can_be_reading_them(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for number in range(4):
        add(table, f"f{number}", [number])
    maintain(table, file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=NOW_MS)
    assert len(list(table.data.rglob("*.parquet"))) == 5
    assert tidy(table, grace_s=HOUR_S, now_ms=NOW_MS + int(HOUR_S * 1000)) == 4
    assert len(list(table.data.rglob("*.parquet"))) == 1
    assert table.snapshot().removed == {}
    assert rows(tmp_path) == [0, 1, 2, 3]


def test_a_reader_sees_every_row_once_while_files_are_compacted_and_deleted(tmp_path: Path) -> None:
    table = Table(tmp_path)
    stop, looked = threading.Event(), threading.Event()

    def work() -> None:
        own = Table(tmp_path)
        for number in range(60):
            if number == 30:
                looked.wait(20)  # whichever thread the machine lets run
            add(own, f"f{number}", [number])
            if number % 5 == 4:
                maintain(own, file_bytes=1 << 20, keep_days=0, grace_s=HOUR_S, now_ms=NOW_MS)
        stop.set()

    worker = threading.Thread(target=work)
    worker.start()
    looks = 0
    while not stop.is_set():
        seen = rows(tmp_path)
        assert seen == list(range(len(seen)))
        looks += 1
        looked.set()
    worker.join()
    assert looks
    assert sorted(row["n"] for row in table_rows(table)) == list(range(60))


@pytest.mark.parametrize("step", ["_write", "data_file", "publish", "delete"])
def test_a_compaction_that_dies_at_any_step_changes_no_row(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next compaction repairs the remains of the dead one."""

    class Killed(BaseException):
        pass

    def die(*args: object, **kwargs: object) -> None:
        raise Killed

    table = Table(tmp_path)
    for number in range(4):
        add(table, f"f{number}", [number])
    with monkeypatch.context() as patch:
        if step == "publish":
            patch.setattr(Table, "publish", die)
        elif step == "delete":
            patch.setattr(FolderStorage, "delete", die)
        else:
            patch.setattr(maintenance, step, die)
        with pytest.raises(Killed):
            maintain(table, file_bytes=1 << 20, keep_days=0, grace_s=0, now_ms=NOW_MS)
    assert rows(tmp_path) == [0, 1, 2, 3]
    later_ms = 10 * NOW_MS
    maintain(Table(tmp_path), file_bytes=1 << 20, keep_days=0, grace_s=0, now_ms=later_ms)
    assert rows(tmp_path) == [0, 1, 2, 3]
    assert len(list(table.data.rglob("*.parquet"))) == 1


def test_two_compactions_of_the_same_files_count_once(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for number in range(4):
        add(table, f"f{number}", [number])
    files = list(table.snapshot().files.values())
    assert compact(table, files, now_ms=NOW_MS)
    assert not compact(Table(tmp_path), files, now_ms=NOW_MS)
    assert rows(tmp_path) == [0, 1, 2, 3]


def test_expired_days_are_removed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for number, day in enumerate(["2027-01-01", "2027-01-14", "2027-01-15"]):
        add(table, day, [number], day=day)
    assert expire(table, keep_days=1, now_ms=NOW_MS) == 1
    assert rows(tmp_path) == [1, 2]


def test_a_file_that_is_about_to_be_published_is_not_tidied_away(tmp_path: Path) -> None:
    table = Table(tmp_path)
    path = written(table, "young", [1])
    assert tidy(table, grace_s=0, now_ms=int(path.stat().st_mtime * 1000) + 1_000) == 0
    assert tidy(table, grace_s=0, now_ms=int(path.stat().st_mtime * 1000) + DAY_MS) == 1


def test_a_damaged_log_is_refused_not_read_around(tmp_path: Path) -> None:
    add(Table(tmp_path), "one", [1])
    (entry,) = (tmp_path / "_log").iterdir()
    entry.write_text(json.dumps({"v": 3}))
    with pytest.raises(DependencyError, match="damaged"):
        rows(tmp_path)


def test_a_missing_file_is_refused_not_passed_over(tmp_path: Path) -> None:
    table = Table(tmp_path)
    add(table, "one", [1])
    next(table.data.rglob("*.parquet")).unlink()
    with pytest.raises(DependencyError, match="lacks"):
        rows(tmp_path)
