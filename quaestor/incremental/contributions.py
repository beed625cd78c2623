"""Contributions to a grouped result, counted by the database, so that it begins without its records.

One row for each different contribution (the group's id and what is accumulated), with the number of records that make
it. From these every accumulator that does not depend on order begins exactly as from the records themselves, save that
the database takes numbers for the same that differ in type inside embedded documents and arrays, or in sign of zero or
trailing zeros; one of them then stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from quaestor.model import Document, Operation, Query
from quaestor.query.bson_order import MISSING

_GROUPING: Final = frozenset({"$group", "$count", "$sortByCount"})


class Contributed(NamedTuple):
    """Contribution to one group, and how many records make the same."""

    group_id: Any
    values: list[Any]
    records: int


def contributions(query: Query, group: Mapping[str, Any]) -> Query:
    """The query that counts contributions to `group`, the argument of the first grouping of this pipeline."""
    before = takewhile(lambda stage: not _GROUPING.intersection(stage), query.pipeline)
    return _counting(query.namespace, [stage for stage in before if "$sort" not in stage], group)


def counted(query: Query) -> Query:
    """The query that counts contributions to the result of a count command."""
    return _counting(query.namespace, [{"$match": query.filter}], {"_id": None, "n": {"$sum": 1}})


def _counting(namespace: str, stages: Sequence[Document], group: Mapping[str, Any]) -> Query:
    operands = [_operand(argument) for name, argument in group.items() if name != "_id"]
    parts = [group["_id"], *operands]
    identity = {"v": parts, "t": [{"$type": part} for part in parts]}
    return Query(
        namespace=namespace,
        operation=Operation.AGGREGATE,
        filter={},
        pipeline=(*stages, {"$group": {"_id": identity, "n": {"$sum": 1}}}),
    )


def _operand(argument: Mapping[str, Any]) -> Any:
    name, operand = next(iter(argument.items()))
    return {"$literal": 1} if name == "$count" else operand


def contributed(row: Document) -> Contributed:
    """The contribution in one row of the answer."""
    parts = [
        MISSING if kind == "missing" else value for value, kind in zip(row["_id"]["v"], row["_id"]["t"], strict=True)
    ]
    return Contributed(parts[0], parts[1:], row["n"])
