"""Runs: every instant once, whenever they happen; results and progress are one entry."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.continuous.engine import NOTHING
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.runs.remembered import Remembered, joined
from quaestor.continuous.runs.results import fitted, hashed, without
from quaestor.continuous.runs.run import run
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.errors import ConfigurationError
from quaestor.tables.schema import SchemaError
from tests.continuous.runs.plain_engine import PlainQuery
from tests.continuous.runs.world import NOON, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    created = World(tmp_path)
    created.reminders()
    return created


def ids(world: World) -> list[int]:
    return [row["id"] for row in world.results()]


def test_each_result_is_published_once_however_the_runs_are_spaced(world: World) -> None:
    """A run covers (after, upto]; the next begins where it ended."""
    world.install()
    world.add("reminders", *({"id": n, "note": "x", "due_at": NOON + timedelta(minutes=n)} for n in range(1, 6)))
    world.advance(minutes=2)
    first = world.run()
    assert ids(world) == [1, 2]
    assert world.run().rows == 0
    world.advance(minutes=60)
    last = world.run()
    assert ids(world) == [1, 2, 3, 4, 5]
    assert (first.after, first.published, last.rows) == (0, True, 3)
    assert [row["_row"] for row in world.results()] == [0, 1, 0, 1, 2]


def test_a_query_from_now_leaves_earlier_instants_out(world: World) -> None:
    world.add(
        "reminders",
        {"id": 1, "note": "x", "due_at": NOON + timedelta(minutes=1)},
        {"id": 2, "note": "x", "due_at": NOON + timedelta(minutes=3)},
    )
    world.advance(minutes=2)
    world.install(start=world.clock() * 1000)
    world.advance(minutes=2)
    world.run()
    assert ids(world) == [2]


def test_rows_that_appear_during_a_run_belong_to_the_next(world: World) -> None:
    """A run closes its instant first, so a row that is published later always has a later instant."""
    world.install(text="SELECT id, note FROM reminders WHERE $after < ts AND ts <= $upto")
    query = world.installed.get("due")
    prepared = world.engine.prepare(query.text)

    class Late:
        tables, shape, repeats_within = prepared.tables, prepared.shape, None

        def rows(self, *arguments: object) -> object:
            world.add("reminders", {"id": 2, "note": "late"})
            return prepared.rows(*arguments)  # type: ignore[arg-type]

    world.add("reminders", {"id": 1, "note": "x"})
    assert run(query, Late(), world.catalogue).rows == 1
    assert run(query, prepared, world.catalogue).rows == 1
    assert ids(world) == [1, 2]


def test_a_slower_process_publishes_nothing(world: World) -> None:
    """Two processes run the same interval: the results of only one count, also with another end."""
    world.install()
    query = world.installed.get("due")
    prepared = world.engine.prepare(query.text)
    world.add("reminders", {"id": 1, "note": "x", "due_at": NOON + timedelta(seconds=1)})
    world.advance(minutes=1)

    class Overtaken:
        tables, shape, repeats_within = prepared.tables, prepared.shape, None

        def rows(self, *arguments: object) -> object:
            assert world.run().published
            return prepared.rows(*arguments)  # type: ignore[arg-type]

    outcome = run(query, Overtaken(), world.catalogue)
    assert (outcome.published, outcome.rows) == (False, 0)
    assert ids(world) == [1]


def test_a_clock_that_steps_back_loses_nothing(world: World) -> None:
    """Instants go on; results are complete once the clock has reached their time again."""
    world.install()
    world.add(
        "reminders",
        {"id": 1, "note": "x", "due_at": NOON + timedelta(minutes=1)},
        {"id": 2, "note": "x", "due_at": NOON + timedelta(minutes=2)},
    )
    world.advance(minutes=1)
    world.run()
    world.advance(hours=-5)
    world.run()
    assert ids(world) == [1]
    world.advance(hours=6)
    world.run()
    assert ids(world) == [1, 2]


def test_a_row_that_was_published_is_not_published_again(world: World) -> None:
    """Set semantics: also within a run, and for rows with NULL."""
    world.install(text="SELECT note, due_at FROM reminders WHERE ts <= $upto AND $after < $upto")
    world.add("reminders", {"id": 1, "note": "x"}, {"id": 2, "note": "x"}, {"id": 3})
    assert world.run().rows == 2
    world.add("reminders", {"id": 4, "note": "x"}, {"id": 5, "note": "y"})
    assert world.run().rows == 1
    assert sorted(str(row["note"]) for row in world.results()) == ["None", "x", "y"]


def test_a_result_with_more_columns_extends_the_result_table(world: World) -> None:
    world.install()
    world.add("reminders", {"id": 1, "note": "x", "due_at": NOON + timedelta(seconds=1)})
    world.advance(minutes=1)
    query = world.installed.get("due")
    world.run()
    wider = PlainQuery(
        "SELECT id, note, 1 AS n FROM reminders WHERE $after < $upto AND ts <= $upto", ("reminders",), world.catalogue
    )
    assert run(query, wider, world.catalogue).rows == 1
    assert [row.get("n") for row in world.results()] == [None, 1]


def test_a_dropped_table_stops_the_run_with_its_name(world: World) -> None:
    world.install()
    prepared = world.engine.prepare(world.installed.get("due").text)
    world.catalogue.drop("reminders")
    with pytest.raises(ConfigurationError, match="'reminders'"):
        run(world.installed.get("due"), prepared, world.catalogue)


@pytest.mark.parametrize("name", ["_run", "_row", "ts"])
def test_a_column_of_the_result_table_itself_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match=f"column '{name}'"):
        fitted(pa.table({name: [1]}))


def test_results_have_types_of_tables() -> None:
    """Nested values become JSON, dates become timestamps, small integers widen."""
    rows = fitted(
        pa.table(
            {
                "a": pa.array([{"x": [1]}, None]),
                "d": pa.array([1, None], pa.date32()),
                "i": pa.array([1, None], pa.int8()),
            }
        )
    )
    assert rows.to_pylist()[0]["a"] == '{"x":[1]}'
    assert [str(field.type) for field in rows.schema] == ["string", "timestamp[us, tz=UTC]", "int64"]


VALUES = st.one_of(st.none(), st.integers(-2, 2))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=8), st.lists(st.tuples(VALUES, VALUES), max_size=8))
def test_new_rows_are_a_difference_of_sets(
    fresh: list[tuple[int | None, int | None]], known: list[tuple[int | None, int | None]]
) -> None:
    """Beside Python's own sets."""
    tables = [
        pa.table({"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.int64())})
        for rows in (fresh, known)
    ]
    new = [(row["a"], row["b"]) for row in without(*tables).to_pylist()]
    assert len(new) == len(set(new))
    assert set(new) == set(fresh) - set(known)


def test_a_run_reads_only_what_it_needs(world: World) -> None:
    """Of the tables the new files and the named columns; of earlier results the hashes once, and the rows that may be equal."""
    engine = SqlEngine(world.catalogue, DuckDbExecutor())
    world.install(text="SELECT note FROM reminders WHERE ts + INTERVAL 1 MINUTE <= now()")
    query = world.installed.get("due")
    prepared, remembered = engine.prepare(query.text), Remembered()
    outcomes = []
    for minute, note in enumerate("abcab"):
        world.add("reminders", *({"id": minute * 10 + n, "note": f"{note}{n}", "due_at": NOON} for n in range(10)))
        world.advance(seconds=61)
        outcomes.append(run(query, prepared, world.catalogue, remembered))
    assert [(done.read.files, done.read.rows) for done in outcomes] == [(1, 10), (1, 10), (1, 10), (1, 10), (1, 10)]
    assert [done.rows for done in outcomes] == [10, 10, 10, 0, 0]
    assert outcomes[1].read.bytes < 10 * 40  # two columns of four
    assert [(done.read_results.files, done.read_results.rows) for done in outcomes] == [
        (0, 0), (1, 10), (1, 10), (2, 20), (1, 10),
    ]  # fmt: skip
    again = run(query, prepared, world.catalogue, Remembered())
    assert (again.rows, again.read.rows) == (0, 0)


def test_earlier_results_are_not_read_where_no_row_can_repeat(world: World) -> None:
    engine = SqlEngine(world.catalogue, DuckDbExecutor())
    world.install(text="SELECT ts AS at, note FROM reminders")
    query = world.installed.get("due")
    prepared = engine.prepare(query.text)
    for _ in range(3):
        world.add("reminders", {"note": "x"}, {"note": "x"})
        done = run(query, prepared, world.catalogue)
        assert (done.rows, done.read_results) == (1, NOTHING)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=8, min_size=1), st.lists(st.tuples(VALUES, VALUES), max_size=8))
