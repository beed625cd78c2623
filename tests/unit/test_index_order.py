"""Which fields an index may order a result by, and for which results that can show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.model import Operation, Query
from quaestor.planning.index_order import UNKNOWN
from quaestor.planning.plan import plan_query
from quaestor.planning.relevant_fields import ALL, Fields
from tests.unit.matching.scene import aggregate, find

KEYS = (("a", "r"), ("b.c", "s"), ("x", "y"))
MATCH = {"$match": {"a": 1}}
SUMS = {"$group": {"_id": "$g", "n": {"$sum": "$m"}}}


def planned(query: Query, keys: Any = KEYS) -> Any:
    return plan_query(replace(query, index_keys=keys))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (find({"a": 1}, projection={"p": 1}), ("a", "p", "r")),
        (find({"b": 1}, projection={"p": 1}), ("b", "b.c", "p", "s")),
        (find({"q": 1}, sort=(("x", 1),), projection={"p": 1}), ("p", "q", "x", "y")),
        (find({"a": 1}, limit=1, projection={"p": 1}), ("a", "p", "r")),
        (find({"q": 1}, projection={"x": 1}), ("q", "x")),
        (find({"a": 1}, sort=(("x", 1), ("_id", 1)), projection={"p": 1}), ("a", "p", "x")),
        (find({"_id": 1}, projection={"p": 1}), ("p",)),
        (aggregate(MATCH, {"$group": {"_id": "$g", "all": {"$push": "$p"}}}), ("a", "g", "p", "r")),
        (aggregate(MATCH, {"$group": {"_id": "$x", "n": {"$sum": 1}}}), ("a", "r", "x", "y")),
        (aggregate(MATCH, SUMS, {"$sort": {"_id": 1}}), ("a", "g", "m")),
        (aggregate(MATCH, {"$count": "n"}), ("a",)),
        (Query(namespace="d.c", operation=Operation.DISTINCT, filter={"a": 1}, distinct_key="k"), ("a", "k")),
    ],
)
def test_the_fields_that_matter(query: Query, expected: tuple[str, ...]) -> None:
    assert planned(query).relevant.fields.shown == expected


def test_an_index_on_one_field_orders_equals_by_what_the_filter_finds_them_by() -> None:
    """Without a sort the filter's fields show anyway, and what is sorted by orders no equals."""
    keys = (("a",), ("x",))
    for query, visible in (
        (find({"a": {"$gt": 1}, "q": 1}, sort=(("x", 1),), projection={"p": 1}), ("a", "p")),
        (find({"x": {"$gt": 1}}, sort=(("x", 1),), projection={"p": 1}), ("p",)),
        (find({"a": {"$gt": 1}}, sort=(("x", 1), ("_id", 1)), projection={"p": 1}), ("p",)),
    ):
        assert planned(query, keys).relevant.visible.shown == visible
    assert planned(
        find({"a": 1, "q": 1}, sort=(("x", 1),), projection={"p": 1}), (("$*",),)
    ).relevant.visible.shown == (
        "a",
        "p",
        "q",
    )


def test_where_the_indexes_are_not_known_every_field_matters() -> None:
    query = find({"a": 1}, projection={"p": 1})
    assert planned(query, UNKNOWN).relevant.fields == ALL
    assert planned(query, ()).relevant.fields.shown == ("a", "p")
    assert planned(query, UNKNOWN).query_id != planned(query, ()).query_id


def test_queries_that_depend_on_the_order_of_an_index() -> None:
    """Only results that would stay through a change of such a field."""
    assert plan_query(find({"a": 1}, projection={"p": 1})).index_order.is_open
    assert plan_query(find({}, sort=(("a", 1),), skip=1, limit=1)).index_order.is_open
    assert plan_query(find({"a": 1}, limit=2)).index_order.is_open
    unknown = find({"$expr": {"$eq": ["$$ROOT", 1]}}, sort=(("a", 1),), projection={"p": 1})
    assert (plan_query(unknown).relevant.fields, plan_query(unknown).index_order.is_open) == (ALL, True)
    assert not plan_query(find({"_id": 1}, limit=1, projection={"p": 1})).index_order.is_open
    assert not plan_query(find({"a": 1})).index_order.is_open
    assert not plan_query(find({"a": 1}, sort=(("_id", 1),), projection={"p": 1})).index_order.is_open


@pytest.mark.parametrize(
    ("query", "found_by"),
    [
        (find({"_id": 1}), None),
        (find({"a": 1}, sort=(("x", 1), ("_id", 1))), None),
        (Query(namespace="d.c", operation=Operation.COUNT, filter={"a": 1}), None),
        (aggregate(MATCH, {"$count": "n"}), None),
        (aggregate(MATCH, SUMS, {"$sort": {"_id": 1}}), None),
        (find({}), ()),
        (find({"a": 1}), ("a",)),
        (find({"_id": {"$in": [1, 2]}}), ()),
        (find({"a": 1}, sort=(("x", 1),), limit=2), ("a", "x")),
        (Query(namespace="d.c", operation=Operation.DISTINCT, filter={"a": 1}, distinct_key="k"), ("a", "k")),
        (find({"a": 1}, sort=(("_id", 1),), collation={"locale": "de"}), ("a",)),
    ],
)
def test_the_fields_by_which_an_index_may_find_what_shows(query: Query, found_by: Any) -> None:
    assert planned(query, ()).index_order.found_by == (None if found_by is None else Fields(found_by))


@pytest.mark.parametrize(
    "query",
    [
        replace(find({"a": 1}), widened="hint: a sparse index would leave records out"),
        find({"at": {"$near": [1, 2]}}, sort=(("_id", 1),)),
        aggregate(MATCH, {"$lookup": {"from": "d", "localField": "a", "foreignField": "b", "as": "all"}}),
    ],
)
def test_any_index_may_find_what_is_not_known(query: Query) -> None:
    assert planned(query, ()).index_order.found_by == ALL
