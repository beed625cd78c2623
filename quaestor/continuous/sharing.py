"""Shared plans: queries of different users that differ in constants only are executed as one.

The plan joins with a table of constants (NiagaraCQ's idea). Each query keeps its own instant of the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from quaestor.continuous.compilation import CompiledQuery
from quaestor.continuous.executors.binding import conjuncts
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.instants import BEGINNING, timestamp
from quaestor.continuous.rules.constants import CONSTANTS, Constant, constant_column, constants_table
from quaestor.continuous.rules.monotone import TAU, placeholder
from quaestor.tables.versioned import ARROW

QUERY: Final = "_query"
"""Column of the id of the query that a row belongs to."""
_TAU: Final = "_tau"


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """Incremental queries of equal signature, as one.

    expression: result rows with the column `_query`; has the placeholders `t`, and `tau` for the earliest tau of all; reads the
        table `_constants`. None: a join with constants is impossible, so only queries of equal constants and equal tau are
        executed once.
    alone: incremental query by the id of the query.
    tables: names of the tables, without `_constants`.
    constants: by the id of the query.
    """

    expression: exp.Query | None
    alone: Callable[[str], exp.Query]
    tables: tuple[str, ...]
    columns: tuple[str, ...]
    constants: Mapping[str, tuple[Constant, ...]]

    def table(self, taus: Mapping[str, int | None]) -> pa.Table:
        """Return the table of constants for one run.

        taus: instant of the run before by the id of the query, for the queries that take part; None: no run yet.
        """
        rows = [(name, self.constants[name], tau) for name, tau in taus.items()]
        columns: dict[str, Any] = {
            QUERY: pa.array([name for name, _, _ in rows], pa.string()),
            _TAU: pa.array(
                [BEGINNING if tau is None else timestamp(tau) for _, _, tau in rows], pa.timestamp("us", "UTC")
            ),
        }
        for number, first in enumerate(next(iter(self.constants.values()))):
            values = [constants[number].value for _, constants, _ in rows]
            columns[f"c{number}"] = pa.array(values, ARROW[first.type])
        return pa.table(columns)

    def rows(
        self, executor: Executor, taus: Mapping[str, int | None], t: int, snapshots: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the results of each query that takes part, as Arrow tables by id. See `Executor.rows`, `table`.

        Raises ExecutionError.
        """
        if not taus:
            return {}
        if self.expression is None:
            distinct = {(self.constants[name], tau): name for name, tau in taus.items()}
            runs = {key: executor.rows(self.alone(name), key[1], t, snapshots) for key, name in distinct.items()}
            return {name: runs[self.constants[name], tau] for name, tau in taus.items()}
        known = [tau for tau in taus.values() if tau is not None]
        earliest = min(known) if len(known) == len(taus) else None
        results = executor.rows(self.expression, earliest, t, {**snapshots, CONSTANTS: self.table(taus)})
        return _by_query(results, taus)


def plan_of(
    shape: CompiledQuery, constants: Mapping[str, tuple[Constant, ...]], alone: Callable[[str], exp.Query]
) -> SharedPlan:
    """Return the plan of queries of equal signature.

    shape: compilation of one of the queries, or of their template.
    constants, alone: constants for the plan, and incremental query, by the id of the query.
    """
    taken = QUERY in shape.columns or CONSTANTS in shape.tables
    return SharedPlan(
        expression=None if taken else _joined(shape.plan),
        alone=alone,
        tables=shape.tables,
        columns=shape.columns,
        constants=constants,
    )


def _joined(plan: exp.Query) -> exp.Query | None:
    """Return a plan that joins with the table of constants; None: an instant stands in a subquery of FROM."""
    if any(_in_from(node) for node in plan.find_all(exp.Placeholder)):
        return None
    plan = plan.transform(  # type: ignore[assignment]
        lambda node: constant_column(_TAU) if isinstance(node, exp.Placeholder) and node.name == TAU else node
    )
    for select in _branches(plan):
        select.where(*_after_earliest(select), copy=False)
        select.set("expressions", [exp.alias_(constant_column(QUERY), QUERY), *select.expressions])
        select.join(constants_table(), join_type="cross", copy=False)
    return plan


def _after_earliest(select: exp.Select) -> list[exp.Expr]:
    """Return what follows from the bounds by each tau: the same bounds by the earliest tau, which limit the rows to read."""
    where = select.args.get("where")
    return [
        condition.transform(lambda node: placeholder(TAU) if isinstance(node, exp.Column) and _is_tau(node) else node)
        for condition in (conjuncts(where.this) if where else ())
        if isinstance(condition, exp.LT | exp.LTE) and _has_tau(condition.this) and not _has_tau(condition.expression)
    ]


def _has_tau(node: exp.Expr) -> bool:
    return any(_is_tau(column) for column in node.find_all(exp.Column))


def _is_tau(column: exp.Column) -> bool:
    return column.name == _TAU and column.table == constant_column(_TAU).table


def _in_from(node: exp.Expr) -> bool:
    return node.find_ancestor(exp.From, exp.Join) is not None


def _branches(query: exp.Expr) -> list[exp.Select]:
    if isinstance(query, exp.SetOperation):
        return [*_branches(query.left), *_branches(query.right)]
    assert isinstance(query, exp.Select)
    return [query]


def _by_query(rows: pa.Table, names: Mapping[str, int | None]) -> dict[str, pa.Table]:
    """Return the rows of each query, without its id."""
    ordered = rows.sort_by(QUERY)
    bare = ordered.drop_columns([QUERY])
    parts = dict.fromkeys(names, bare.slice(0, 0))
    start = 0
    for entry in pc.value_counts(ordered.column(QUERY)).to_pylist():
        parts[entry["values"]] = bare.slice(start, entry["counts"])
        start += entry["counts"]
    return parts
