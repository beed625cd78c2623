"""Which values a path reaches."""

from __future__ import annotations

from typing import Any

import pytest
from bson import DBRef

from quaestor.query.bson_order import MISSING
from quaestor.query.paths import reached

CASES: list[tuple[dict[str, Any], str, list[Any]]] = [
    ({"a": 1}, "a", [1]),
    ({}, "a", [MISSING]),
    ({"a": None}, "a", [None]),
    ({"a": [1, 2]}, "a", [1, 2, [1, 2]]),
    ({"a": []}, "a", [[]]),
    ({"a": {"b": 1}}, "a.b", [1]),
    ({"a": 5}, "a.b", [MISSING]),
    ({"a": [{"b": 1}, {"c": 2}, 3]}, "a.b", [1, MISSING]),
    ({"a": [1, 2]}, "a.b", []),
    ({"a": [{"b": [1, 2]}, {"b": 3}]}, "a.b", [1, 2, [1, 2], 3]),
    ({"a": [5, 6]}, "a.1", [6]),
    ({"a": [5, 6]}, "a.01", []),
    ({"a": [[5, 6]]}, "a.0", [[5, 6]]),
    ({"a": [[5, 6]]}, "a.0.1", [6]),
    ({"a": [{"0": 7}]}, "a.0", [7, {"0": 7}]),
    ({"a": [{"b": 1}]}, "a.0.b", [MISSING, 1]),
    ({"a": [1]}, "a.", [1, [1]]),
    ({"": 4}, "", [4]),
    ({"a": DBRef("c", 9)}, "a.$id", [9]),
]


@pytest.mark.parametrize(("document", "path", "values"), CASES)
def test_a_path_reaches_its_values(document: dict[str, Any], path: str, values: list[Any]) -> None:
    """Elements before the array that holds them; missing fields once for each document that lacks them."""
    assert reached(document, path) == values


def test_whole_arrays_are_not_taken_apart() -> None:
    """For $size and $elemMatch an array in the last place is one value."""
    assert reached({"a": [1, 2]}, "a", whole_arrays=True) == [[1, 2]]
    assert reached({"a": [{"b": [1]}, {"b": 2}]}, "a.b", whole_arrays=True) == [[1], 2]
