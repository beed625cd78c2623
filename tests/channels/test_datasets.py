"""Datasets: keys, modes, hidden instants, partitions, and writers side by side."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quaestor.channels.datasets import Dataset, Mode, Position, dataset_names
from quaestor.channels.rewrites import rewrite
from quaestor.channels.versions import LatestVersions
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.maintenance import compact
from quaestor.tables.schema import Column, Schema, SchemaError, Type
from quaestor.tables.versioned import VersionedTable

SCHEMA = Schema(
    (Column("oid", Type.BIGINT), Column("location", Type.POINT), Column("seen", Type.TIMESTAMP)), key=("oid",)
)


@pytest.fixture(params=[1, 2, 4])
def officers(tmp_path: Path, request: pytest.FixtureRequest) -> Dataset:
    return Dataset.create(Catalogue(tmp_path), "officers", SCHEMA, partitions=request.param)


def stored(dataset: Dataset) -> list[tuple[Any, ...]]:
    return sorted(
        (row["oid"], row["location"] and (row["location"]["x"], row["location"]["y"])) for row in dataset.records()
    )


def test_a_second_insert_of_a_key_is_rejected_and_an_upsert_replaces_the_record(officers: Dataset) -> None:
    officers.insert([{"oid": 1, "location": [0, 0]}, {"oid": 2, "location": [1, 1]}])
    again = officers.insert([{"oid": 2, "location": [9, 9]}, {"oid": 3}])
    assert again.accepted == 1
    assert [(entry.number, entry.reason) for entry in again.rejected] == [(0, "the key is there already")]
    officers.upsert([{"oid": 1, "location": [5, 5]}])
    assert stored(officers) == [(1, (5, 5)), (2, (1, 1)), (3, None)]


def test_a_merge_keeps_the_fields_that_the_record_does_not_have(officers: Dataset) -> None:
    officers.insert([{"oid": 1, "location": [1, 1], "seen": "2026-11-28T12:00:00Z", "tags": {"a": 1}}])
    officers.merge([{"oid": 1, "location": [2, 2]}, {"oid": 1, "rank": "captain"}, {"oid": 4}])
    first = next(row for row in officers.records() if row["oid"] == 1)
    assert (first["location"], first["rank"], first["tags"]) == ({"x": 2, "y": 2}, "captain", '{"a": 1}')
    assert first["seen"].isoformat() == "2026-11-28T12:00:00+00:00"
    assert len(officers.records()) == 2


def test_a_deleted_record_is_gone_and_may_be_inserted_again(officers: Dataset) -> None:
    officers.insert([{"oid": 1}, {"oid": 2}])
    officers.delete([{"oid": 1}, {"oid": 7}])
    assert stored(officers) == [(2, None)]
    assert officers.insert([{"oid": 1}]).accepted == 1


def test_the_instant_is_in_no_record_and_no_schema_and_no_writer_can_give_it(officers: Dataset) -> None:
    """An ordinary reader sees ordinary data (T12)."""
    refused = officers.insert([{"oid": 1, "ts": 5}, {"oid": 2, "_deleted": True}, {"oid": 3, "TS": 1}])
    assert [entry.reason.split(" named")[0] for entry in refused.rejected] == ["a field must not be"] * 3
    officers.insert([{"oid": 1}])
    assert officers.schema == SCHEMA
    assert set(officers.records()[0]) == {"oid", "location", "seen"}


@pytest.mark.parametrize("name", ["ts", "_deleted", "_previous", "_current", "deleted"])
def test_no_column_has_the_name_of_a_hidden_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(SchemaError, match="rename it"):
        Dataset.create(Catalogue(tmp_path), "d", Schema((Column("k", Type.TEXT), Column(name, Type.BOOL)), ("k",)))


def test_a_record_with_a_wrong_value_is_rejected_and_the_others_are_written(officers: Dataset) -> None:
    written = officers.insert(
        [{"oid": "1"}, {"oid": 2, "location": [1]}, {"location": [1, 2]}, {"oid": 4}, {"oid": 5, "OID": 1}, {"oid": 4}]
    )
    assert written.accepted == 1
    assert {entry.number for entry in written.rejected} == {0, 1, 2, 4, 5}
    assert stored(officers) == [(4, None)]


def test_a_closed_dataset_takes_declared_fields_only(tmp_path: Path) -> None:
    dataset = Dataset.create(Catalogue(tmp_path), "d", SCHEMA, extensible=False)
    assert "there is no field 'rank'" in dataset.insert([{"oid": 1, "rank": 2}]).rejected[0].reason


def test_a_repeated_batch_of_a_feed_changes_nothing(officers: Dataset) -> None:
    """Position and records are one entry, so a restarted feed writes nothing twice."""
    batch = [{"oid": number, "location": [number, 0]} for number in range(20)]
    officers.insert(batch, feed=Position("f", 1, "offset-1"))
    instants = [snapshot.instant for snapshot in officers.snapshots()]
    repeated = officers.insert(batch, feed=Position("f", 1, "offset-1"))
    assert repeated.rejected == ()
    assert [snapshot.instant for snapshot in officers.snapshots()] == instants
    assert officers.position("f") == Position("f", 1, "offset-1")
    assert officers.position("g") is None


def test_a_dataset_is_opened_with_its_properties_and_dropped_with_its_partitions(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path)
    Dataset.create(catalogue, "a", SCHEMA, active=False, partitions=3).insert([{"oid": 1}])
    opened = Dataset.open(Catalogue(tmp_path), "a")
    assert (opened.active, len(opened.partitions), len(opened.records())) == (False, 3, 1)
    assert dataset_names(catalogue) == ["a"]
    Dataset.drop(catalogue, "a")
    assert catalogue.names() == []
    with pytest.raises(ConfigurationError, match="no table"):
        Dataset.open(catalogue, "a")


def test_only_one_of_several_writers_inserts_a_key(tmp_path: Path) -> None:
    """The log decides between writers that judge by the same state."""
    Dataset.create(Catalogue(tmp_path), "d", SCHEMA)
    accepted: list[int] = []

    def write() -> None:
        dataset = Dataset.open(Catalogue(tmp_path), "d")
        accepted.append(sum(dataset.insert([{"oid": number}]).accepted for number in range(10)))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sum(accepted) == 10
    assert len(Dataset.open(Catalogue(tmp_path), "d").records()) == 10


def test_a_snapshot_shows_the_version_of_its_instant(tmp_path: Path) -> None:
    """A record that changes after an instant still has its value of that instant (T6)."""
    dataset = Dataset.create(Catalogue(tmp_path), "d", SCHEMA)
    before = dataset.upsert([{"oid": 1, "location": [1, 1]}]).instants[0]
    after = dataset.upsert([{"oid": 1, "location": [2, 2]}]).instants[0]
    table, snapshot = dataset.partitions[0], dataset.snapshots()[0]
    latest = LatestVersions(table, SCHEMA)
    assert [latest.at(snapshot, upto).to_pylist()[0]["location"]["x"] for upto in (after, before, after)] == [2, 1, 2]
    assert latest.at(snapshot, before - 1).num_rows == 0
    assert latest.within(snapshot, before, after).num_rows == 1
    assert latest.within(snapshot, after, after + 9).num_rows == 0


@pytest.mark.parametrize("mode", list(Mode))
def test_a_key_that_occurs_twice_in_a_batch_has_one_meaning(officers: Dataset, mode: Mode) -> None:
    officers.write([{"oid": 1, "location": [1, 1]}, {"oid": 1, "seen": "2026-11-28T12:00:00Z"}], mode)
    record = officers.records()[0]
    assert (record["location"] is not None, record["seen"] is not None) == {
        Mode.INSERT: (True, False), Mode.UPSERT: (False, True), Mode.MERGE: (True, True),
    }[mode]  # fmt: skip


def test_ascending_keys_need_no_keys_in_memory_and_known_keys_are_still_rejected(tmp_path: Path) -> None:
    """Footers of files hold the largest key. A key that is not larger is compared with the stored ones."""
    catalogue = Catalogue(tmp_path)
    dataset = Dataset.create(catalogue, "d", SCHEMA)
    for first in (0, 10):
        assert dataset.insert({"oid": first + number} for number in range(10)).accepted == 10
    assert dataset._keys[0]._state is None, "the keys are in memory"
    Dataset.open(catalogue, "d").delete([{"oid": 19}])
    written = dataset.insert([{"oid": 5}, {"oid": 19}, {"oid": 20}])
    assert (written.accepted, [entry.number for entry in written.rejected]) == (2, [0])
    assert Dataset.open(catalogue, "d").insert([{"oid": 20}, {"oid": 21}]).accepted == 1


def test_a_point_before_the_key_hides_neither_the_key_nor_instants(tmp_path: Path) -> None:
    """A point is two columns of a file. A known key after it is still rejected, and a joined file is read from an instant on."""
    schema = Schema((Column("location", Type.POINT), Column("oid", Type.BIGINT)), ("oid",))
    officers = Dataset.create(Catalogue(tmp_path), "officers", schema)
    officers.insert([{"oid": 10, "location": [1, 2]}])
    assert officers.insert([{"oid": 10, "location": [3, 4]}]).accepted == 0
    officers.insert([{"oid": 11, "location": [1, 2]}])
    table = officers.partitions[0]
    before = table.snapshot()
    first, _ = table.files(before, -1, before.instant)
    assert compact(table.table, table.files(before, -1, before.instant), now_ms=1)
    assert table.scan(table.snapshot(), first.last, before.instant).column("oid").to_pylist() == [11]


def test_a_merge_reads_new_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long feed of merges does not read all records for each batch."""
    read: list[str] = []
    parts = VersionedTable._parts

    def counted(table: VersionedTable, file: Any, *arguments: Any) -> Any:
        read.append(file.path)
        return parts(table, file, *arguments)

    monkeypatch.setattr(VersionedTable, "_parts", counted)
    dataset = Dataset.create(Catalogue(tmp_path), "d", SCHEMA)
    dataset.upsert([{"oid": 1, "location": [1, 1]}])
    for _ in range(5):
        dataset.merge([{"oid": 1, "seen": "2026-11-28T12:00:00Z"}])
    assert len(read) == len(set(read))
    dataset.merge([{"oid": 1, "rank": 3}])
    (record,) = dataset.records()
    assert (record["location"], record["rank"]) == ({"x": 1.0, "y": 1.0}, 3)


