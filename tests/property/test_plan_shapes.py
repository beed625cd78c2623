"""A plan made by the shape of its query is the plan that would have been made of the query itself."""

from __future__ import annotations

import datetime
from dataclasses import fields
from typing import Any

from bson import ObjectId
from hypothesis import example, given
from hypothesis import strategies as st

from quaestor.model import Operation, Query
from quaestor.planning.plan import QueryPlan, plan_query
from quaestor.planning.plan_shapes import PlanTemplate, shape_of
from quaestor.query.identity import identity

WHOLE = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
IDS = st.binary(min_size=12, max_size=12).map(ObjectId)
DATES = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
PLAIN = (WHOLE, TEXT, IDS, DATES)
PATHS = st.sampled_from(["_id", "a", "b", "a.b", "a.0", "0", "longer.path.than.others", "ab"])
OPERATORS = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte"])


@st.composite
def pairs_of_filters(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two filters of one shape."""
    condition: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for path in draw(st.lists(PATHS, min_size=1, max_size=4, unique=True)):
        if draw(st.booleans()):
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


@given(pairs_of_filters(), REST, DOCUMENTS)
@example(({"_id": 1}, {"_id": 2}), BY_ONE_ID, [])
@example(({"_id": {"$eq": 1, "$gt": 0}, "a": 1}, {"_id": {"$eq": 2, "$gt": 5}, "a": 3}), BY_ONE_ID, [])
def test_a_plan_by_shape_is_the_plan_of_the_query(
    filters: tuple[dict[str, Any], dict[str, Any]], rest: dict[str, Any], documents: list[dict[str, Any]]
) -> None:
    """Ids, access, fields, window and matches equal the ones of a full plan, with the values of either query first."""
    query, other = (Query(filter=filter_, **rest) for filter_ in filters)
    assert shape_of(query) == shape_of(other) is not None
    template = PlanTemplate.of(query, plan_query(query))
    assert template is not None
    made, full = template.filled(other), plan_query(other)
    assert of_plan(made) == of_plan(full)
    assert made.index == full.index
    assert made.predicate is not None
    assert full.predicate is not None
    assert made.predicate.identity == full.predicate.identity == identity(made.predicate.root)
    reached = {path: next(iter(_ends(value))) for path, value in filters[1].items()}
    for document in [*documents, reached]:
        assert made.predicate.matches(document) == full.predicate.matches(document)


def test_queries_without_a_shape_are_planned_in_full() -> None:
    """Values that are treated by what they are, operators of other kinds, and queries that are widened."""
    for filter_ in (
        {}, {"a": None}, {"a": True}, {"a": 1.5}, {"a": {"b": 1}}, {"a": {}}, {"a": [1]}, {"a": {"$in": [1]}},
        {"$or": [{"a": 1}]}, {"a": {"$gt": None}}, {"a": {"$ne": 1}},
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
