"""Runs of random queries against the oracle: the union of all runs is what the query returned at any instant, each row once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.rules import derivations, groups, incremental
from quaestor.continuous.sql.groups import Grouped
from quaestor.continuous.sql.model import Instant
from quaestor.continuous.sql.writing import at_most
from tests.continuous import oracle
from tests.continuous.checks import differences

SEEDS = st.integers(0, 2**48)
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}


@pytest.fixture(scope="module")
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=1) as engine:
        yield engine


@settings(max_examples=40, derandomize=True, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=SEEDS)
def test_runs_deliver_each_result_of_every_instant_once(executor: DuckDbExecutor, seed: int) -> None:
    """Standard, monotone, incremental and exact queries agree with the oracle at every run; so do instants of entering."""
    assert not differences(executor, seed)


@settings(max_examples=60, derandomize=True, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=SEEDS)
@example(seed=422)  # two alternatives over two tables: each branch of each needs the other alternative
def test_row_combinations_are_delivered_once(executor: DuckDbExecutor, seed: int) -> None:
    """Without subqueries the incremental query itself never repeats a combination of rows (I2)."""
    assert not differences(executor, seed, plain=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=600, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=SEEDS, plain=st.booleans())
def test_many_runs_deliver_each_result_of_every_instant_once(executor: DuckDbExecutor, seed: int, plain: bool) -> None:
    """The same promises on many more queries."""
    assert not differences(executor, seed, plain=plain)


def _drop_a_pair(patch: pytest.MonkeyPatch) -> None:
    pairs = derivations._pairs
    patch.setattr(derivations, "_pairs", lambda part: list(pairs(part))[:-1])


def _test_absence_before_the_instant(patch: pytest.MonkeyPatch) -> None:
    absent = derivations.absent_at
    patch.setattr(derivations, "absent_at", lambda parts, instant: absent(parts, instant.later(-1)))


def _forget_deaths(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derivations, "_deaths", lambda parts, suffixes: iter(()))


def _greatest_for_and(patch: pytest.MonkeyPatch) -> None:
    def up_to(moments: Any, end: exp.Expr) -> tuple[exp.Expr, ...]:
        greatest = at_most(derivations.latest(tuple(moments)), Instant(end))
        return () if greatest is None else (greatest,)

    patch.setattr(derivations.Derivation, "by", lambda self, end: (*self.conditions, *up_to(self.moments, end)))


def _forget_other_alternatives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(incremental, "_known_before", lambda item, others: iter(()))


@pytest.mark.parametrize(
    ("mutant", "plain"),
    [
        (_drop_a_pair, True),
        (_test_absence_before_the_instant, False),
        pytest.param(_forget_deaths, False, marks=pytest.mark.slow),
        pytest.param(_greatest_for_and, True, marks=pytest.mark.slow),
        (_forget_other_alternatives, True),
    ],
)
def test_each_rule_is_needed(
    executor: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None], plain: bool
) -> None:
    """A mutant of each rule differs from the oracle within 300 random queries."""
    mutant(monkeypatch)
    assert any(differences(executor, seed, plain=plain) for seed in range(300))


@settings(max_examples=25, derandomize=True, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=SEEDS)
def test_groups_are_delivered_at_every_instant(executor: DuckDbExecutor, seed: int) -> None:
    """HAVING and the first groups of an order, over rows that enter and leave (R18)."""
    assert not differences(executor, seed, grouped=True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=600, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=SEEDS)
def test_groups_of_many_queries_are_delivered(executor: DuckDbExecutor, seed: int) -> None:
    """The same promise on many more queries."""
    assert not differences(executor, seed, grouped=True)


def _forget_rows_that_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derivations, "_deaths", lambda parts, suffixes: iter(()))


def _count_each_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "_first", lambda grouped, item: exp.Literal.number(1))


def _ignore_the_order(patch: pytest.MonkeyPatch) -> None:
    results = groups._results
    patch.setattr(
        groups, "_results", lambda grouped, states, at=True: results(replace(grouped, order=()), states, at=at)
    )


def _count_new_rows_only(patch: pytest.MonkeyPatch) -> None:
    running = groups._running

    def of_new_rows(grouped: Grouped, start: str | None, end: str) -> exp.Select:
        states = running(grouped, start, end)
        for exists in list(states.find_all(exp.Exists)):
            published = grouped.conjunction.lowers[0].base.copy()
            exists.replace(exp.LT(this=exp.Placeholder(this="tau"), expression=published))
        return states

    patch.setattr(groups, "_running", of_new_rows)


_M, _R = ("m", "x"), ("r", "y")
_KEY = (oracle.Column("x", "k"),)
_ALL = (oracle.Aggregate("COUNT(*)", oracle.Column("x", "k")),)
_THREE = oracle.Threshold(((0, ">=", 3),), True)


@pytest.mark.parametrize(
    ("mutant", "query"),
    [
        (
            _forget_rows_that_leave,
            oracle.Grouped(_KEY, _ALL, (_M,), oracle.Now(oracle.Column("x", "ts", 3), "<=", 0, 0), None, True),
        ),
        (
            _count_each_value,
            oracle.Grouped(
                _KEY, (oracle.Aggregate("COUNT(DISTINCT)", oracle.Column("x", "id")),), (_M, _R), None, _THREE, False
            ),
        ),
        (_ignore_the_order, oracle.Grouped(_KEY, _ALL, (_M,), None, None, False, ((0, True),), 1)),
        (_count_new_rows_only, oracle.Grouped(_KEY, _ALL, (_M,), None, _THREE, False)),
    ],
)
def test_each_rule_on_groups_is_needed(
    executor: DuckDbExecutor,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    query: oracle.Grouped,
) -> None:
    """A mutant of each rule differs from the oracle within 60 random histories, and the rule itself in none of the first 5."""
    assert not any(differences(executor, seed, grouped=True, fixed=query) for seed in range(5))
    mutant(monkeypatch)
    assert any(differences(executor, seed, grouped=True, fixed=query) for seed in range(60))
