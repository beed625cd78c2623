"""Which fields matter to which query, and which updates leave all of them alone."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.planning.plan import plan_query
from quaestor.planning.relevant_fields import ALL, Fields
from tests.unit.matching.scene import aggregate, count, distinct, find

MATCH = {"$match": {"s": 1}}


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (find({"s": 1}, projection={"n": 1}, sort=(("at", 1),)), ("at", "n", "s")),
        (find({"$expr": {"$gt": ["$a.b", "$c"]}}, projection={"n": 1}), ("a.b", "c", "n")),
        (
            find({"s": 1, "$jsonSchema": {"properties": {"a": {"bsonType": "int"}}}}, projection={"n": 1}),
            ("a", "n", "s"),
        ),
        (find({"$and": [{"s": 1}, {"$expr": {"$in": ["$x", [1, 2]]}}]}, projection={"n": 1}), ("n", "s", "x")),
        (find({"s": 1}, projection={"n": {"a": 1, "b": {"c": True}}}), ("n.a", "n.b.c", "s")),
        (find({"s": 1}, projection={"n": 1, "l": {"$slice": 2}}), ("l", "n", "s")),
        (find({"s": 1}, projection={"n": 1, "l": {"$elemMatch": {"x": 1}}}), ("l", "n", "s")),
        (find({"s": 1}, projection={"l": {"$elemMatch": {"x": 1}}}), ("l", "s")),
        (find({"s": 1}, projection={"n.$": 1, "m": 1}), ("m", "n", "s")),
        (find({"s": 1}, projection={"big": {"$gt": ["$n.m", 3]}, "_id": 0}), ("big", "n.m", "s")),
        (aggregate(MATCH, {"$project": {"a": 1, "l": {"$slice": ["$items", 2]}}}), ("a", "items", "l", "s")),
        (count({"s": 1, "t": 2}), ("s", "t")),
        (distinct("tags", {"s": 1}), ("s", "tags")),
        (aggregate(MATCH, {"$sort": {"at": 1}}, {"$count": "n"}), ("s",)),
        (aggregate(MATCH, {"$group": {"_id": "$day", "n": {"$sum": "$price"}}}), ("day", "price", "s")),
        (aggregate(MATCH, {"$set": {"d": {"$year": "$at"}}}, {"$group": {"_id": "$d"}}), ("at", "d", "s")),
        (aggregate(MATCH, {"$unwind": {"path": "$tags"}}, {"$sortByCount": "$tags"}), ("s", "tags")),
        (aggregate(MATCH, {"$bucket": {"groupBy": "$p", "boundaries": [0, 9]}}), ("p", "s")),
        (aggregate(MATCH, {"$project": {"_id": 0, "a": 1, "b": {"c": 1}}}), ("a", "b.c", "s")),
        (aggregate(MATCH, {"$project": {"a": {"$toUpper": "$b"}}}, {"$sort": {"a": 1}}), ("a", "b", "s")),
        (aggregate(MATCH, {"$unset": "x"}, {"$match": {"t": 1}}, {"$group": {"_id": None}}), ("s", "t")),
        (
            aggregate(MATCH, {"$facet": {"a": [{"$sortByCount": "$x"}], "b": [{"$match": {"y": 1}}, {"$count": "n"}]}}),
            ("s", "x", "y"),
        ),
        (
            aggregate(MATCH, {"$group": {"_id": "$g", "top": {"$top": {"sortBy": {"at": -1}, "output": "$o"}}}}),
            ("at", "g", "o", "s"),
        ),
        (aggregate(MATCH, {"$sort": {"at": 1}}, {"$limit": 3}, {"$group": {"_id": "$g"}}), ("at", "g", "s")),
        (aggregate(MATCH, {"$replaceRoot": {"newRoot": "$sub"}}, {"$group": {"_id": "$g"}}), ("g", "s", "sub")),
        (
            aggregate(
                MATCH,
                {"$lookup": {"from": "x", "localField": "k", "foreignField": "_id", "as": "j"}},
                {"$group": {"_id": "$j.name"}},
            ),
            ("j.name", "k", "s"),
        ),
        (
            aggregate(
                MATCH,
                {
                    "$setWindowFields": {
                        "partitionBy": "$p",
                        "sortBy": {"at": 1, "_id": 1},
                        "output": {
                            "r": {"$documentNumber": {}},
                            "v": {"$sum": "$x", "window": {"documents": [-1, 1]}},
                            "w": {"$shift": {"output": "$y", "by": 1, "default": "$z"}},
                        },
                    }
                },
                {"$project": {"r": 1}},
            ),
            ("at", "p", "r", "s", "x", "y", "z"),
        ),
        (
            aggregate(
                MATCH,
                {"$fill": {"partitionByFields": ["p"], "sortBy": {"at": 1}, "output": {"v": {"method": "locf"}}}},
                {"$densify": {"field": "at", "range": {"step": 1, "bounds": "full"}}},
                {"$group": {"_id": "$g"}},
            ),
            ("at", "g", "p", "s", "v"),
        ),
    ],
)
def test_fields_that_are_read_matter(query: Any, shown: tuple[str, ...]) -> None:
    assert plan_query(query).relevant.fields == Fields(shown)


@pytest.mark.parametrize(
    "query",
    [
        find({"s": 1}),
        find({"$jsonSchema": {"required": ["s"]}}, projection={"n": 1}),
        find({"$jsonSchema": {"properties": {"a": {}}, "maxProperties": 3}}, projection={"n": 1}),
        find({"$jsonSchema": {"properties": {"": {"maxProperties": 3}}}}, projection={"n": 1}),
        find({"$expr": {"$eq": [{"$size": {"$objectToArray": "$$ROOT"}}, 3]}}, projection={"n": 1}),
        find({"2024": 1}, projection={"n": 1}),
        find({"s": 1}, projection={"n.$.m": 1}),
        find({"s": 1}, projection={"n": {"$meta": "textScore"}, "m": 1}),
        find({"s": 1}, projection={"n": "$$ROOT"}),
        find({"s": 1}, projection={"n": {"$gt": ["$m", 1]}, "l": {"$slice": 1}}),
        find({"s": 1}, projection={"n": {"$slice": 1}}),
        find({"s": 1}, projection={"l": {"$elemMatch": {"x": 1}}, "n": 0}),
        find({"s": 1}, projection={"_id": 1, "n": {"$slice": 1}}),
        find({"s": 1}, projection={"n": {"a": {"$slice": 1}}}),
        aggregate(MATCH, {"$group": {"_id": "$g", "all": {"$push": "$$ROOT"}}}),
        aggregate(MATCH, {"$set": {"x": 1}}),
        aggregate(MATCH, {"$limit": 3}, {"$group": {"_id": "$g"}}),
        aggregate(MATCH, {"$facet": {"a": [{"$sortByCount": "$x"}], "b": [{"$sort": {"at": 1}}]}}),
        aggregate(
            MATCH, {"$setWindowFields": {"sortBy": {"a": 1}, "output": {"r": {"$nonsense": {}}}}}, {"$count": "n"}
        ),
        aggregate(MATCH, {"$set": {"x": {"$function": {}}}}, {"$count": "n"}),
    ],
)
def test_an_unreadable_part_makes_every_field_matter(query: Any) -> None:
    assert plan_query(query).relevant.fields == ALL


@pytest.mark.parametrize(
    ("shown", "changed", "untouched"),
    [
        (("a",), ("b",), True),
        (("a",), (), True),
        (("a",), ("a",), False),
        (("a",), ("a.b",), False),
        (("a.b",), ("a",), False),
        (("a.b",), ("a.c",), True),
        (("a.b",), ("a.0.c",), True),
        (("a.b",), ("a.0.b",), False),
        (("a.b",), ("a.3",), False),
        (("a.0",), ("a.7.x",), False),
        (("a",), ("ab", "b.a"), True),
        (("a",), ("7",), False),
        ((), ("x",), True),
    ],
)
def test_an_update_that_touches_nothing_that_is_read(
    shown: tuple[str, ...], changed: tuple[str, ...], untouched: bool
) -> None:
    assert Fields(shown).untouched(changed) is untouched


def test_a_nested_projection_hides_as_a_dotted_one_does() -> None:
    nested, dotted = (aggregate(MATCH, {"$project": hidden}) for hidden in ({"a": {"b": 0}}, {"a.b": 0}))
    assert plan_query(nested).relevant.fields == plan_query(dotted).relevant.fields == Fields(("s",), ("a.b",))


def test_fields_that_a_projection_hides_may_change() -> None:
    hidden = plan_query(find({"s": 1}, projection={"views": 0, "stats": 0})).relevant.fields
    assert hidden.untouched(["views"])
    assert hidden.untouched(["views", "stats"])
    assert not hidden.untouched(["views", "name"])
    assert not hidden.untouched(["s"])
    assert not hidden.untouched(["stats.x"]), "a field may be called 'stats.x', and that one is not hidden"
    assert not ALL.untouched(["x"])


def test_a_number_in_an_exclusion_hides_a_field_of_that_name_and_no_element() -> None:
    fields = plan_query(find({"s": 1}, projection={"a.0": 0, "v": 0})).relevant.fields
    assert fields == Fields(("s",), ("v",))
    assert not fields.same({"s": 1, "a": [1]}, {"s": 1, "a": [2]})
