"""Plans made by the shape of their query: an earlier plan of the same shape, filled with new values.

A handler sends the same few queries with ever new values. Nearly all of a plan follows from the places of the values: the fields
that matter, the window, the order. Only the predicate, the access paths and the id are made anew.

A shape belongs to a find, count or distinct whose filter compares fields with plain values (`{a: 1, b: {"$gt": 2}}`): whole
numbers, strings, ObjectIds and dates. All other queries are planned in full, as are queries whose template does not reproduce
their own plan.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import bson
from bson import ObjectId

from quaestor.model import Document, Operation, Query, SortSpec
from quaestor.planning.access_paths import access_paths
from quaestor.planning.plan import QueryPlan
from quaestor.planning.query_identity import essence_of, query_id_of
from quaestor.query.ast import Conjunction, Predicate
from quaestor.query.compile import compile_node
from quaestor.query.compiled import CompiledQuery
from quaestor.query.encoding import OPTIONS
from quaestor.query.identity import digest, encode_members, encode_operand, encode_place

_COMPARISONS: Final = frozenset({"$eq", "$gt", "$gte", "$lt", "$lte"})
_SAME: Final = tuple(
    field.name
    for field in fields(QueryPlan)
    if field.init and field.name not in ("query", "query_id", "condition", "predicate", "access")
)
"""Fields of a plan that follow from its shape."""
_PLAIN: Final = frozenset({int, str, ObjectId, datetime.datetime})
"""Types that treat all their values alike."""


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
    members = []
    for path, value in query.filter.items():
        if path.startswith("$"):
            return None
        conditions = value if value.__class__ is dict else {"$eq": value}
        if not conditions:
            return None
        for operator, operand in conditions.items():
            if operator not in _COMPARISONS or operand.__class__ not in _PLAIN:
                return None
            members.append((path, operator, operand.__class__))
    if not members or not all(direction.__class__ is int for _, direction in query.sort):
        return None
    projection, clock = (
        None if part is None else bson.encode(part, codec_options=OPTIONS) for part in (query.projection, query.clock)
    )
    return (
        query.namespace, query.operation, tuple(members), query.sort, query.skip, query.limit, projection, query.distinct_key,
        query.index_keys, clock,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanTemplate:
    """A plan without its values.

    rest: fields that are the same in every plan of the shape.
    places: path and operator of the members of its filter, in their normal order. That order follows from them: no two are
        equal, and values come last in a member's encoding.
    beginnings: of their encodings.
    essence: the parts of its id, without the filter.
    sort: the order that the plan keeps. A query for at most one record is planned without an order, but its id contains it.
    """

    rest: Mapping[str, Any]
    places: tuple[tuple[str, str], ...]
    beginnings: tuple[bytes, ...]
    essence: Document
    sort: SortSpec

    @classmethod
    def of(cls, query: Query, plan: QueryPlan) -> PlanTemplate | None:
        """Return the template of the plan of a query with a shape; None if the template does not reproduce the plan."""
        if plan.match != "exact" or plan.predicate is None:
            return None
        root = plan.predicate.root
        members = root.members if isinstance(root, Conjunction) else (root,)
        places = tuple((member.path, member.operator) for member in members if isinstance(member, Predicate))
        if len(places) != len(members):
            return None
        template = cls(
            rest={name: getattr(plan, name) for name in _SAME},
            places=places,
            beginnings=tuple(encode_place(Predicate(path, operator, None)) for path, operator in places),
            essence=essence_of(query),
            sort=plan.query.sort,
        )
        try:
            again = template.filled(query)
        except KeyError:  # normalisation has changed a member
            return None
        same = (again.query, again.query_id, again.access) == (plan.query, plan.query_id, plan.access)
        return template if same else None

    def filled(self, query: Query) -> QueryPlan:
        """Return the plan of another query of the shape, equal to plan_query()'s."""
        values = _values(query.filter)
        members = tuple(Predicate(path, operator, values[path, operator]) for path, operator in self.places)
        encodings = list(map(encode_operand, self.beginnings, members))
        if len(members) == 1:
            root: Predicate | Conjunction = members[0]
            identity = digest(encodings[0])
        else:
            root = Conjunction(members)
            identity = digest(encode_members(Conjunction, encodings))
        predicate = CompiledQuery(compile_node(root), root, identity)
        return QueryPlan(
            **self.rest,
            query=query if query.sort == self.sort else replace(query, sort=self.sort),
            query_id=query_id_of(query, {**self.essence, "filter": identity}),
            condition=dict(query.filter),
            predicate=predicate,
            access=tuple(access_paths(root)),
        )


def _values(filter_: Document) -> dict[tuple[str, str], Any]:
    operands: dict[tuple[str, str], Any] = {}
    for path, value in filter_.items():
        if value.__class__ is dict:
            for operator, operand in value.items():
                operands[path, operator] = operand
        else:
            operands[path, "$eq"] = value
    return operands
