"""Relevance of new records: the constant conditions that one of them must fulfil before a channel can have a result.

Source: Haji Amin Shirazi, Wang, Carey, Tsotras, "Optimizing Big Active Data Management Systems" (2025). The paper keeps an
index of the records that fulfil constant predicates of channels. Here the index lies over the new records of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from quaestor.channels.rewriting.bounds import certain_conditions, implies_new
from quaestor.channels.rewriting.joining import arms, is_flat
from quaestor.channels.rewriting.reading import CURRENT, PREVIOUS, sources
from quaestor.tables.schema import TS, Schema, Type

_PLAIN: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is,
    exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Column, exp.Identifier,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Constant condition: every result of a SELECT needs a new record of a relation that fulfils it.

    relation: its name in the plan.
    alias: of the relation in the condition.
    text: the condition as SQL; empty: every new record fulfils it.
    equal: columns that must have a value; these parts of the condition are looked up in an index.
    is_looked_up: whether the index alone decides.
    """

    relation: str
    alias: str
    text: str = ""
    equal: tuple[tuple[str, str | int], ...] = ()
    is_looked_up: bool = False


def relevance(tree: exp.Query, new: Mapping[str, Schema]) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions of each SELECT of a body; none: a run may have results without new records.

    new: columns of the relations that hold new records only, by name.
    """
    if not is_flat(tree):
        return ()
    conditions = tuple(tuple(_conditions(select, new)) for select in arms(tree))
    return conditions if all(conditions) else ()


def _conditions(select: exp.Select, new: Mapping[str, Schema]) -> Iterator[Condition]:
    certain = certain_conditions(select)
    for table in sources(select):
        alias = table.alias_or_name
        if not isinstance(table, exp.Table) or table.name not in new:
            continue
        if not any(implies_new(part, alias) for part in certain):
            continue
        parts = [part for part in certain if _is_constant(part, alias)]
        equal = tuple(pair for part in parts if (pair := _equality(part, new[table.name])) is not None)
        yield Condition(
            relation=table.name,
            alias=alias,
            text=" AND ".join(part.sql("duckdb") for part in parts),
            equal=equal,
            is_looked_up=len(parts) == len(equal) == 1,  # several values must be those of one record
        )


def _is_constant(condition: exp.Expr, alias: str) -> bool:
    """Whether a condition compares columns of one table with constants, by operators that no value makes fail."""
    nodes: Sequence[Any] = list(condition.walk())
    columns = [node for node in nodes if isinstance(node, exp.Column)]
    return (
        bool(columns)
        and all(isinstance(node, _PLAIN) for node in nodes)
        and all(column.table == alias and column.name not in (TS, PREVIOUS, CURRENT) for column in columns)
    )


def _equality(condition: exp.Expr, schema: Schema) -> tuple[str, str | int] | None:
    """Return column and value of an equality that Python's equality decides; None: another condition."""
    if not isinstance(condition, exp.EQ):
        return None
    sides = (condition.this, condition.expression)
    for column, literal in (sides, sides[::-1]):
        if isinstance(column, exp.Column) and isinstance(literal, exp.Literal):
            kinds = {entry.name.lower(): (entry.name, entry.type) for entry in schema.columns}
            name, kind = kinds.get(column.name.lower(), ("", None))
            if kind is Type.TEXT and literal.is_string:
                return name, literal.name
            if kind is Type.BIGINT and literal.is_int:
                return name, int(literal.name)
    return None
