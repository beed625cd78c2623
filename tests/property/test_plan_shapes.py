"""A plan made by the shape of its query is the plan that would have been made of the query itself."""

from __future__ import annotations

import datetime
import math
from dataclasses import fields
from typing import Any

from bson import Int64, ObjectId
from hypothesis import example, given
from hypothesis import strategies as st

from quaestor.model import Operation, Query
from quaestor.planning.plan import QueryPlan, plan_query
from quaestor.planning.plan_shapes import PlanTemplate, shape_of
from quaestor.query.ast import Constant
from quaestor.query.identity import identity

WHOLE = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
IDS = st.binary(min_size=12, max_size=12).map(ObjectId)
DATES = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 2.0, 2.0**63, 1e300])
PLAIN = (WHOLE, TEXT, IDS, DATES, FLOATS, WHOLE.map(Int64))
ANY_PLAIN = st.one_of(*PLAIN)
CONSTANTS = st.one_of(
    st.sampled_from(
        [None, True, False, {}, {"b": 1}, [], [1, "x"], math.nan, math.inf, {"$exists": True}, {"$size": 1}]
    ),
    st.sampled_from(
        [{"$gt": None}, {"$gte": None}, {"$eq": True}, {"$type": "string"}, {"$mod": [2, 1]}, {"$not": {"$gt": 1}}]
    ),
    st.sampled_from(
        [{"$in": []}, {"$nin": []}, {"$gte": 3, "$ne": 5}, {"$elemMatch": {"$gt": 1}}, {"$not": {"$ne": 4}}]
    ),
    ANY_PLAIN.map(lambda value: {"$ne": value}),
    st.lists(ANY_PLAIN, max_size=3).map(lambda values: {"$in": values}),
    st.lists(ANY_PLAIN, max_size=3).map(lambda values: {"$nin": [*values, None]}),
)
"""Conditions that are equal in all queries of a shape."""
PATHS = st.sampled_from(["_id", "a", "b", "a.b", "a.0", "0", "longer.path.than.others", "ab"])
OPERATORS = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte"])


@st.composite
def pairs_of_filters(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two filters of one shape."""
    condition: dict[str, Any] = {}
    other: dict[str, Any] = {}
    paths = draw(st.lists(PATHS, min_size=1, max_size=5, unique=True))
    constant = draw(st.sets(st.sampled_from(paths), max_size=len(paths) - 1))
    for path in paths:
        if path in constant:
            condition[path] = other[path] = draw(CONSTANTS)
        elif draw(st.booleans()):
            values = draw(st.sampled_from(PLAIN))
            condition[path], other[path] = draw(values), draw(values)
        else:
            condition[path], other[path] = {}, {}
            for operator in draw(st.lists(OPERATORS, min_size=1, max_size=3, unique=True)):
                values = draw(st.sampled_from(PLAIN))
                condition[path][operator], other[path][operator] = draw(values), draw(values)
    return condition, other


REST = st.fixed_dictionaries(
    {
        "namespace": st.just("d.c"),
        "operation": st.sampled_from([Operation.FIND, Operation.COUNT]),
        "sort": st.sampled_from([(), (("_id", 1),), (("a", -1), ("b", 1)), (("c.d", 1),)]),
        "skip": st.sampled_from([0, 3]),
        "limit": st.sampled_from([0, 2]),
        "projection": st.sampled_from([None, {"a": 1}, {"b": 0}, {"_id": 1, "c.d": 1}, {"x": {"$slice": 1}}]),
        "index_keys": st.sampled_from([(), (("a", "b"),), (("$**",),)]),
    }
)
BY_ONE_ID: dict[str, Any] = {
    "namespace": "d.c", "operation": Operation.FIND, "sort": (("a", -1), ("b", 1)), "skip": 0, "limit": 2,
    "projection": None, "index_keys": (),
}  # fmt: skip
"""The sort matters to the id of such a query only."""
DOCUMENTS = st.lists(
    st.dictionaries(st.sampled_from(["_id", "a", "b", "ab"]), st.one_of(*PLAIN, st.none(), st.lists(WHOLE, max_size=2)))
)


def _ends(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else [value]


def of_plan(plan: QueryPlan) -> dict[str, Any]:
    return {field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "predicate"}


def has_no_member_of_a_value(plan: QueryPlan) -> bool:
    """Whether a constant decides the filter: nothing matches it."""
    return plan.predicate is not None and isinstance(plan.predicate.root, Constant)


@given(pairs_of_filters(), REST, DOCUMENTS)
@example(({"_id": 1}, {"_id": 2}), BY_ONE_ID, [])
@example(({"_id": {"$eq": 1, "$gt": 0}, "a": 1}, {"_id": {"$eq": 2, "$gt": 5}, "a": 3}), BY_ONE_ID, [])
def test_a_plan_by_shape_is_the_plan_of_the_query(
    filters: tuple[dict[str, Any], dict[str, Any]], rest: dict[str, Any], documents: list[dict[str, Any]]
) -> None:
    """Ids, access, fields, window and matches equal the ones of a full plan, with the values of either query first."""
    query, other = (Query(filter=filter_, **rest) for filter_ in filters)
    assert shape_of(query) == shape_of(other) is not None
    plan = plan_query(query)
    template = PlanTemplate.of(query, plan)
    if template is None:
        assert plan.match == "widened" or has_no_member_of_a_value(plan)
        return
    made, full = template.filled(other), plan_query(other)
    assert of_plan(made) == of_plan(full)
    assert made.index == full.index
    assert made.predicate is not None
    assert full.predicate is not None
    assert made.predicate.identity == full.predicate.identity == identity(made.predicate.root)
    reached = {path: next(iter(_ends(value)), None) for path, value in filters[1].items()}
    for document in [*documents, reached]:
        assert made.predicate.matches(document) == full.predicate.matches(document)


def test_queries_without_a_shape_are_planned_in_full() -> None:
    """Values that are treated by what they are, operators of other kinds, and queries that are widened."""
    for filter_ in (
        {}, {"a": None}, {"a": True}, {"a": math.nan}, {"a": {"b": 1}}, {"a": {}}, {"a": [1]}, {"a": {"$in": [1]}},
        {"$or": [{"a": 1}]}, {"a": {"$gt": None}}, {"a": {"$ne": 1}}, {"a": 1, "$or": [{"b": 1}]},
        {"a": 1, "b": "x" * 300, "c": {"$in": list(range(100))}},
    ):  # fmt: skip
        assert shape_of(Query(namespace="d.c", operation=Operation.FIND, filter=filter_)) is None
    plain: dict[str, Any] = {"namespace": "d.c", "operation": Operation.FIND, "filter": {"a": 1}}
    assert shape_of(Query(**plain)) is not None
    more: dict[str, Any]
    for more in (
        {"widened": "hint"},
        {"collation": {"locale": "de"}},
        {"let": {"x": 1}},
        {"sort": (("s", {"$meta": "x"}),)},
    ):
        assert shape_of(Query(**plain | more)) is None
    assert shape_of(Query(namespace="d.c", operation=Operation.AGGREGATE, filter={})) is None