def test_a_table_of_records_is_written_at_once(tmp_path: Path) -> None:
    """A table without a key value, or for several partitions, is refused."""
    catalogue = Catalogue(tmp_path)
    dataset = Dataset.create(catalogue, "d", SCHEMA)
    dataset.add_table(pa.table({"oid": [2, 1]}))
    assert stored(dataset) == [(1, None), (2, None)]
    assert dataset.insert([{"oid": 2}, {"oid": 3}]).accepted == 1
    with pytest.raises(ValueError, match="has no value"):
        dataset.add_table(pa.table({"oid": pa.array([None], pa.int64())}))
    with pytest.raises(ConfigurationError, match="several partitions"):
        Dataset.create(catalogue, "p", SCHEMA, partitions=2).add_table(pa.table({"oid": [2, 1]}))


def test_a_rewrite_is_judged_again_if_another_writer_was_faster(tmp_path: Path) -> None:
    """The records of the other writer are neither lost nor overwritten by older versions."""
    catalogue = Catalogue(tmp_path)
    schema = Schema((Column("k", Type.BIGINT), Column("n", Type.BIGINT)), ("k",))
    dataset = Dataset.create(catalogue, "d", schema)
    dataset.insert([{"k": key, "n": 0} for key in (1, 2, 3)])
    judged: list[int] = []

    def plus_one(rows: Any) -> Any:
        judged.append(rows.num_rows)
        if len(judged) == 1:
            other = Dataset.open(Catalogue(tmp_path), "d")
            other.upsert([{"k": 1, "n": 10}])
            other.delete([{"k": 2}])
        return rows.set_column(1, "n", pc.add(rows.column("n"), 1))

    assert rewrite(dataset, plus_one) == 2
    assert judged == [3, 2]
    assert sorted((row["k"], row["n"]) for row in dataset.records()) == [(1, 11), (3, 1)]
    assert rewrite(dataset, lambda rows: rows.slice(0, 0)) == 0
    with pytest.raises(ConfigurationError, match="several partitions"):
        rewrite(Dataset.create(catalogue, "p", schema, partitions=2), plus_one)


def test_a_creation_that_is_refused_leaves_no_partition(tmp_path: Path) -> None:
    """All partitions come with one entry of the catalogue, or none of them does."""
    catalogue = Catalogue(tmp_path)
    catalogue.create("d__2", Schema((Column("x", Type.BIGINT),)))
    before = sorted(path.name for path in tmp_path.iterdir() if any(path.rglob("*.json")))
    with pytest.raises(ConfigurationError, match="table 'd__2' exists"):
        Dataset.create(catalogue, "d", Schema((Column("id", Type.BIGINT),), ("id",)), partitions=4)
    assert catalogue.names() == ["d__2"]
    assert sorted(path.name for path in tmp_path.iterdir() if any(path.rglob("*.json"))) == before
