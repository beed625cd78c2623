"""Reach of runs: a run without the rows outside gives the same rows, and the reach is as narrow as the text allows."""

from __future__ import annotations

from random import Random

import pytest

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.reach import Reach, reaches
from quaestor.continuous.sql.refusals import QueryRefusedError
from tests.continuous.checks import CATALOGUE as RANDOM_CATALOGUE
from tests.continuous.checks import MOST_TEXT, Runs
from tests.continuous.random_queries import Queries, histories, schedule
from tests.continuous.test_worked_examples import CATALOGUE, EXAMPLES

TWO_WEEKS = 14 * 86_400 * 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EXAMPLES["w01"]["text"], {"msgs": Reach(0, 0)}),
        (EXAMPLES["w03"]["text"], {"msgs": Reach(15, 15)}),
        (EXAMPLES["w06"]["text"], {"msgs": Reach(None, 0)}),
        (EXAMPLES["w05"]["text"], {"msgs": Reach(None, 0)}),
        (EXAMPLES["w16"]["text"], {"items": Reach(None, 0), "stocks": Reach(None, 0)}),
        (
            EXAMPLES["w06"]["text"] + " AND m.ts + INTERVAL 7 MICROSECOND >= m1.ts AND m1.ts >= m.ts",
            {"msgs": Reach(7, 0)},
        ),
        (
            """SELECT id FROM votes v WHERE ts + INTERVAL 14 MICROSECOND <= now() AND NOT EXISTS (
            SELECT 1 FROM msgs WHERE sender = v.voter AND msgs.ts >= v.ts - INTERVAL 5 MICROSECOND)""".replace(
                "id", "item", 1
            ),
            {"votes": Reach(14, 14), "msgs": Reach(19, 0)},
        ),
        ("SELECT id FROM items WHERE ts + INTERVAL 14 DAY <= now()", {"items": Reach(TWO_WEEKS, 0)}),
        ("SELECT id FROM msgs WHERE ts + INTERVAL 14 DAY <= now()", {"msgs": Reach(TWO_WEEKS, TWO_WEEKS)}),
    ],
)
def test_a_table_is_read_as_far_as_the_conditions_reach(text: str, expected: dict[str, Reach]) -> None:
    """A version is read up to t, because a later version ends it."""
    assert reaches(compile_query(text, CATALOGUE).incremental) == expected


def test_rows_outside_the_reach_change_no_run() -> None:
    """Random queries: the incremental query gives the same rows with and without them, and some rows are left out."""
    left_out = 0
    with DuckDbExecutor() as executor:
        for seed in range(100):
            random = Random(seed)
            try:
                compiled = compile_query(Queries(random, plain=seed % 2 == 0).query().sql(), RANDOM_CATALOGUE)
            except QueryRefusedError:
                continue
            if len(compiled.incremental.sql()) > MOST_TEXT:
                continue
            history = histories(random)
            whole = Runs(executor, compiled, history, RANDOM_CATALOGUE)
            tau = 0
            for t in schedule(random):
                found = reaches(compiled.incremental)
                near = {
                    name: [row for row in rows if _within(row["ts"], found.get(name, Reach()), tau, t)]
                    for name, rows in history.items()
                }
                left_out += sum(map(len, history.values())) - sum(map(len, near.values()))
                pruned = Runs(executor, compiled, near, RANDOM_CATALOGUE)
                assert sorted(map(str, whole.rows(compiled.incremental, tau, t))) == sorted(
                    map(str, pruned.rows(compiled.incremental, tau, t))
                ), (seed, compiled.text, tau, t)
                tau = t
    assert left_out > 100


def _within(ts: int, reach: Reach, tau: int, t: int) -> bool:
    after, upto = reach.interval(tau, t)
    return after < ts <= upto
