"""Plans made by the shape of their query: an earlier plan of the same shape, filled with new values.

A handler sends the same few queries with ever new values. Nearly all of a plan follows from the places of the values: the fields
that matter, the window, the order. Only the predicate, the access paths and the id are made anew.

A shape belongs to a find, count or distinct whose filter compares fields with plain values (`{a: 1, b: {"$gt": 2}}`): finite
numbers, strings, ObjectIds and dates. Conditions of other kinds (`{c: {"$in": [1, 2]}}`, `{d: null}`) are constants: the shape
names them in full. All other queries are planned in full, as are queries whose template does not reproduce their own plan.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import bson
from bson import Int64, ObjectId

from quaestor.model import Document, Operation, Query, SortSpec
from quaestor.planning.access_paths import access_paths
from quaestor.planning.plan import QueryPlan
from quaestor.planning.query_identity import essence_of, query_id_of
from quaestor.query.ast import Conjunction, Node, Predicate, predicates_of
from quaestor.query.compile import compile_node
from quaestor.query.compiled import CompiledQuery
from quaestor.query.encoding import OPTIONS
from quaestor.query.identity import digest, encode, encode_members, encode_operand, encode_place

_COMPARISONS: Final = frozenset({"$eq", "$gt", "$gte", "$lt", "$lte"})
_SAME: Final = tuple(
    field.name
    for field in fields(QueryPlan)
    if field.init and field.name not in ("query", "query_id", "condition", "predicate", "access")
)
"""Fields of a plan that follow from its shape."""
_PLAIN: Final = frozenset({int, Int64, str, ObjectId, datetime.datetime})
"""Types that treat all their values alike."""
_IN_FULL: Final = frozenset({"$near", "$regex", "$expr", "$jsonSchema"})
"""Operators of queries that are planned in full: each is charged for its expressions, or ordered by its distances."""
_LARGEST_CONSTANT: Final = 256
"""Largest condition in bytes that is a constant of a shape."""


def shape_of(query: Query) -> Hashable | None:
    """Return the shape of a query that BSON can hold: equal if one plan can be made from another. None: plan it in full."""
    if (
        query.operation is Operation.AGGREGATE
        or query.widened is not None
        or query.collation is not None
        or query.let is not None
        or query.text_index is not None
    ):
        return None
    members: list[Hashable] = []
    varies = False
    for path, value in query.filter.items():
        if path.startswith("$"):
            return None
        if _is_plain(value):
            varies = True
            for operator, operand in value.items() if value.__class__ is dict else (("$eq", value),):
                members.append((path, operator, operand.__class__))
        else:
            constant = bson.encode({path: value}, codec_options=OPTIONS)
            if len(constant) > _LARGEST_CONSTANT:
                return None
            members.append(constant)
    if not varies or not all(direction.__class__ is int for _, direction in query.sort):
        return None
    projection, clock = (
        None if part is None else bson.encode(part, codec_options=OPTIONS) for part in (query.projection, query.clock)
    )
    return (
        query.namespace, query.operation, tuple(members), query.sort, query.skip, query.limit, projection, query.distinct_key,
        query.index_keys, clock,
    )  # fmt: skip


def _is_plain(value: Any) -> bool:
    """Whether a condition on a path compares with plain values only."""
    if value.__class__ is not dict:
        return _is_plain_operand(value)
    return bool(value) and all(name in _COMPARISONS and _is_plain_operand(operand) for name, operand in value.items())


def _is_plain_operand(operand: Any) -> bool:
    return operand.__class__ in _PLAIN or (operand.__class__ is float and math.isfinite(operand))


@dataclass(frozen=True, slots=True)
class _Constant:
    """A member of a filter that is the same in every query of the shape, with its encoding."""

    node: Node
    encoding: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    """A member of a filter without its value, with the beginning of its encoding."""

    path: str
    operator: str
    beginning: bytes


@dataclass(frozen=True, slots=True)
class PlanTemplate:
    """A plan without its values.

    rest: fields that are the same in every plan of the shape.
    members: the members of its filter, in their normal order. That order follows from paths and operators: no two are equal, and
        values come last in a member's encoding.
    essence: the parts of its id, without the filter.
    sort: the order that the plan keeps. A query for at most one record is planned without an order, but its id contains it.
    """

    rest: Mapping[str, Any]
    members: tuple[_Place | _Constant, ...]
    essence: Document
    sort: SortSpec

    @classmethod
    def of(cls, query: Query, plan: QueryPlan) -> PlanTemplate | None:
        """Return the template of the plan of a query with a shape; None if the template does not reproduce the plan."""
        if plan.match != "exact" or plan.predicate is None:
            return None
        root = plan.predicate.root
        if any(predicate.operator in _IN_FULL for predicate in predicates_of(root)):
            return None
        members = root.members if isinstance(root, Conjunction) else (root,)
        plain = {path for path, value in query.filter.items() if _is_plain(value)}
        template = cls(
            rest={name: getattr(plan, name) for name in _SAME},
            members=tuple(
                _Place(member.path, member.operator, encode_place(member))
                if isinstance(member, Predicate) and member.path in plain
                else _Constant(member, encode(member))
                for member in members
            ),
            essence=essence_of(query),
            sort=plan.query.sort,
        )
        again = template.filled(query)
        same = (again.query, again.query_id, again.access) == (plan.query, plan.query_id, plan.access)
        return template if same else None

    def filled(self, query: Query) -> QueryPlan:
        """Return the plan of another query of the shape, equal to plan_query()'s."""
        members: list[Node] = []
        encodings: list[bytes] = []
        for member in self.members:
            if isinstance(member, _Place):
                value = query.filter[member.path]
                operand = value[member.operator] if value.__class__ is dict else value
                predicate = Predicate(member.path, member.operator, operand)
                members.append(predicate)
                encodings.append(encode_operand(member.beginning, predicate))
            else:
                members.append(member.node)
                encodings.append(member.encoding)
        if len(members) == 1:
            root = members[0]
            identity = digest(encodings[0])
        else:
            root = Conjunction(tuple(members))
            identity = digest(encode_members(Conjunction, encodings))
        return QueryPlan(
            **self.rest,
            query=query if query.sort == self.sort else replace(query, sort=self.sort),
            query_id=query_id_of(query, {**self.essence, "filter": identity}),
            condition=dict(query.filter),
            predicate=CompiledQuery(compile_node(root), root, identity),
            access=tuple(access_paths(root)),
        )
