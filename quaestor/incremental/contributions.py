"""Contributions to a grouped result, counted by the database, so that the result begins without its records.

There is one row for each different contribution (the group's id and the accumulated values), with the number of its records.
From these, every accumulator that is independent of order begins exactly as from the records themselves. One exception: the
database takes some different numbers for equal. The numbers differ in type inside embedded documents and arrays, in the sign of
zero, or in trailing zeros. One of them then stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from quaestor.model import Document, Operation, Query
from quaestor.query.bson_order import MISSING

_GROUPING: Final = frozenset({"$group", "$count", "$sortByCount"})


class Contributed(NamedTuple):
    """Contribution to one group, with the number of records that make it."""

    group_id: Any
    values: list[Any]
    records: int


def contributions(query: Query, group: Mapping[str, Any]) -> Query:
    """Return the query that counts contributions to `group`, the argument of the first grouping of this pipeline."""
    before = takewhile(lambda stage: not _GROUPING.intersection(stage), query.pipeline)
    return _counting(query.namespace, [stage for stage in before if "$sort" not in stage], group)


def counted(query: Query) -> Query:
    """Return the query that counts contributions to the result of a count command."""
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
    """Return the contribution in one row of the answer."""
    parts = [
        MISSING if kind == "missing" else value for value, kind in zip(row["_id"]["v"], row["_id"]["t"], strict=True)
    ]
    return Contributed(parts[0], parts[1:], row["n"])
