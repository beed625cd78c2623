"""Text of a continuous query to a tree with resolved columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import permutations
from typing import Final

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from quaestor.continuous.sql.current_time import NOW_FUNCTIONS, OPERATORS, with_placeholders
from quaestor.continuous.sql.functions import refuse_other_functions
from quaestor.continuous.sql.model import UNTIL
from quaestor.continuous.sql.parsing import parsed, refuse_placeholders, refuse_randomness
from quaestor.continuous.sql.refusals import QueryRefusedError, UnknownTableError, place_of, refusal
from quaestor.continuous.sql.spelling import mark_tables, spell, stored_name, tables_of
from quaestor.tables.schema import TS, Schema, Type

_TYPE_NAMES: Final = {Type.POINT: "STRUCT(x DOUBLE, y DOUBLE)"}
_OTHERWISE: Final = ("the text is not one SELECT", "write one SELECT, or SELECTs joined by UNION")
_PLACE: Final = re.compile(r"\.? Line: (\d+), Col: (\d+)")
_NAME: Final = re.compile(r"'([^']*)' could not|: (.+)")


def read(text: str, catalogue: Mapping[str, Schema], dialect: str) -> exp.Query:
    """Return the tree of a query: each column names its table, current time is one placeholder.

    Raises QueryRefusedError.
    """
    tree = parsed(text, dialect, otherwise=_OTHERWISE)
    refuse_placeholders(tree, "write the value as a literal")
    refuse_randomness(tree)
    refuse_other_functions(tree, NOW_FUNCTIONS)
    _refuse_unknown_tables(tree, catalogue)
    mark_tables(tree, catalogue)
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
        raise _located(error, parsed(text, dialect, otherwise=_OTHERWISE)) from error
    tree = merge_subqueries(tree)
    _refuse_derived_tables(tree)
    spell(tree, catalogue)
    query = with_placeholders(tree)
    _refuse_other_types(query, catalogue)
    return query


def _refuse_unknown_tables(tree: exp.Expr, catalogue: Mapping[str, Schema]) -> None:
    common = {table.alias.lower() for table in tree.find_all(exp.CTE)}
    for clause in tree.find_all(exp.With):
        if clause.args.get("recursive"):
            raise refusal(clause, "a recursive WITH has no bound on its instants", "write the steps as joins")
    for table in tree.find_all(exp.Table):
        if stored_name(table.name, catalogue) is None and table.name.lower() not in common:
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
        tables = {table.alias_or_name: stored_name(table.name, catalogue) for table in tables_of(select)}
        if None in tables.values() or isinstance(select.parent, exp.Exists):
            continue
        expressions: list[exp.Expr] = []
        for item in select.expressions:
            star = item.find(exp.Star)
            if star is not None and any(star.args.get(part) for part in ("except_", "except", "replace", "rename")):
                raise refusal(item, "the star leaves out or replaces columns", "name the columns")
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                wanted = item.table if isinstance(item, exp.Column) else ""
                expressions += [
                    exp.column(name, table=alias)
                    for alias, stored in tables.items()
                    if stored is not None and wanted.lower() in ("", alias.lower())
                    for name in catalogue[stored].names
                ]
            else:
                expressions.append(item)
        if expressions:
            select.set("expressions", expressions)


def _types(catalogue: Mapping[str, Schema]) -> dict[str, object]:
    return {
        name: {column.name: _TYPE_NAMES.get(column.type, column.type.value) for column in schema.columns}
        | {TS: "timestamp"}
        for name, schema in catalogue.items()
    }


def _located(error: OptimizeError, text: exp.Expr) -> QueryRefusedError:
    """Return the refusal of a name at its place in a text."""
    message = str(error).split("\n")[0]
    place, name = _PLACE.search(message), _NAME.search(message)
    line, column = (1, 1)
    if place is not None:
        end = int(place[1]), int(place[2])
        words = [node for node in text.find_all(exp.Identifier) if (node.meta.get("line"), node.meta.get("col")) == end]
        line, column = place_of(words[0]) if words else end
    elif name is not None:
        written = (name[1] or name[2]).lower()
        words = [node for node in text.find_all(exp.Identifier) if node.name.lower() == written]
        line, column = min(map(place_of, words), default=(1, 1))
    reason = f"the query does not fit the tables: {_PLACE.sub('', message)}"
    return QueryRefusedError(line, column, reason, "name columns that the tables have")
