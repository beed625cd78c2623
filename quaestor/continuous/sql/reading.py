"""Text of a continuous query to a tree with resolved columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Final

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from quaestor.continuous.sql.current_time import OPERATORS, with_placeholders
from quaestor.continuous.sql.model import UNTIL
from quaestor.continuous.sql.parsing import parsed, refuse_placeholders, refuse_randomness
from quaestor.continuous.sql.refusals import QueryRefusedError, UnknownTableError, place_of, refusal
from quaestor.tables.schema import TS, Schema, Type

_TYPE_NAMES: Final = {Type.POINT: "STRUCT(x DOUBLE, y DOUBLE)"}


def read(text: str, catalogue: Mapping[str, Schema], dialect: str) -> exp.Query:
    """Return the tree of a query: each column names its table, current time is one placeholder.

    Raises QueryRefusedError.
    """
    tree = parsed(
        text, dialect, otherwise=("the text is not one SELECT", "write one SELECT, or SELECTs joined by UNION")
    )
    refuse_placeholders(tree, "write the value as a literal")
    _refuse_unknown_tables(tree, catalogue)
    refuse_randomness(tree)
    _expand_stars(tree, catalogue)
    try:
        # Scopes and aliases only: the meaning of names is SQL's own.
        tree = qualify(
            tree,
            schema=_types(catalogue),
            dialect=dialect,
            quote_identifiers=False,
            identify=False,
            validate_qualify_columns=True,
        )
    except OptimizeError as error:
        raise _located(error) from error
    tree = merge_subqueries(tree)
    _refuse_derived_tables(tree)
    query = with_placeholders(tree)
    _refuse_other_types(query, catalogue)
    return query


def _refuse_unknown_tables(tree: exp.Expr, catalogue: Mapping[str, Schema]) -> None:
    common = {table.alias for table in tree.find_all(exp.CTE)}
    for clause in tree.find_all(exp.With):
        if clause.args.get("recursive"):
            raise refusal(clause, "a recursive WITH has no bound on its instants", "write the steps as joins")
    for table in tree.find_all(exp.Table):
        if table.name not in catalogue and table.name not in common:
            known = ", ".join(sorted(catalogue)) or "none"
            line, column = place_of(table)
            raise UnknownTableError(
                line, column, f"the table {table.name!r} is unknown", f"name one of the tables: {known}"
            )
    for name, schema in catalogue.items():
        if UNTIL in schema.names:
            raise QueryRefusedError(0, 0, f"table {name!r} has a column {UNTIL!r}", "rename the column")


def _refuse_other_types(tree: exp.Expr, catalogue: Mapping[str, Schema]) -> None:
    """Refuse the comparison of current time with a column that is no timestamp."""
    types: dict[str, Schema] = {}
    for table in tree.find_all(exp.Table):
        if types.setdefault(table.alias_or_name, catalogue[table.name]) != catalogue[table.name]:
            return  # the engine reports a comparison of other types, when a run executes the query
    for comparison in tree.find_all(*OPERATORS):
        for now, other in permutations((comparison.this, comparison.expression)):
            if isinstance(now, exp.Placeholder) and isinstance(other, exp.Column):
                kind = types[other.table].type_of(other.name)
                if kind not in (None, Type.TIMESTAMP):
                    raise refusal(other, f"{other.sql()} is no timestamp", f"write CAST({other.sql()} AS TIMESTAMP)")


def _refuse_derived_tables(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.From, exp.Join):
        if not isinstance(node.this, exp.Table):
            raise refusal(
                node.this, "a subquery in FROM cannot be merged into the query", "write its tables in FROM itself"
            )
    for clause in tree.find_all(exp.CTE):
        raise refusal(clause, "a WITH cannot be merged into the query", "write its tables in FROM itself")


def _expand_stars(tree: exp.Expr, catalogue: Mapping[str, Schema]) -> None:
    """Replace `*` by the declared columns: the instant of publication is a column that `*` does not name."""
    for select in list(tree.find_all(exp.Select)):
        tables = _tables_of(select)
        if any(table.name not in catalogue for table in tables) or isinstance(select.parent, exp.Exists):
            continue
        expressions: list[exp.Expr] = []
        for item in select.expressions:
            star = item.find(exp.Star)
            if star is not None and any(star.args.get(part) for part in ("except_", "except", "replace", "rename")):
                raise refusal(item, "the star leaves out or replaces columns", "name the columns")
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                wanted = item.table if isinstance(item, exp.Column) else ""
                expressions += [
                    exp.column(name, table=table.alias_or_name)
                    for table in tables
                    if wanted in ("", table.alias_or_name)
                    for name in catalogue[table.name].names
                ]
            else:
                expressions.append(item)
        if expressions:
            select.set("expressions", expressions)


def _tables_of(select: exp.Select) -> list[exp.Table]:
    clause = select.args.get("from_")
    members = [clause, *(select.args.get("joins") or [])] if clause else []
    return [member.this for member in members if isinstance(member.this, exp.Table)]


def _types(catalogue: Mapping[str, Schema]) -> dict[str, object]:
    return {
        name: {column.name: _TYPE_NAMES.get(column.type, column.type.value) for column in schema.columns}
        | {TS: "timestamp"}
        for name, schema in catalogue.items()
    }


def _located(error: OptimizeError) -> QueryRefusedError:
    message = str(error).split("\n")[0]
    return QueryRefusedError(0, 0, f"the query does not fit the tables: {message}", "name columns that the tables have")
