"""Shared plans: queries that differ in constants only are one plan, and each gets the rows that it gets alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quaestor.continuous import sharing
from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.rules.constants import Constant
from quaestor.continuous.sharing import SharedPlan, plan_of
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.templates import template_of
from quaestor.tables.schema import Type
from tests.continuous import oracle
from tests.continuous.checks import CATALOGUE, MOST_TEXT, arrow, rows_of
from tests.continuous.random_queries import INSTANTS, Queries, histories, schedule
from tests.continuous.test_worked_examples import CATALOGUE as MESSAGES

QUERIES = 3
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}


@pytest.fixture(scope="module")
def executor() -> Iterator[DuckDbExecutor]:
    with DuckDbExecutor(threads=1) as engine:
        yield engine


def with_texts(node: Any, random: Random) -> Any:
    """Return a query in which some comparisons with numbers are comparisons of ids with texts."""
    if isinstance(node, oracle.Compare) and isinstance(node.right, int) and random.random() < 0.5:
        return oracle.Compare(replace(node.left, name="id"), node.operator, f"m{node.right}")
    return _rebuilt(node, lambda part: with_texts(part, random))


def varied(node: Any, random: Random) -> Any:
    """Return a query of the same shape with other constants."""
    if isinstance(node, oracle.Column | oracle.Now) and node.shift:
        sign = 1 if node.shift > 0 else -1
        return replace(_rebuilt(node, lambda part: varied(part, random)), shift=sign * random.randrange(1, 5))
    if isinstance(node, oracle.Compare) and not isinstance(node.right, oracle.Column):
        value = random.randrange(2)
        return replace(node, right=value if isinstance(node.right, int) else f"{random.choice('mr')}{value}")
    return _rebuilt(node, lambda part: varied(part, random))


def _rebuilt(node: Any, changed: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(changed(part) for part in node)
    if is_dataclass(node) and not isinstance(node, type):
        return replace(node, **{field.name: changed(getattr(node, field.name)) for field in fields(node)})
    return node


def groups(compiled: dict[str, CompiledQuery]) -> list[SharedPlan]:
    """Return the shared plans of queries, as the engine makes them."""
    by_signature: dict[str, dict[str, CompiledQuery]] = {}
    for name, query in compiled.items():
        by_signature.setdefault(query.signature, {})[name] = query
    return [
        plan_of(
            next(iter(members.values())),
            {name: query.constants for name, query in members.items()},
            lambda name: compiled[name].incremental,
        )
        for members in by_signature.values()
    ]


def differences(executor: DuckDbExecutor, seed: int) -> tuple[int, list[str]] | None:
    """Return the number of queries that share a plan, and where their runs differ from runs alone or from the oracle."""
    random = Random(seed)
    query = with_texts(Queries(random, plain=random.random() < 0.3).query(), random)
    queries = {f"q{number}": varied(query, random) for number in range(QUERIES)}
    tables = histories(random)
    try:
        compiled = {name: compile_query(member.sql(), CATALOGUE) for name, member in queries.items()}
    except QueryRefusedError:
        return None
    if max(len(member.incremental.sql()) for member in compiled.values()) > MOST_TEXT:
        return None
    first = {name: oracle.first_instants(member, tables, INSTANTS) for name, member in queries.items()}
    snapshots = {name: arrow(tables[name], CATALOGUE[name]) for name in compiled["q0"].tables}
    plans = groups(compiled)
    faults: list[str] = []
    taus: dict[str, int | None] = dict.fromkeys(queries)
    delivered: dict[str, set[Any]] = {name: set() for name in queries}
    instants = schedule(random)
    for t in instants:
        taking_part = [name for name in queries if t == instants[-1] or random.random() < 0.6]
        for plan in plans:
            own = {name: taus[name] for name in plan.constants if name in taking_part}
            for name, rows in plan.rows(executor, own, t, snapshots).items():
                together = rows_of(rows)
                alone = rows_of(executor.rows(compiled[name].incremental, own[name], t, snapshots))
                if sorted(map(repr, together)) != sorted(map(repr, alone)):
                    faults.append(f"{name} ({own[name]}, {t}]: {together} instead of {alone}")
                delivered[name] |= set(together)
                expected = {row for row, instant in first[name].items() if instant <= t}
                if delivered[name] != expected:
                    faults.append(f"{name} up to {t}: {delivered[name]} instead of {expected}")
        taus.update(dict.fromkeys(taking_part, t))
    if faults:
        faults.append(f"seed {seed}: {[member.sql() for member in queries.values()]} {tables}")
    return sum(len(set(plan.constants.values())) for plan in plans if len(set(plan.constants.values())) > 1), faults


@settings(max_examples=15, derandomize=True, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=st.integers(0, 2**48))
def test_each_query_of_a_shared_plan_gets_the_rows_that_it_gets_alone(executor: DuckDbExecutor, seed: int) -> None:
    """Queries of one shape with other constants, each with its own instants of runs."""
    outcome = differences(executor, seed)
    assert outcome is None or not outcome[1]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=500, **UNHURRIED)  # type: ignore[arg-type]
@given(seed=st.integers(0, 2**48))
def test_each_query_of_many_shared_plans_gets_its_rows(executor: DuckDbExecutor, seed: int) -> None:
    """The same promise on many more queries."""
    outcome = differences(executor, seed)
    assert outcome is None or not outcome[1]


def test_random_queries_share_plans(executor: DuckDbExecutor) -> None:
    """Of 12 random groups, at least half share a plan with several different constants."""
    outcomes = [outcome for seed in range(12) if (outcome := differences(executor, seed)) is not None]
    assert sum(shared > 1 for shared, _ in outcomes) * 2 > len(outcomes)


def test_a_common_tau_for_all_queries_is_wrong(executor: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant with the least tau of all queries differs within 60 random groups."""
    table = SharedPlan.table

    def least(plan: SharedPlan, taus: dict[str, int | None]) -> pa.Table:
        known = None if None in taus.values() else min((tau for tau in taus.values() if tau is not None), default=None)
        return table(plan, dict.fromkeys(taus, known))

    monkeypatch.setattr(SharedPlan, "table", least)
    assert any(outcome[1] for seed in range(60) if (outcome := differences(executor, seed)) is not None)


