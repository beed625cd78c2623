"""Sort keys and sorted lists."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from bson import Decimal128

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query import sort_documents, sort_key, sort_key_function

RECORDS: list[dict[str, Any]] = [
    {"_id": 4, "a": [3, 1], "b": 1},
    {"_id": 3, "a": 2, "b": 2},
    {"_id": 2},
    {"_id": 1, "a": []},
    {"_id": 0, "a": None, "b": 0},
]


def order(sort: Any, **options: Any) -> list[int]:
    return [record["_id"] for record in sort_documents(RECORDS, sort, **options)]


def test_arrays_sort_by_their_least_or_greatest_element() -> None:
    """Empty arrays below null, missing fields as null."""
    assert order([("a", 1)]) == [1, 2, 0, 4, 3]
    assert order([("a", -1)]) == [4, 3, 2, 0, 1]


def test_equal_documents_stay_in_order_or_go_by_id() -> None:
    assert order([("zz", 1)]) == [4, 3, 2, 1, 0]
    assert order([("zz", 1)], by_id=True) == [0, 1, 2, 3, 4]
    assert order([("_id", -1)], by_id=True) == [4, 3, 2, 1, 0]


def test_sorts_are_taken_in_every_form() -> None:
    assert order({"a": 1}) == order((("a", 1.0),)) == order([["a", Decimal128("1")]])
    assert order(()) == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "sort", [[("a", 1)], [("a", -1)], [("b", 1), ("a", -1)], [("a.x", 1)], [("b", -1), ("_id", 1)]]
)
def test_a_key_alone_tells_the_place(sort: Any) -> None:
    """Comparing two keys is comparing two documents' places, as the check of a window's boundary needs."""
    key = sort_key_function(sort)
    for a, b in itertools.product(RECORDS, repeat=2):
        pair = sort_documents([b, a], sort)
        assert (key(a) < key(b)) == (pair[0] is a and sort_key(a, sort) != sort_key(b, sort))
        assert (key(a) <= key(b)) == (not key(b) < key(a))
        assert (key(a) == key(b)) == (hash(key(a)) == hash(key(b)) and not key(a) < key(b) and not key(b) < key(a))


def test_fields_of_one_array_are_taken_from_one_element() -> None:
    """The key is the least pair of one element, not the least of each field."""
    record = {"a": [{"x": 1, "y": 5}, {"x": 2, "y": 1}]}
    assert sort_key(record, [("a.x", 1), ("a.y", 1)]) == sort_key({"a": {"x": 1, "y": 5}}, [("a.x", 1), ("a.y", 1)])


def test_parallel_arrays_fail_as_in_mongod() -> None:
    with pytest.raises(MalformedQueryError, match="parallel arrays"):
        sort_key({"a": [1, 2], "b": [1, 2]}, [("a", 1), ("b", 1)])


MALFORMED: list[Any] = [
    [("", 1)],
    [("$a", 1)],
    [("a.", 1)],
    [("a..b", 1)],
    [("a", 0)],
    [("a", 2)],
    [("a", "asc")],
    [("a", True)],
    [("a", {"$foo": 1})],
    [(f"f{i}", 1) for i in range(33)],
    [(".".join("a" * 201), 1)],
]


@pytest.mark.parametrize("sort", MALFORMED, ids=lambda sort: repr(sort)[:40])
def test_malformed_sorts_are_refused(sort: Any) -> None:
    with pytest.raises(MalformedQueryError):
        sort_documents(RECORDS, sort)


def test_a_sort_by_score_is_unsupported() -> None:
    with pytest.raises(UnsupportedQueryError, match="textScore"):
        sort_documents(RECORDS, {"score": {"$meta": "textScore"}})
