"""Compilation of a continuous query: text to standard form, monotone query and incremental query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from quaestor.continuous.rules.derivations import derivations
from quaestor.continuous.rules.incremental import first_only, incremental
from quaestor.continuous.rules.monotone import at_each_instant, entries, monotone
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.sql.blocks import selections_of
from quaestor.continuous.sql.reading import read
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import Schema


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """Continuous query, compiled. Expressions have the placeholders `tau` and `t` for instants.

    text: as the user wrote it.
    dialect: of the text.
    columns: names of the result's columns.
    tables: names of the tables that the query reads.
    standard: result of the query as of t.
    monotone: everything that the query returned at any instant up to t.
    incremental: results that became true in (tau, t]; a row may repeat a row of an earlier run.
    first_only: rows of the monotone query of t that the monotone query of tau lacks.
    entries: rows of the monotone query, with the first instant of each in the column `_instant`.
    may_repeat: whether the incremental query may return a row of an earlier run.
    """

    text: str
    dialect: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    standard: exp.Query
    monotone: exp.Query
    incremental: exp.Query
    first_only: exp.Query
    entries: exp.Query
    may_repeat: bool


def compile_query(
    text: str, catalogue: Mapping[str, Schema], *, dialect: str = "duckdb", orders: Sequence[KnownOrder] = ()
) -> CompiledQuery:
    """Compile the text of a continuous query.

    catalogue: schemas of the tables by name; each table also has the column `ts`.
    dialect: name of the SQL dialect, as sqlglot names it.
    orders: known orders between rows.

    Raises QueryRefusedError.
    """
    tree = read(text, catalogue, dialect)
    selections = selections_of(tree, catalogue)
    found_derivations = derivations(selections, orders)
    if not found_derivations:
        raise QueryRefusedError(1, 1, "the conditions are never true", "correct the conditions on current time")
    names = tuple(name for name, _ in selections[0].columns)
    return CompiledQuery(
        text=text,
        dialect=dialect,
        columns=names,
        tables=tuple(sorted({table.name for part in selections for table in part.conjunction.all_tables()})),
        standard=at_each_instant(selections),
        monotone=monotone(found_derivations),
        incremental=incremental(found_derivations),
        first_only=first_only(found_derivations),
        entries=entries(found_derivations),
        may_repeat=True,
    )
