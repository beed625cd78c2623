"""Versioned tables: a scan returns exactly the rows of its instants, after any compactions, additions and widenings."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.errors import ConfigurationError
from quaestor.tables import versioned
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.maintenance import compact, groups
from quaestor.tables.schema import Column, Schema, SchemaError, Type
from quaestor.tables.versioned import VersionedTable

START = datetime(2027, 1, 15, tzinfo=UTC)
START_US = 1_799_971_200_000_000
EVER = 1 << 62


def stopped() -> int:
    return START_US // 1000


def schema(**columns: str) -> Schema:
    return Schema(tuple(Column(name, Type(kind)) for name, kind in columns.items()))


def instant_of(row: dict[str, Any]) -> int:
    since = row["ts"] - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def scanned(
    table: VersionedTable, after: int = -1, upto: int = EVER, columns: Sequence[str] | None = None
) -> list[Any]:
    """Rows of a scan, each with `ts` as microseconds."""
    rows: list[dict[str, Any]] = table.scan(table.snapshot(), after, upto, columns).to_pylist()
    return [{**row, "ts": instant_of(row)} for row in rows]


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path, clock=stopped)


def test_rows_have_the_instant_of_their_publication(catalogue: Catalogue) -> None:
    table = catalogue.create("orders", schema(id="bigint", price="decimal", due="timestamp", paid="bool"))
    first = table.append([{"id": 1, "price": Decimal("9.95"), "due": START}, {"id": 2, "paid": True}])
    second = table.append(pa.table({"id": pa.array([3], pa.int32())}))
    assert START_US < first < second
    assert scanned(table) == [
        {"id": 1, "price": Decimal("9.95"), "due": START, "paid": None, "ts": first},
        {"id": 2, "price": None, "due": None, "paid": True, "ts": first},
        {"id": 3, "price": None, "due": None, "paid": None, "ts": second},
    ]
    assert scanned(table, first, second, ["id"]) == [{"id": 3, "ts": second}]
    assert scanned(table, first - 1, first, []) == [{"ts": first}, {"ts": first}]
    assert scanned(table, second, EVER) == []


def test_results_and_progress_are_one_entry_and_a_repeated_run_adds_nothing(catalogue: Catalogue) -> None:
    """A run that was killed after its publication is repeated: the table has its rows once, and no file is left behind."""
    table = catalogue.create("results", schema(run="bigint"))
    published = table.append([{"run": 1}], progress={"late": 70})
    assert table.append([{"run": 1}], progress={"late": 70}) == published
    assert table.append([{"run": 2}], progress={"late": 71}) > published
    assert [row["run"] for row in scanned(table)] == [1, 2]
    assert table.snapshot().progress == {"late": 71}
    assert len(list(table.table.storage.list("data"))) == 2


def test_a_run_without_rows_keeps_its_progress(catalogue: Catalogue) -> None:
    table = catalogue.create("results", schema(run="bigint"))
    table.append([], progress={"late": 70})
    assert table.snapshot().progress == {"late": 70}
    assert scanned(table) == []


def test_no_row_comes_at_or_before_a_closed_instant(catalogue: Catalogue) -> None:
    table = catalogue.create("orders", schema(id="bigint"))
    table.append([{"id": 1}])
    closed = table.close()
    table.append([{"id": 2}])
    assert [row["id"] for row in scanned(table, -1, closed)] == [1]
    assert [row["id"] for row in scanned(table, closed, EVER)] == [2]


def test_columns_come_and_widen_with_the_rows_that_need_them(catalogue: Catalogue) -> None:
    """Older rows have NULL in a new column. A reader with an older snapshot has the older columns."""
    table = catalogue.create("orders", schema(id="bigint"))
    table.append([{"id": 1}])
    before = table.snapshot()
    table.append([{"id": 1.5, "note": "x"}], additions=schema(id="double", note="text"))
    assert [(row["id"], row["note"]) for row in scanned(table)] == [(1.0, None), (1.5, "x")]
    assert table.scan(before, -1, EVER).to_pydict().keys() == {"id", "ts"}
    assert table.schema(before) == schema(id="bigint")
    assert catalogue.schemas() == {"orders": schema(id="double", note="text")}


def test_a_row_with_an_unknown_column_or_another_type_is_refused_whole(catalogue: Catalogue) -> None:
    """The message names the column, and nothing of the rows is published."""
    table = catalogue.create("orders", schema(id="bigint"))
    with pytest.raises(SchemaError, match="no column 'colour': declare it first"):
        table.append([{"id": 1}, {"colour": "red"}])
    with pytest.raises(ValueError, match="column 'id': str is not bigint"):
        table.append([{"id": 1}, {"id": "2"}])
    with pytest.raises(SchemaError, match="'id' was bigint, and would be text"):
        table.append([{"id": "2"}], additions=schema(id="text"))
    with pytest.raises(SchemaError, match="no column 'colour': there are id"):
        scanned(table, columns=["colour"])
    assert scanned(table) == []


def test_two_writers_that_add_the_same_column_with_two_types_are_not_mixed(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """The second writer has prepared its rows before the first one published: it gets the error, and its file goes."""
    table = catalogue.create("orders", schema(id="bigint"))
    other = Catalogue(tmp_path).open("orders")
    written = VersionedTable._written

    def meanwhile(self: VersionedTable, content: Any) -> Any:
        file = written(self, content)
        if self is table:
            other.append([{"note": "x"}], additions=schema(note="text"))
        return file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VersionedTable, "_written", meanwhile)
        with pytest.raises(SchemaError, match="'note' was text"):
            table.append([{"note": 1}], additions=schema(note="bigint"))
    assert [row["note"] for row in scanned(table)] == ["x"]
    assert len(list(table.table.storage.list("data"))) == 1


def test_files_and_row_groups_outside_the_instants_are_not_read(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruning by file, and by row group of a compacted file: their number is counted, and other rows are never decoded."""
    monkeypatch.setattr("quaestor.tables.maintenance._GROUP_ROWS", 1)
    table = catalogue.create("orders", schema(id="bigint"))
    instants = [table.append([{"id": number}]) for number in range(10)]
    read: list[str] = []
    opened = versioned.opened
    monkeypatch.setattr(versioned, "opened", lambda table, file: (read.append(file.path), opened(table, file))[1])
    assert [row["id"] for row in scanned(table, instants[3], instants[5])] == [4, 5]
    assert len(read) == 2
    (group,) = groups(table.snapshot(), 1 << 20)
    assert compact(table.table, group, now_ms=0)
    table.append([{"id": 10}])
    conformed, decoded = versioned._conformed, []
    monkeypatch.setattr(versioned, "_conformed", lambda *args: (decoded.append(args[0].num_rows), conformed(*args))[1])
    read.clear()
    assert [row["id"] for row in scanned(table, instants[3], instants[5])] == [4, 5]
    assert len(read) == 1
    assert sum(decoded) == 2


