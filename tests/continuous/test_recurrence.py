"""Recurrence: how long after its result an equal row can come again, and for how long results are therefore remembered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quaestor.continuous import compilation
from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.rules.recurrence import recurrence
from quaestor.continuous.runs.remembered import Remembered
from quaestor.continuous.runs.run import run
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.tables.schema import Type
from tests.continuous import oracle
from tests.continuous.checks import CATALOGUE as RANDOM_CATALOGUE
from tests.continuous.checks import differences
from tests.continuous.runs.world import World
from tests.continuous.test_worked_examples import CATALOGUE

WEEKS = 7 * 86_400 * 1_000_000
ANSWERED = "SELECT m.id, m.ts AS at FROM msgs m JOIN msgs r ON r.inreplyto = m.id AND r.ts <= m.ts + INTERVAL 2 WEEK"


@pytest.fixture(scope="module")
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=1) as engine:
        yield engine


@pytest.mark.parametrize(
    ("text", "within", "line"),
    [
        (ANSWERED, 2 * WEEKS, "A row can come again within 14 days after its result"),
        (ANSWERED.replace(", m.ts AS at", ""), None, "remembered without end"),
        (ANSWERED.replace("m.ts AS at", "m.ts + INTERVAL 1 DAY AS at"), 2 * WEEKS, "within 14 days"),
        ("SELECT id FROM msgs", None, "An equal row of a later run repeats a result"),
        ("SELECT id, ts AS at FROM msgs", 0, "No row repeats"),
        (
            "SELECT id, ts AS at FROM msgs m WHERE m.ts + INTERVAL 2 WEEK < now()"
            " AND NOT EXISTS (SELECT 1 FROM msgs r WHERE r.inreplyto = m.id)",
            0,
            "No row repeats",
        ),
        (
            "SELECT m.id, m.ts AS at FROM msgs m JOIN msgs r ON r.inreplyto = m.id"
            " WHERE now() BETWEEN m.ts + INTERVAL 1 HOUR AND m.ts + INTERVAL 90 MINUTE",
            1_800 * 1_000_000,
            "within 30 minutes",
        ),
        ("SELECT item, COUNT(*) AS n FROM votes GROUP BY item", None, "remembered without end"),
    ],
)
def test_the_explanation_says_how_long_results_are_remembered(text: str, within: int | None, line: str) -> None:
    """A selected instant bounds the time, if the conditions keep the result near it."""
    compiled = compile_query(text, CATALOGUE)
    assert compiled.repeats_within == within
    assert line in compiled.explanation


_X, _Y = ("m", "x"), ("r", "y")
_SELECTED = (oracle.Column("x", "k"), oracle.Column("x", "ts"))
BOUNDED = {
    3: oracle.Select(
        _SELECTED, (_X, _Y), (), oracle.Compare(oracle.Column("y", "ts"), "<=", oracle.Column("x", "ts", 3))
    ),
    4: oracle.Select(
        _SELECTED,
        (_X, _Y),
        (),
        oracle.And(
            (
                oracle.Compare(oracle.Column("y", "ts"), "<=", oracle.Column("x", "ts", 1)),
                oracle.Compare(oracle.Column("x", "a"), "<=", oracle.Column("x", "ts", 4)),
                oracle.Now(oracle.Column("x", "a"), ">=", 0, 0),
            )
        ),
    ),
}
"""Queries of the tables of the oracle, by the ticks within which their rows can come again."""


def outcomes(executor: DuckDbExecutor, seeds: range) -> list[str]:
    return [
        fault
        for query in BOUNDED.values()
        for seed in seeds
        for fault in differences(executor, seed, fixed=query) or ()
    ]


def test_no_row_comes_again_later_than_that(executor: DuckDbExecutor) -> None:
    """Random histories and schedules, against the oracle."""
    within = {ticks: compile_query(query.sql(), RANDOM_CATALOGUE).repeats_within for ticks, query in BOUNDED.items()}
    assert within == {ticks: ticks for ticks in BOUNDED}
    assert outcomes(executor, range(33, 36)) == []


def test_a_shorter_time_is_wrong(executor: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant whose time is a tick shorter lets rows come again too late."""
    monkeypatch.setattr(compilation, "recurrence", lambda candidates: (recurrence(candidates) or 1) - 1)
    assert any("too late" in fault for fault in differences(executor, 34, fixed=BOUNDED[3]) or ())


def test_results_are_forgotten_after_that_time(tmp_path: Path) -> None:
    """A second reply within two weeks repeats no result. Hashes of older results leave the memory."""
    world = World(tmp_path)
    world.table("msgs", id=Type.TEXT, inreplyto=Type.TEXT)
    world.install(text=ANSWERED)
    query, remembered = world.installed.get("due"), Remembered()
    prepared = SqlEngine(world.catalogue, DuckDbExecutor()).prepare(query.text)
    new, kept = [], []
    for week in range(6):
        world.add("msgs", {"id": f"m{week}"}, {"id": "x", "inreplyto": f"m{week}"})
        world.add("msgs", *[{"id": "y", "inreplyto": f"m{week - 1}"}] * (week > 0))
        world.advance(minutes=1)
        new.append(run(query, prepared, world.catalogue, remembered).rows)
        kept.append(remembered.rows)
        world.now += timedelta(weeks=1)
    assert new == [1] * 6
    assert kept == [0, 1, 2, 2, 2, 2]
