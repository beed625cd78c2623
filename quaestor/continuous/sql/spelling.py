"""Spelling of names: SQL ignores upper and lower case, schemas and results keep it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sqlglot import exp

from quaestor.tables.schema import TS, Schema

_STORED: Final = "stored_name"
"""Mark of a table in a tree: its name in the catalogue."""


def stored_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that equals a written name: exactly, or else in small letters; None: there is none."""
    known = list(names)
    return name if name in known else next((other for other in known if other.lower() == name.lower()), None)


def mark_tables(tree: exp.Expr, catalogue: Iterable[str]) -> None:
    """Mark each table with its name in the catalogue, which `spell` restores."""
    names = list(catalogue)
    for table in tree.find_all(exp.Table):
        stored = stored_name(table.name, names)
        if stored is not None:
            table.meta[_STORED] = stored


def tables_of(select: exp.Select) -> Iterator[exp.Table]:
    """Yield the tables of a SELECT itself."""
    clause = select.args.get("from_")
    for member in [clause, *(select.args.get("joins") or [])] if clause else []:
        if isinstance(member.this, exp.Table):
            yield member.this


def spell(tree: exp.Expr, catalogue: Mapping[str, Schema]) -> None:
    """Give tables, columns and results that are columns the spelling of the catalogue. Needs columns that name their tables."""
    for table in tree.find_all(exp.Table):
        if _STORED in table.meta:
            _rename(table, table.meta[_STORED])
    for column in tree.find_all(exp.Column):
        name = _column_name(column, catalogue)
        if name is not None:
            _rename(column, name)
    for select in tree.find_all(exp.Select):
        results = [item for item in select.expressions if isinstance(item, exp.Alias)]
        for item in results:
            if isinstance(item.this, exp.Column) and item.alias.lower() == item.this.name.lower():
                item.set("alias", exp.to_identifier(item.this.name))
        named = {item.alias.lower(): item.alias for item in results}
        order = select.args.get("order")
        for column in order.find_all(exp.Column) if order is not None else ():
            if not column.table and column.name.lower() in named:
                _rename(column, named[column.name.lower()])


def _column_name(column: exp.Column, catalogue: Mapping[str, Schema]) -> str | None:
    """Return the name of a column in the schema of its table; None: no table around it has this alias and column."""
    select = column.parent_select
    while select is not None:
        for table in tables_of(select) if isinstance(select, exp.Select) else ():
            if table.alias_or_name == column.table and table.name in catalogue:
                return stored_name(column.name, (*catalogue[table.name].names, TS))
        select = select.parent_select
    return None


def _rename(node: exp.Expr, name: str) -> None:
    """Give a table or a column another name at its place in the text."""
    if node.name != name:
        renamed = exp.to_identifier(name)
        renamed.meta.update(node.this.meta)
        node.set("this", renamed)