def test_names_are_unique_and_a_dropped_table_is_gone(catalogue: Catalogue, tmp_path: Path) -> None:
    """Another process sees created and dropped tables; a table that is made again under the name is empty."""
    other = Catalogue(tmp_path)
    table = catalogue.create("shop.orders", schema(id="bigint"))
    table.append([{"id": 1}])
    assert other.names() == ["shop.orders"]
    assert [row["id"] for row in scanned(other.open("shop.orders"))] == [1]
    with pytest.raises(ConfigurationError, match=r"'shop.orders' exists"):
        other.create("Shop.Orders", schema(id="bigint"))
    with pytest.raises(ConfigurationError, match="letters"):
        other.create("no table!", schema(id="bigint"))
    other.drop("shop.orders")
    assert catalogue.names() == []
    with pytest.raises(ConfigurationError, match=r"no table 'shop.orders': there are none"):
        catalogue.open("shop.orders")
    assert scanned(catalogue.create("shop.orders", schema(id="text"))) == []
    assert len(list(tmp_path.glob("shop.orders-*/data/*"))) == 0


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "steps", "close", "compact", "add", "widen", "anew"]),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=20,
)


@given(STEPS, st.lists(st.integers(0, 60), min_size=2, max_size=2))
def test_a_scan_returns_the_rows_of_its_instants(steps: list[Step], bounds: list[int]) -> None:
    """Random rows, instants, columns and compactions, beside a list of what was appended."""
    root = Path(tempfile.mkdtemp())
    try:
        expected: list[dict[str, Any]] = []
        table = Catalogue(root, clock=stopped).create("t", schema(n="bigint"))
        base = table.snapshot().instant
        for number, (kind, size, choice) in enumerate(steps):
            names = [name for name in table.schema().names if name != "n"]
            row = {"n": number, **dict.fromkeys(names, number)}
            if kind == "anew":
                table = Catalogue(root, clock=stopped).open("t")
            elif kind == "close":
                assert table.close() > max((row["ts"] for row in expected), default=0)
            elif kind == "compact":
                for group in list(groups(table.snapshot(), 1 << 20))[:choice]:
                    assert compact(table.table, group, now_ms=0)
            elif kind == "add" and len(names) < 3:
                table.evolve(Schema((*table.schema().columns, Column(f"c{len(names)}", Type.BIGINT))))
            elif kind == "widen":
                columns = table.schema().columns
                table.evolve(Schema((Column("n", Type.DOUBLE), *columns[1:])))
            elif kind == "steps" and size:
                offsets = sorted((number * 7 + place) % (choice + 1) for place in range(size))
                last = table.append([row] * size, steps=offsets)
                expected += [{**row, "ts": last - offsets[-1] + offset} for offset in offsets]
            elif kind == "append" and size:
                expected += [{**row, "ts": table.append([row] * size)}] * size
        names = list(table.schema().names)
        after, upto = base + min(bounds) - 1, base + max(bounds)
        wanted = [
            {**{name: row.get(name) for name in names}, "ts": row["ts"]}
            for row in expected
            if after < row["ts"] <= upto
        ]

        def order(row: dict[str, Any]) -> tuple[int, float]:
            return row["ts"], row["n"]

        assert sorted(scanned(table, after, upto), key=order) == sorted(wanted, key=order)
        assert len(scanned(table)) == len(expected)
    finally:
        shutil.rmtree(root)
