"""How many queries a write tries: not only which it finds.

A thousand queries are registered; a write must look at those that it could change and at few others.
"""

from __future__ import annotations

from collections.abc import Callable
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
    found = tried(conditions, record)
    assert found <= most
    assert found or most == 0


def test_what_cannot_be_indexed_is_tried_once_per_predicate() -> None:
    assert tried(lambda n: {"a": {"$ne": n % 10}}, {"a": -1}) == 10


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
    found = tried(lambda n: {"a": {"$gte": n, "$lt": n + widths[n % 4]}}, {"a": 500.5})
    assert found == sum(n <= 500.5 < n + widths[n % 4] for n in range(QUERIES))
