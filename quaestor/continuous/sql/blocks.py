"""SELECTs to blocks: joins, outer joins, set operations and subqueries (R7, R8, R9, R10, R19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.conditions import Aspect, Conditions
from quaestor.continuous.sql.current_time import involves_time
from quaestor.continuous.sql.formulas import Absent, Block, Every, Formula, Present, Static, conjunctions, every
from quaestor.continuous.sql.model import Selection, TableUse
from quaestor.continuous.sql.refusals import refusal
from quaestor.tables.inference import DELETED
from quaestor.tables.schema import Schema, Type

_SQL_TYPES: Final = {
    Type.DECIMAL: "DECIMAL(38, 12)",
    Type.JSON: "TEXT",
    Type.BYTES: "BLOB",
    Type.POINT: "STRUCT(x DOUBLE, y DOUBLE)",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Table under the name that a SELECT gives it. missing: an outer join found no row, so its columns are NULL."""

    table: TableUse
    schema: Schema
    missing: bool = False


Sources = Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class Arm:
    """Part of a query's result: the rows of some tables that fulfil a formula, and their columns."""

    columns: tuple[tuple[str, exp.Expr], ...]
    block: Block


@dataclass(frozen=True, slots=True)
class _Joined:
    """Combinations of a FROM clause."""

    sources: dict[str, Source]
    formula: Formula

    @property
    def tables(self) -> tuple[TableUse, ...]:
        return tuple(source.table for source in self.sources.values() if not source.missing)


def selections_of(query: exp.Query, catalogue: Mapping[str, Schema]) -> tuple[Selection, ...]:
    """Return the standard form of a query.

    Raises QueryRefusedError.
    """
    arms = Blocks(catalogue).arms(query, {})
    names = [name.lower() for name, _ in arms[0].columns]
    for name in names:
        if names.count(name) > 1:
            raise refusal(query, f"two columns of the result are named {name!r}", "give one column another name by AS")
    return tuple(
        Selection(arm.columns, part, number) for number, arm in enumerate(arms) for part in conjunctions(arm.block)
    )


@dataclass
class Blocks:
    """Reader of the SELECTs of one query. Aliases are unique in the whole query."""

    catalogue: Mapping[str, Schema]
    _used: set[str] = field(default_factory=set)

    def arms(self, query: exp.Expr, outer: Sources) -> tuple[Arm, ...]:
        """Return the arms of a query or subquery. outer: tables of the SELECTs around."""
        match query:
            case exp.Subquery():
                return self.arms(query.this, outer)
            case exp.SetOperation():
                return tuple(self._set_operation(query, outer))
            case exp.Select():
                return tuple(self._select(query, outer))
        raise refusal(query, f"{query.key.upper()} is not accepted", "write a SELECT")

    def _set_operation(self, query: exp.SetOperation, outer: Sources) -> Iterator[Arm]:
        """R8: results are sets, with and without ALL."""
        _refuse_order(query)
        left, right = self.arms(query.left, outer), self.arms(query.right, outer)
        if len(left[0].columns) != len(right[0].columns):
            raise refusal(
                query.right,
                f"the second SELECT has {len(right[0].columns)} columns, the first {len(left[0].columns)}",
                "select equally many columns",
            )
        if isinstance(query, exp.Union):
            names = [name for name, _ in left[0].columns]
            yield from left
            for arm in right:
                yield replace(arm, columns=tuple(zip(names, (value for _, value in arm.columns), strict=True)))
            return
        wrap = Present if isinstance(query, exp.Intersect) else Absent
        for arm in left:
            equal = tuple(
                Block(
                    other.block.tables,
                    every(
                        (
                            other.block.formula,
                            *(
                                Static(exp.NullSafeEQ(this=mine.copy(), expression=theirs.copy()))
                                for (_, mine), (_, theirs) in zip(arm.columns, other.columns, strict=True)
                            ),
                        )
                    ),
                )
                for other in right
            )
            yield Arm(arm.columns, Block(arm.block.tables, every((arm.block.formula, wrap(equal)))))

    def _select(self, select: exp.Select, outer: Sources) -> Iterator[Arm]:
        _refuse_clauses(select)
        where = select.args.get("where")
        for joined in self._from(select, outer):
            sources = {**outer, **joined.sources}
            formula = joined.formula
            if where is not None:
                formula = every((formula, self._condition(where.this, sources)))
            columns = tuple((item.alias_or_name, resolved(item.unalias(), sources)) for item in select.expressions)
            yield Arm(columns, Block(joined.tables, formula))

    def _condition(self, node: exp.Expr, sources: Sources) -> Formula:
        def subquery(query: exp.Expr, compared: Callable[[exp.Expr], Formula] | None) -> tuple[Block, ...]:
            return tuple(self._subquery(query, compared, sources))

        return Conditions(subquery, lambda part: resolved(part, sources)).formula(node, Aspect.TRUE)

    def _subquery(
        self, query: exp.Expr, compared: Callable[[exp.Expr], Formula] | None, sources: Sources
    ) -> Iterator[Block]:
        for arm in self.arms(query, sources):
            if compared is None:
                yield arm.block
                continue
            if len(arm.columns) != 1:
                raise refusal(query, "the subquery has several columns", "select one column")
            yield Block(arm.block.tables, every((arm.block.formula, compared(arm.columns[0][1]))))

    def _from(self, select: exp.Select, outer: Sources) -> list[_Joined]:
        clause = select.args.get("from_")
        if clause is None:
            raise refusal(select, "the SELECT has no FROM", "name a table")
        joined = [_Joined(self._source(clause.this), Every(()))]
        for join in select.args.get("joins") or []:
            joined = self._join(joined, join, outer)
        return joined

    def _join(self, joined: list[_Joined], join: exp.Join, outer: Sources) -> list[_Joined]:
        """R19: an outer join is the inner join, or the row alone where no row matches."""
        if join.args.get("using") or join.method:
            raise refusal(join, "the join names no condition", "write JOIN ... ON")
        if join.kind in ("SEMI", "ANTI"):
            raise refusal(join, f"{join.kind} JOIN is not accepted", "write EXISTS or NOT EXISTS")
        on = join.args.get("on")
        right = self._source(join.this)

        def condition(left: _Joined) -> Formula:
            sources = {**outer, **left.sources, **right}
            return Every(()) if on is None else self._condition(on, sources)

        result = [_Joined({**left.sources, **right}, every((left.formula, condition(left)))) for left in joined]
        right_tables = tuple(source.table for source in right.values())
        if join.side in ("LEFT", "FULL"):
            result += [
                _Joined(
                    {**left.sources, **_missing(right)},
                    every((left.formula, Absent((Block(right_tables, condition(left)),)))),
                )
                for left in joined
            ]
        if join.side in ("RIGHT", "FULL"):
            unmatched = Absent(tuple(Block(left.tables, every((left.formula, condition(left)))) for left in joined))
            result.append(_Joined({**_missing(joined[0].sources), **right}, unmatched))
        return result

    def _source(self, table: exp.Expr) -> dict[str, Source]:
        if not isinstance(table, exp.Table) or any(table.args.get(part) for part in ("pivots", "sample", "version")):
            raise refusal(table, "FROM holds something else than tables", "name tables")
        schema = self.catalogue[table.name]
        alias = table.alias_or_name
        unique = next(name for name in _names(alias) if name not in self._used)
        self._used.add(unique)
        marks = [name for name in (DELETED, "deleted") if schema.key and schema.type_of(name) is Type.BOOL]
        return {alias: Source(TableUse(table.name, unique, schema.key, marks[0] if marks else ""), schema)}