def test_equal_rows_have_equal_hashes(
    first: list[tuple[int | None, int | None]], second: list[tuple[int | None, int | None]]
) -> None:
    """Also after integers have become decimals or doubles; other rows have other hashes."""
    narrow = pa.table({"a": pa.array([a for a, _ in first], pa.int64()), "b": pa.array([str(b) for _, b in first])})
    kind = pa.decimal128(38, 12) if len(second) % 2 else pa.float64()
    wide = pa.table({"a": pa.array([a for a, _ in second], pa.int64()), "b": pa.array([str(b) for _, b in second])})
    wide = wide.set_column(0, "a", wide.column("a").cast(kind))
    equal = set(hashed(narrow).column("_hash").to_pylist()) & set(hashed(wide).column("_hash").to_pylist())
    assert len(equal) == len({(a, str(b)) for a, b in first} & {(a, str(b)) for a, b in second})


def test_many_equal_hashes_are_read_in_few_pieces() -> None:
    """All instants are covered, and the widest gaps are left out."""
    instants = sorted([*range(0, 5_000, 10), 10**9])
    intervals = joined(instants)
    assert len(intervals) == 64
    assert all(any(first <= instant <= last for first, last in intervals) for instant in instants)
    assert intervals[-1] == (10**9, 10**9)
    assert joined([]) == []