def test_exchanged_constants_are_wrong(executor: DuckDbExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that gives each query the constants of another differs within 60 random groups."""
    by_query = sharing._by_query

    def exchanged(rows: pa.Table, names: dict[str, int | None]) -> dict[str, pa.Table]:
        parts = by_query(rows, names)
        return dict(zip(parts, [*list(parts.values())[1:], *list(parts.values())[:1]], strict=True))

    monkeypatch.setattr(sharing, "_by_query", exchanged)
    assert any(outcome[1] for seed in range(60) if (outcome := differences(executor, seed)) is not None)


def test_spelling_does_not_matter() -> None:
    """Aliases, the order of conditions, the sides of an equality and units of time do not change the signature."""
    first = compile_query("SELECT id FROM msgs WHERE sender = 'joe' AND ts + INTERVAL 1 DAY < now()", MESSAGES)
    second = compile_query(
        "SELECT x.id FROM msgs x WHERE now() > INTERVAL 2 HOUR + x.ts AND 'ann' = x.sender", MESSAGES
    )
    assert first.signature == second.signature
    assert Constant("ann", Type.TEXT) in second.constants


@pytest.mark.parametrize("condition", ["id || 'x' = {}", "length(id) = {}", "id LIKE {} ESCAPE '$'"])
def test_constants_of_expressions_stay_in_the_plan(condition: str) -> None:
    """A literal leaves the plan only where a column of its type is compared, because a literal takes the type it meets."""
    texts = [condition.format(value) for value in (("1", "2") if "length" in condition else ("'1'", "'2'"))]
    plans = [compile_query(f"SELECT id FROM msgs WHERE {text}", MESSAGES) for text in texts]
    kept = plans[0].signature != plans[1].signature
    assert kept == ("LIKE" not in condition)


@pytest.mark.parametrize(
    ("text", "values", "free"),
    [
        ("SELECT id, sender FROM msgs WHERE sender = {}", ("'joe'", "'it''s'", "''"), True),
        ("SELECT m.id FROM msgs m WHERE (m.sender <> {} OR due < now()) AND m.date < now()", ("'a'", "'b'"), True),
        ("SELECT id FROM msgs WHERE ts + INTERVAL 1 DAY < now() AND subject LIKE {}", ("'a%'", "'%b_'"), True),
        (
            "SELECT id FROM msgs m WHERE NOT EXISTS (SELECT 1 FROM msgs r WHERE r.inreplyto = m.id AND r.sender = {})",
            ("'a'", "'b'"),
            True,
        ),
        ("SELECT item FROM votes WHERE points >= {}", ("1", "200"), True),
        ("SELECT item FROM votes WHERE points >= {}", ("1.5", "12345678901234567890"), True),
        ("SELECT id FROM msgs WHERE sender = {} OR sender = 'b'", ("'a'", "'b'"), False),
        ("SELECT item FROM votes WHERE points > {}", ("-1", "1 + 1"), False),
        ("SELECT id FROM msgs WHERE length(sender) = {}", ("1", "2"), False),
        ("SELECT id FROM msgs WHERE ts + INTERVAL {} DAY < now()", ("1", "2"), False),
    ],
)
def test_a_template_gives_the_constants_of_each_text(text: str, values: tuple[str, ...], free: bool) -> None:
    """Constants and plan are those of the text's own compilation, or the template does not serve the text."""
    for value in values:
        template, own = template_of(text.format(value))
        assert bool(template.texts) is free
        if not free:
            continue
        marked = compile_query(template.marked(), MESSAGES)
        places = template.places(marked)
        assert places is not None
        compiled = compile_query(text.format(value), MESSAGES)
        filled = places.filled(own)
        assert filled in (None, compiled.constants)
        assert (filled is None) == (compiled.signature != marked.signature)
