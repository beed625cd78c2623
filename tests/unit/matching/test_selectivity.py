"""Selectivity: how many queries a write tries, not only which it finds.

A thousand queries are registered; a write must look at the queries that it could change and at few others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from quaestor.model import Query
from tests.unit.matching.scene import Scene, aggregate, count, find

QUERIES = 1_000
TEXT_INDEX = {"weights": {"title": 1}, "default_language": "english", "textIndexVersion": 3}

Condition = Callable[[int], dict[str, Any]]


def tried(conditions: Condition | Callable[[int], Query], record: dict[str, Any]) -> int:
    """How many predicates one insert evaluates, with a thousand queries registered."""
    scene = Scene()
    for number in range(QUERIES):
        made = conditions(number)
        scene.register(made if isinstance(made, Query) else find(made), None if isinstance(made, Query) else ())
    assert scene.node.registrations == QUERIES
    scene.insert({"_id": 1, **record})
    return scene.node.tally.tried_last


@pytest.mark.parametrize(
    ("conditions", "record", "most"),
    [
        pytest.param(lambda n: {"a": n}, {"a": 7}, 1, id="equality"),
        pytest.param(lambda n: {"a.b": n}, {"a": {"b": 7}}, 1, id="dotted path"),
        pytest.param(lambda n: {"a.b": n}, {"a": [{"b": 7}, {"b": 8}]}, 2, id="array on the path"),
        pytest.param(lambda n: {"a": n}, {"a": [7, 8, 9]}, 3, id="array of values"),
        pytest.param(lambda n: {"a": n}, {"b": 7}, 0, id="field that is not there"),
        pytest.param(lambda n: {"a": {"$in": [n, -n - 1]}}, {"a": -8}, 1, id="in"),
        pytest.param(lambda n: {"_id": n, "a": 1}, {"a": 1}, 1, id="_id"),
        pytest.param(lambda n: {"a": {"$gte": n, "$lt": n + 1}}, {"a": 7.5}, 1, id="range"),
        pytest.param(lambda n: {"a": {"$gte": n * 10, "$lt": n * 10 + 30}}, {"a": 505}, 3, id="overlapping ranges"),
        pytest.param(lambda n: {"a": {"$gt": n}}, {"a": 5}, 6, id="one-sided range"),
        pytest.param(lambda n: {"a": {"$lte": n}}, {"a": 995}, 5, id="the other side"),
        pytest.param(lambda n: {"a": {"$gte": f"{n:04}", "$lt": f"{n + 1:04}"}}, {"a": "0042x"}, 2, id="strings"),
        pytest.param(lambda n: {"a": {"$regex": f"^{n:04}"}}, {"a": "0042 and more"}, 1, id="prefix"),
        pytest.param(lambda n: {"a": n, "b": {"$gt": 0}}, {"a": 7, "b": 1}, 1, id="conjunction"),
        pytest.param(lambda n: {"a": {"$ne": 1}, "b": n}, {"a": 2, "b": 3}, 1, id="beside a negation"),
        pytest.param(lambda n: {"$or": [{"a": n}, {"b": n}]}, {"a": 7, "b": 8}, 2, id="disjunction"),
        pytest.param(
            lambda n: {"$or": [{"state": "new", "zone": n}, {"state": "paid", "zone": -n - 1}]},
            {"state": "new", "zone": 7},
            2,
            id="disjunction with a shared value beside a rare one",
        ),
        pytest.param(
            lambda n: {"$or": [{"tags": {"$all": ["all", f"tag{n}"]}}, {"state": "new", "zone": n}]},
            {"tags": ["all", "tag7"], "state": "new"},
            3,
            id="disjunction with a rare element",
        ),
        pytest.param(
            lambda n: {"$or": [{"$or": [{"a": 1, "b": n}, {"a": 2, "b": n}], "c": 3}, {"d": n}]},
            {"a": 1, "b": 7, "c": 3},
            33,
            id="disjunction within a conjunction",
        ),
        pytest.param(lambda n: {"tags": {"$all": ["all", f"tag{n}"]}}, {"tags": ["all", "tag7"]}, 2, id="all"),
        pytest.param(
            lambda n: {"items": {"$elemMatch": {"sku": n, "n": {"$gt": 1}}}}, {"items": [{"sku": 7}]}, 1, id="elemMatch"
        ),
        pytest.param(
            lambda n: {"state": "paid", "customer": n},
            {"state": "paid", "customer": 7},
            2,
            id="a shared value beside a rare one",
        ),
        pytest.param(
            lambda n: {"flag": True, "price": {"$gte": n, "$lt": n + 1}},
            {"flag": True, "price": 7.5},
            1,
            id="a boolean beside a range",
        ),
        pytest.param(
            lambda n: {"place": {"$geoWithin": {"$box": [[n * 0.1, 0], [n * 0.1 + 0.05, 0.05]]}}},
            {"place": [7.02, 0.01]},
            2,
            id="places",
        ),
        pytest.param(
            lambda n: find({"$text": {"$search": f"word{n}"}}, text_index=TEXT_INDEX),
            {"title": "word7 or word8"},
            2,
            id="words",
        ),
        pytest.param(lambda n: count({"a": n}), {"a": 7}, 1, id="counts"),
        pytest.param(lambda n: aggregate({"$match": {"a": n}}, {"$group": {"_id": "$b"}}), {"a": 7}, 1, id="pipelines"),
    ],
)
def test_a_write_tries_few_queries(conditions: Any, record: dict[str, Any], most: int) -> None:
    results = tried(conditions, record)
    assert results <= most
    assert results or most == 0


@pytest.mark.parametrize(
    ("conditions", "record", "most"),
    [
        pytest.param(lambda n: {"a": {"$regex": f"{n:04}$"}}, {"a": "a 0007 b 0008"}, 2, id="regular expression"),
        pytest.param(lambda n: {"a": {"$regex": f"no {n:04}", "$options": "i"}}, {"a": "No 0007"}, 1, id="its case"),
        pytest.param(lambda n: {"a": {"$regex": f"(x|y{n:04})z{n:04}+"}}, {"a": "yz00077"}, 1, id="its required part"),
        pytest.param(lambda n: {"a": {"$regex": f"b{n:04}|c{n:04}"}}, {"a": ["b0007", "c0008"]}, 2, id="its branches"),
        pytest.param(lambda n: {"a": {"$regex": "|".join(f"b{n:04}{k:02}" for k in range(40))}}, {"a": "b000739"}, 1,
                     id="its many branches"),
        pytest.param(lambda n: {"a": {"$regex": f"customer.*{n:04}"}}, {"a": "a customer 0007"}, 33, id="its rare part"),
        pytest.param(lambda n: {"a": {"$regex": f"^(?=.*customer)(?=.*{n:04})"}}, {"a": "0007 customer"}, 33,
                     id="its look-ahead"),
        pytest.param(lambda n: {"a": {"$regex": f"пр{n:04}вет", "$options": "i"}}, {"a": "ПР0007ВЕТ"}, 1,
                     id="its case in any alphabet"),
        pytest.param(lambda n: {"a": {"$gte": {"b": n}}, "c": {"$gte": [n]}}, {"c": [7]}, 0, id="comparison of documents"),
        pytest.param(lambda n: {"a": {"$not": {"$gte": n}}}, {"a": 995.5}, 4, id="negated comparison"),
        pytest.param(lambda n: {"a": {"$not": {"$lte": n}}}, {"a": [4, 2, 9]}, 3, id="negated, of an array"),
        pytest.param(lambda n: {"a": {"$not": {"$gte": n, "$lt": 9_999}}}, {"a": 995.5}, 4, id="negated range"),
        pytest.param(lambda n: {"$nor": [{"a": {"$gt": n}}, {"b": n}]}, {"a": 998, "b": -1}, 2, id="nor"),
        pytest.param(lambda n: {"a": {"$ne": 5}, "b": {"$nin": [5, n]}, "c": {"$not": {"$size": n}}}, {"a": 5, "b": 5}, 0,
                     id="inequality"),
        pytest.param(lambda n: {f"a{n}": {"$exists": False}}, {f"a{n}": 1 for n in range(1_000) if n != 7}, 1, id="absence"),
        pytest.param(lambda n: {"a": {"$size": n}}, {"a": [1, 2, 3]}, 1, id="size"),
        pytest.param(lambda n: {"a": {"$mod": [1_000, n]}}, {"a": 4_007}, 1, id="remainder"),
        pytest.param(lambda n: {"a": {"$type": "string"}, "b": {"$not": {"$size": n}}}, {"a": 1}, 0, id="type"),
        pytest.param(lambda n: {"a": {"$elemMatch": {"$ne": n}}}, {"a": 7}, 0, id="elemMatch of what is no array"),
        pytest.param(lambda n: {"$expr": {"$eq": ["$a.b", n]}}, {"a": {"b": 7}}, 1, id="expression"),
        pytest.param(lambda n: {"$expr": {"$or": [{"$eq": ["$a", n]}, {"$in": ["$b", [n, -n]]}]}}, {"a": 7, "b": 8}, 2,
                     id="disjunction in an expression"),
        pytest.param(lambda n: {"$expr": {"$gt": ["$a", n]}}, {"a": 5}, 6, id="comparison in an expression"),
    ],
)  # fmt: skip
def test_a_write_tries_few_queries_that_look_for_no_value(conditions: Any, record: dict[str, Any], most: int) -> None:
    """The same for what a query requires of a record without naming a value."""
    results = tried(conditions, record)
    assert results <= most
    assert results or most == 0


def test_queries_without_an_index_are_tried_once_per_predicate() -> None:
    assert tried(lambda n: {"a": {"$not": {"$size": n % 10}}}, {"a": -1}) == 10


def test_a_predicate_is_evaluated_once_a_write_in_any_number_of_filters() -> None:
    """Three hundred queries of two predicates each, of which there are 25 (the case of q1 = p1 and p2, q2 = p2 or p3)."""
    scene = Scene()
    single = [{"a": {"$not": {"$size": number}}} for number in range(25)]
    for number, pair in enumerate(combinations(single, 2)):
        scene.register(find({"$and" if number % 2 else "$or": list(pair)}), ())
    assert scene.node.registrations == 300
    shared = scene.node._predicates.shared
    scene.insert({"_id": 1, "a": [1, 2, 3]})
    assert shared.evaluated == 25
    scene.insert({"_id": 2, "a": [1, 2, 3]})
    assert shared.evaluated <= 50


@pytest.mark.parametrize("filler", [100, 1_000])
def test_the_work_of_a_write_does_not_grow_with_the_queries_that_cannot_match(filler: int) -> None:
    """The number of tried queries, which is counted and not timed, stays the same for any number of others."""
    scene = Scene()
    for number in range(filler):
        for condition in (
            {"note": {"$regex": f"number {number:05}!"}},
            {"a": {"$not": {"$gte": -number}}, "state": {"$ne": "sent"}},
            {"$nor": [{"a": {"$gt": -number}}, {"b": number}]},
            {"$or": [{"note": {"$regex": f"{number:05}?x"}}, {"tags": {"$size": number + 5}}]},
            {"$expr": {"$eq": ["$customer", number]}},
        ):
            scene.register(find(condition), ())
    scene.insert({"_id": 1, "note": "please leave it", "a": 1, "b": 5, "tags": [1], "customer": -1, "state": "new"})
    assert scene.node.tally.tried_last == 0


def test_a_crowded_value_gives_way_to_a_better_predicate() -> None:
    """A hundred queries of each of ten customers: from the thirty-third on they are found by their price."""
    assert tried(lambda n: {"customer": n % 10, "price": {"$gte": n, "$lt": n + 1}}, {"customer": 3, "price": -1}) <= 32


def test_members_are_found_without_trying_anything_else() -> None:
    scene = Scene()
    for number in range(QUERIES):
        scene.register(find({"a": number}), (number,))
    assert len(scene.delete(7)) == 1
    assert scene.node.tally.tried_last == 0


def test_wide_ranges_among_narrow_ones_do_not_spoil_the_index() -> None:
    widths = (1, 10, 100, 1_000)
    results = tried(lambda n: {"a": {"$gte": n, "$lt": n + widths[n % 4]}}, {"a": 500.5})
    assert results == sum(n <= 500.5 < n + widths[n % 4] for n in range(QUERIES))