def resolved(node: exp.Expr, sources: Sources) -> exp.Expr:
    """Return an expression whose columns name the unique aliases; columns of missing rows are NULL."""

    def replaced(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        source = sources[part.table]
        if source.missing:
            return exp.cast(exp.null(), _sql_type(source.schema, part.name))
        column = part.copy()
        column.set("table", exp.to_identifier(source.table.alias))
        return column

    return node.copy().transform(replaced, copy=False)


def _names(alias: str) -> Iterator[str]:
    yield alias
    for number in count(2):
        yield f"{alias}_{number}"


def _missing(sources: Mapping[str, Source]) -> dict[str, Source]:
    return {name: replace(source, missing=True) for name, source in sources.items()}


def _sql_type(schema: Schema, column: str) -> str:
    kind = schema.type_of(column)
    return "TIMESTAMP" if kind is None else _SQL_TYPES.get(kind, kind.value.upper())


def _refuse_order(query: exp.Query) -> None:
    for clause in ("limit", "offset", "fetch"):
        node = query.args.get(clause)
        if node is not None:
            raise refusal(node, "LIMIT without an order by an aggregate has no meaning over time", "leave LIMIT out")


def _refuse_clauses(select: exp.Select) -> None:
    _refuse_order(select)
    for clause, remedy in (
        ("group", "select the rows themselves, and group the results"),
        ("having", "select the rows themselves, and group the results"),
        ("qualify", "leave QUALIFY out"),
        ("laterals", "write a join"),
        ("windows", "leave windows out"),
    ):
        node = select.args.get(clause)
        if node:
            raise refusal(
                node if isinstance(node, exp.Expr) else select, f"{clause.upper()} is not accepted here", remedy
            )
    if isinstance(select.args.get("distinct"), exp.Distinct) and select.args["distinct"].args.get("on"):
        raise refusal(select, "DISTINCT ON keeps rows that depend on an order", "write DISTINCT")
    for item in select.expressions:
        if involves_time(item):
            raise refusal(
                item, "current time is a result, so each instant gives another row", "select a column of a table"
            )
        if item.find(exp.Columns) is not None:
            raise refusal(item, "the select list holds a pattern of columns", "name the columns")
        if item.find(exp.Query) is not None:
            raise refusal(item, "a subquery is in the select list", "write a join")
    for node in (*select.expressions, *(clause for clause in [select.args.get("where")] if clause)):
        aggregate = node.find(exp.AggFunc, exp.Window)
        if aggregate is not None and aggregate.parent_select is select:
            raise refusal(
                aggregate,
                f"{aggregate.key.upper()} is not accepted here",
                "select the rows themselves, and group the results",
            )
