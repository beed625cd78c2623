"""JSON Merge Patch by the RFC's own table; update operators by their list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import ObjectId

from quaestor.rest.patches import merged, require_near, require_update
from quaestor.rest.problems import Problem

RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7396)
def test_merge_patches_as_appendix_a_says(target: Any, patch: Any, expected: Any) -> None:
    before = json.dumps([target, patch])
    assert merged(target, patch) == expected
    assert json.dumps([target, patch]) == before


def test_a_bson_value_replaces_and_is_not_merged_into() -> None:
    key = ObjectId()
    assert merged({"a": {"b": 1}, "c": key}, {"a": key, "c": {"d": 1}}) == {"a": key, "c": {"d": 1}}


@pytest.mark.parametrize(
    ("update", "pointer"),
    [
        ({}, ""),
        ({"a": 1}, "/a"),
        ({"$set": {"a": 1}, "b": 2}, "/b"),
        ({"$setOnInsert": {"a": 1}}, "/$setOnInsert"),
        ({"$where": {"a": 1}}, "/$where"),
        ({"$set": 5}, "/$set"),
        ({"$set": {"_id": 5}}, "/$set/_id"),
        ({"$set": {"_id.x": 5}}, "/$set/_id.x"),
        ({"$rename": {"a": "_id"}}, "/$rename/a"),
        ({"$rename": {"a": 5}}, "/$rename/a"),
        ({"$set": {"a..b": 5}}, "/$set/a..b"),
        ({"$set": {"": 5}}, "/$set/"),
        ({"$set": {"$a": 5}}, "/$set/$a"),
        ({"$set": {"a": {"$b": 5}}}, "/$set/a/$b"),
        ({"$pull": {"a": {"$where": "1"}}}, "/$pull/a/$where"),
        ({"$push": {"a": {"$each": [{"$x": 1}]}}}, "/$push/a/$each/0/$x"),
    ],
    ids=str,
)
def test_updates_that_are_refused_are_refused_with_their_place(update: Any, pointer: str) -> None:
    with pytest.raises(Problem) as refused:
        require_update(json.dumps(update), update)
    assert (refused.value.status, refused.value.extra["pointer"]) == (422, pointer)


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"a.b.0": {"c": 1}}, "$unset": {"x": ""}},
        {"$push": {"a": {"$each": [1, 2], "$slice": -5, "$sort": {"x": 1}, "$position": 0}}},
        {"$pull": {"a": {"$in": [1]}}},
        {"$currentDate": {"a": {"$type": "timestamp"}}},
        {"$inc": {"a": 1}, "$min": {"b": 2}, "$rename": {"c": "d"}},
    ],
    ids=str,
)
def test_an_ordinary_update_is_allowed(update: Any) -> None:
    require_update(json.dumps(update), update)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("z.0", True),
        ("z.1001", True),
        ("z.1002", False),
        ("z.1500000", False),
        ("z." + "9" * 5_000, False),
        ("y.a.5000", False),
        ("x.0.a.5000", False),
        ("x.7.5000", True),
        ("y.5000", True),
        ("none.5000", True),
        ("5000", True),
    ],
)
def test_a_few_bytes_do_not_make_an_array_of_millions(path: str, allowed: bool) -> None:
    """A number is a place only where there is an array; otherwise it is the name of a field."""
    record = {"z": [0], "y": {"a": []}, "x": [{"a": []}]}
    update = {"$set": {path: 1}}
    if allowed:
        require_near(json.dumps(update), update, record)
    else:
        with pytest.raises(Problem) as refused:
            require_near(json.dumps(update), update, record)
        assert (refused.value.status, refused.value.extra["pointer"]) == (422, f"/$set/{path}")
