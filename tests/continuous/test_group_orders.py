"""Known orders in grouped queries: every run returns the rows of the exact rule, over histories in which the order holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from quaestor.continuous.compilation import compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.rules import orders
from quaestor.continuous.rules.orders import KnownOrder
from tests.continuous.checks import CATALOGUE, Runs

ORDER = KnownOrder("m", "k", "r", "k")
COUNTED = "SELECT m.id, COUNT(*) AS replies FROM m, r WHERE r.k = m.k GROUP BY m.id"
QUERIES = (
    COUNTED,
    "SELECT m.id FROM m, r WHERE r.k = m.k AND now() < r.ts + INTERVAL 3 MICROSECOND GROUP BY m.id HAVING COUNT(*) >= 2",
    "SELECT m.id FROM m, r WHERE r.k = m.k AND m.a <= now() AND now() < m.b GROUP BY m.id ORDER BY COUNT(*) DESC LIMIT 1",
    "SELECT m.k FROM m, r, m o WHERE r.k = m.k AND r.k = o.k AND o.id <> m.id GROUP BY m.k HAVING SUM(o.k) >= 1",
    """SELECT m.k FROM m WHERE m.ts + INTERVAL 2 MICROSECOND <= now()
       AND NOT EXISTS (SELECT 1 FROM r WHERE r.k = m.k AND now() < r.b) GROUP BY m.k""",
)


def history(random: Random) -> dict[str, list[dict[str, Any]]]:
    """Return messages at the instants 0 to 3, and replies from 3 on."""

    def rows(name: str, instants: range) -> list[dict[str, Any]]:
        return [
            {
                "id": f"{name}{number}",
                "k": random.choice([1, 1, 2, None]),
                "a": random.choice([None, *range(9)]),
                "b": random.choice([None, *range(12)]),
                "ts": random.choice(instants),
            }
            for number in range(random.randrange(4, 8))
        ]

    return {"m": rows("m", range(4)), "r": rows("r", range(3, 10))}


@pytest.fixture(scope="module")
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=1) as engine:
        yield engine


def differences(executor: DuckDbExecutor, text: str, seeds: range) -> tuple[int, list[str]]:
    """Return the number of rows of a query's runs, and the runs that differ with the order."""
    exact = compile_query(text, CATALOGUE)
    ordered = compile_query(text, CATALOGUE, orders=[ORDER])
    assert (exact.orders, ordered.orders) == ((), (ORDER,))
    faults: list[str] = []
    count = 0
    for seed in seeds:
        random = Random(seed)
        tables = history(random)
        for tau, t in pairwise([None, *sorted(random.sample(range(2, 13), 2)), 14]):
            assert t is not None
            rows = Runs(executor, exact, tables).rows(exact.incremental, tau, t)
            count += len(rows)
            with_order = Runs(executor, ordered, tables).rows(ordered.incremental, tau, t)
            if sorted(map(repr, with_order)) != sorted(map(repr, rows)):
                faults.append(f"seed {seed} ({tau}, {t}]: {with_order} instead of {rows}")
    return count, faults


@pytest.mark.parametrize("text", QUERIES)
def test_groups_with_a_known_order_have_the_rows_of_the_exact_rule(executor: DuckDbExecutor, text: str) -> None:
    """Counts, thresholds, moving windows, the first group, joins of three tables, and NOT EXISTS."""
    count, faults = differences(executor, text, range(3))
    assert faults == []
    assert count > 1


def test_an_order_the_other_way_round_is_wrong(executor: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that drops the bound of the later row loses results."""
    pairs = orders.ordered_pairs
    monkeypatch.setattr(
        orders,
        "ordered_pairs",
        lambda part, known: {(later, earlier): order for (earlier, later), order in pairs(part, known).items()},
    )
    assert differences(executor, COUNTED, range(3))[1]
