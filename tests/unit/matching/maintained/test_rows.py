"""Stages that look at every row by itself, as mongod 6.0 does them (compared with it in tests/oracle)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from quaestor.incremental.expansion import distinct_values, unwind
from quaestor.query.expressions import ExpressionError
from quaestor.query.rows import row_function

ROW: dict[str, Any] = {"_id": 1, "a": {"b": 1, "c": 2}, "l": [{"b": 1, "c": 2}, 5, [{"b": 3}]], "s": "x"}


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("$project", {"s": 1}, {"_id": 1, "s": "x"}),
        ("$project", {"_id": 0, "s": 1}, {"s": "x"}),
        ("$project", {"_id": 1}, {"_id": 1}),
        ("$project", {"a.b": 1, "l.b": 1}, {"_id": 1, "a": {"b": 1}, "l": [{"b": 1}, [{"b": 3}]]}),
        ("$project", {"a": {"b": 1}}, {"_id": 1, "a": {"b": 1}}),
        ("$project", {"s.x": 1}, {"_id": 1}),
        ("$project", {"a": 0, "l": 0}, {"_id": 1, "s": "x"}),
        ("$project", {"_id": 0, "a": 0, "l.b": 0}, {"l": [{"c": 2}, 5, [{}]], "s": "x"}),
        ("$project", {"t": "$s", "s": 1}, {"_id": 1, "s": "x", "t": "x"}),
        ("$project", {"_id": "$s", "n": "$none"}, {"_id": "x"}),
        ("$unset", ["a", "l", "s"], {"_id": 1}),
        ("$unset", "a.b", {"_id": 1, "a": {"c": 2}, "l": ROW["l"], "s": "x"}),
        ("$set", {"s": "$a.b", "z": 1}, {"_id": 1, "a": ROW["a"], "l": ROW["l"], "s": 1, "z": 1}),
        ("$addFields", {"s": "$none"}, {"_id": 1, "a": ROW["a"], "l": ROW["l"]}),
        ("$replaceRoot", {"newRoot": "$a"}, {"b": 1, "c": 2}),
        ("$replaceWith", {"k": "$s"}, {"k": "x"}),
        ("$match", {"s": "x", "$expr": {"$eq": ["$a.b", 1]}}, ROW),
        ("$match", {"s": "y"}, None),
    ],
)
def test_a_row_becomes_as_the_stage_says(name: str, argument: Any, expected: Any) -> None:
    value = row_function(name, argument)(ROW)
    assert value == expected
    assert bson.encode({"": value}) == bson.encode({"": expected}), "the order of fields counts"


def test_a_root_that_is_no_document_fails_the_query() -> None:
    with pytest.raises(ExpressionError, match="newRoot"):
        row_function("$replaceWith", "$s")(ROW)


@pytest.mark.parametrize(
    ("options", "row", "expected"),
    [
        ({}, {"a": [1, 2]}, [{"a": 1}, {"a": 2}]),
        ({}, {"a": 7}, [{"a": 7}]),
        ({}, {"a": []}, []),
        ({}, {"a": None}, []),
        ({}, {}, []),
        ({"preserveNullAndEmptyArrays": True}, {"a": [], "b": 1}, [{"b": 1}]),
        ({"preserveNullAndEmptyArrays": True}, {"a": None}, [{"a": None}]),
        ({"preserveNullAndEmptyArrays": True}, {"b": 1}, [{"b": 1}]),
        ({"includeArrayIndex": "at"}, {"a": ["x", "y"]}, [{"a": "x", "at": 0}, {"a": "y", "at": 1}]),
        ({"includeArrayIndex": "at"}, {"a": "x"}, [{"a": "x", "at": None}]),
    ],
)
def test_an_array_is_unwound(options: dict[str, Any], row: dict[str, Any], expected: list[Any]) -> None:
    assert [part.row for part in unwind({"path": "$a", **options})(row)] == expected


@pytest.mark.parametrize(
    ("path", "row", "expected"),
    [
        ("a", {"a": [1, [2], 1.0]}, [1, [2]]),
        ("a", {"a": []}, []),
        ("a", {}, []),
        ("a.b", {"a": [{"b": 1}, {"b": [2, 3]}, 4]}, [1, 2, 3]),
        ("a.1.b", {"a": [{"b": 1}, {"b": 2}]}, [2]),
        ("a.b", {"a": {"b": None}}, [None]),
    ],
)
def test_the_distinct_values_of_a_record(path: str, row: dict[str, Any], expected: list[Any]) -> None:
    assert [part.id for part in distinct_values(path)(row)] == expected
