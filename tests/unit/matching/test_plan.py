"""Promises of a plan: exact or widened, its way to be found, equal plans for equal queries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from quaestor.errors import MalformedQueryError
from quaestor.model import Document, Query
from quaestor.planning.plan import (
    HINTED,
    JOINED,
    NOT_EVALUATED,
    TO_COLLECTION,
    TO_LEADING_MATCH,
    Result,
    Window,
    plan_query,
)
from quaestor.planning.relevant_fields import ALL, Fields
from tests.unit.matching.scene import aggregate, count, distinct, find

MATCH = {"$match": {"a": 1}}
_JOIN: Any = {"from": "makers", "localField": "m", "foreignField": "_id", "as": "o"}
_WALK = {"from": "makers", "startWith": "$m", "connectFromField": "m", "connectToField": "_id", "as": "o"}


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ({"_id": 7, "a": 1}, "hash on _id (hash on a if less crowded)"),
        ({"a": 1, "b": {"$gt": 5}}, "hash on a"),
        ({"a": {"$in": [1, 2]}}, "hash on a"),
        ({"b": {"$gt": 5, "$lt": 9}}, "interval on b"),
        ({"b": {"$gt": 5}, "c": {"$gt": 1, "$lt": 2}}, "interval on c"),
        ({"tail": {"$regex": "^N5"}, "b": {"$gt": 5}}, "prefix on tail"),
        ({"tail": re.compile("^N5")}, "prefix on tail"),
        ({"flag": True, "b": {"$gt": 5}}, "interval on b"),
        ({"flag": True}, "hash on flag"),
        ({"a": {"$exists": True}}, "existence of a"),
        ({"$or": [{"a": 1}, {"b": {"$lt": 3}}]}, "hash on a or interval on b"),
        ({"$or": [{"a": 1}, {"b": {"$ne": 3}}]}, "other values of b or hash on a"),
        ({"$or": [{"a": 1}, {"b": {"$not": {"$size": 3}}}]}, "always try"),
        ({"a": {"$ne": 1}}, "other values of a"),
        ({"a": {"$not": {"$gte": 1}}, "b": {"$ne": 1}}, "no value of a above an end"),
        ({"$nor": [{"a": {"$lt": 1}}, {"b": 1}]}, "no value of a below an end"),
        ({"a": {"$exists": False}}, "absence of a"),
        ({"a": {"$regex": "abc$"}}, "text in a"),
        ({"a": {"$regex": "^x.*abcde"}}, "text in a (prefix on a if less crowded)"),
        ({"a": {"$regex": ".*"}}, "type of a"),
        ({"a": {"$size": 3}}, "size of a"),
        ({"a": {"$mod": [4, 1]}}, "remainder of a"),
        ({"a": {"$type": "string"}}, "type of a"),
        ({"a": {"$elemMatch": {"$ne": 1}}}, "type of a"),
        ({"a": {"$all": [1, 2]}}, "hash on a"),
        ({"$expr": {"$eq": ["$a", 5]}}, "hash on a"),
        ({"$expr": {"$and": [{"$gt": ["$a", 5]}, {"$in": ["$b.c", [1, 2]]}]}}, "hash on b.c"),
        ({"$expr": {"$lt": [5, "$a"]}}, "no value of a below an end"),
        ({"$expr": {"$and": [{"$eq": ["$a", 5]}, {"$gt": [{"$divide": [1, "$b"]}, 0]}]}}, "always try"),
        ({"items": {"$elemMatch": {"sku": "x", "n": {"$gt": 1}}}}, "hash on items.sku"),
        ({"items": {"$elemMatch": {"$gte": 1, "$lt": 3}}}, "interval on items"),
        ({}, "always try"),
        ({"a": {"$in": []}}, "never matches"),
    ],
)
def test_the_most_selective_predicate_is_indexed(condition: Document, index: str) -> None:
    assert plan_query(find(condition)).index == index


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (find({"a": 1, "b": 2}), find({"b": 2, "a": 1})),
        (find({"a": {"$in": [1]}}), find({"a": 1})),
        (find({"$and": [{"a": 1}, {"$and": [{"b": 2}]}]}), find({"a": 1, "b": 2})),
        (find({"a": 1}), find({"a": 1.0})),
        (find({"a": 1}, sort=(("b", 1),)), find({"a": 1}, sort=(("b", 1.0),))),
        (find({"a": 1}, collation={"locale": "simple"}), find({"a": 1})),
        (find({"a": 1}, collation={"locale": "de"}), find({"a": 1})),
        (find({"a": 1}, projection={}), find({"a": 1})),
    ],
)
def test_equal_queries_have_equal_ids(a: Any, b: Any) -> None:
    assert plan_query(a).query_id == plan_query(b).query_id


def test_different_queries_have_different_ids() -> None:
    queries = [
        find({"a": 1}),
        find({"a": 2}),
        find({"a": {"b": 1, "c": 2}}),
        find({"a": {"c": 2, "b": 1}}),
        find({"a": 1}, limit=1),
        find({"a": 1}, skip=1),
        find({"a": 1}, sort=(("a", 1),)),
        find({"a": 1}, sort=(("a", -1),)),
        find({"a": 1}, sort=(("a", 1), ("b", 1))),
        find({"a": 1}, sort=(("b", 1), ("a", 1))),
        find({"a": 1}, projection={"b": 1}),
        find({"a": "x"}),
        find({"a": "x"}, collation={"locale": "de"}),
        find({"a": 1}, namespace="shop.other"),
        find({"a": 1}, widened="hint"),
        count({"a": 1}),
        distinct("b", {"a": 1}),
        distinct("c", {"a": 1}),
        aggregate(MATCH),
    ]
    assert len({plan_query(query).query_id for query in queries}) == len(queries)


def test_ids_are_the_same_in_every_process() -> None:
    assert (
        plan_query(find({"a": 1, "b": {"$gt": "x"}}, sort=(("c", -1),), limit=3)).query_id
        == "d743e058946368958a1e0962a6827d7b"
    )


@pytest.mark.parametrize(
    ("query", "match", "reason"),
    [
        (find({"a": 1}), "exact", None),
        (count({"a": 1}), "exact", None),
        (distinct("b", {"a": 1}), "exact", None),
        (find({"a": 1}, collation={"locale": "simple"}), "exact", None),
        (find({"a": 1}, collation={"locale": "de"}), "exact", None),
        (aggregate(), "exact", None),
        (aggregate(MATCH), "exact", None),
        (aggregate(MATCH, {"$sort": {"b": 1}}, {"$project": {"b": 1}}), "exact", None),
        (aggregate(MATCH, {"$count": "n"}), "exact", None),
        (aggregate(MATCH, MATCH, {"$limit": 3}), "exact", None),
        (aggregate(MATCH, {"$sort": {"b": 1}}, {"$limit": 9}, {"$skip": 3}, {"$set": {"x": 1}}), "exact", None),
        (aggregate(MATCH, {"$project": {"b": 1, "x": "$y"}}, {"$sort": {"b": 1}}, {"$limit": 9}), "exact", None),
        (aggregate(MATCH, {"$set": {"x": 1}}, {"$limit": 3}, {"$unset": "y"}), "exact", None),
        (aggregate(MATCH, {"$set": {"b": 1}}, {"$sort": {"b": 1}}, {"$limit": 9}), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$set": {"b": 1}}, MATCH), "exact", None),
        (aggregate(MATCH, {"$set": {"a": 1}}, MATCH), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$limit": 3}, MATCH), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$project": {"a": 1}}, MATCH, {"$group": {"_id": None, "n": {"$sum": 1}}}), "exact", None),
        (aggregate(MATCH, {"$set": {"b": {"$add": ["$c", 1]}}}, {"$count": "n"}), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$group": {"_id": None, "n": {"$sum": "$b"}}}), "widened", TO_LEADING_MATCH),
        (find({"a": 1}, sort=(("$natural", -1),), limit=3), "exact", None),
        (find({"a": 1}, widened=HINTED), "widened", HINTED),
        (find({"$expr": {"$eq": ["$a", "$$x"]}}, let={"x": 1}), "exact", None),
        (aggregate(MATCH, {"$limit": 3}, {"$sort": {"b": 1}}), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$limit": 3}, {"$skip": 3}), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$set": {"_id": 1}}), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$group": {"_id": "$b"}}), "widened", TO_LEADING_MATCH),
        (aggregate({"$group": {"_id": "$b"}}), "widened", TO_COLLECTION),
        (aggregate(MATCH, {"$unionWith": "items"}), "widened", TO_LEADING_MATCH),
        (aggregate(MATCH, {"$lookup": _JOIN}), "widened", JOINED),
        (
            aggregate(MATCH, {"$sort": {"b": 1}}, {"$limit": 9}, {"$lookup": _JOIN}, {"$unset": "o.x"}),
            "widened",
            JOINED,
        ),
        (aggregate(MATCH, {"$graphLookup": _WALK}), "widened", JOINED),
        (aggregate(MATCH, {"$project": {"b": {"$gt": ["$c", 3]}}}), "exact", None),
        (aggregate(MATCH, {"$set": {"x.y": "$b"}}), "widened", NOT_EVALUATED),
        (find({"a": 1}, projection={"b": 1, "c": {"$slice": 2}}), "exact", None),
        (find({"a": 1}, projection={"b": {"$gt": ["$c", 3]}}), "exact", None),
        (find({"a": 1}, projection={"b": 1}, collation={"locale": "de"}), "exact", None),
        (find({"a": 1}, projection={"b": {"$gt": ["$c", "x"]}}, collation={"locale": "de"}), "widened", NOT_EVALUATED),
        (find({"a": 1}, projection={"a.$": 1}), "widened", NOT_EVALUATED),
        (find({"a": 1}, projection={"b": {"c": {"$slice": 2}}}), "widened", NOT_EVALUATED),
        (find({"a": 1}, widened="hint"), "widened", "hint"),
    ],
)
def test_a_query_is_exact_only_if_no_other_write_invalidates_it(query: Any, match: str, reason: str | None) -> None:
    """A query is never called exact if writes invalidate it that do not change it, for any reason of widening."""
    plan = plan_query(query)
    assert (plan.match, plan.reason) == (match, reason)


@pytest.mark.parametrize("query", [aggregate(MATCH, {"$lookup": _JOIN}), find({"a": 1}, projection={"a.$": 1})])
def test_a_query_widened_by_its_shown_fields_is_still_judged_by_its_filter(query: Any) -> None:
    """A record that comes, goes or moves counts as for an exact query: members, windows and ends."""
    plan = plan_query(query)
    assert (plan.by_predicate, plan.result, plan.condition) == (True, Result.RECORDS, {"a": 1})


@pytest.mark.parametrize(
    "query",
    [
        find({"$where": "true"}),
        find({"$text": {"$search": "x"}}),
        find({"a": 1}, sort=(("score", {"$meta": "textScore"}),)),
        find({"$expr": {"$eq": ["$a", "$$x.y"]}}, let={"x": 1}),
        find({"$expr": {"$eq": ["$a", "$$x"]}}, let={"x": {"$add": [1, 2]}}),
        find({"$expr": {"$eq": ["$a", "$$x"]}}, let={"x": "$b"}),
        find({"$expr": {"$let": {"vars": {"x": 2}, "in": {"$eq": ["$a", "$$x"]}}}}, let={"x": 1}),
        find({"a": 1}, projection={"b": "$$x"}, let={"x": 1}),
    ],
)
def test_unsupported_filters_are_widened_to_the_collection_with_a_reason(query: Any) -> None:
    plan = plan_query(query)
    assert (plan.match, plan.predicate, plan.index) == ("widened", None, "every write")
    assert plan.reason


@pytest.mark.parametrize(
    ("condition", "collation", "left"),
    [
        ({"a": "x"}, {"locale": "de"}, {"$or": [{"a": {"$in": ["x"]}}, {"a": {"$regex": "[^ -~]"}}]}),
        (
            {"a": {"$in": ["x.", 1]}},
            {"locale": "en", "strength": 2},
            {
                "$or": [
                    {"a": {"$in": [1]}},
                    {"a": {"$regex": r"^(?:x\.)$", "$options": "i"}},
                    {"a": {"$regex": "[^ -~]"}},
                ]
            },
        ),
        ({"a": "x", "b": 1}, {"locale": "hu", "strength": 1}, {"b": 1}),
        ({"a": "x", "b": 1}, {"locale": "de", "alternate": "shifted"}, {"b": 1}),
        ({"a": "1", "b": 1}, {"locale": "de", "numericOrdering": True}, {"b": 1}),
        ({"a": "\u00e4", "b": 1}, {"locale": "de"}, {"b": 1}),
        ({"a": {"$gt": "x", "$ne": 3}}, {"locale": "sv"}, {"$and": [{"a": {"$type": "string"}}, {"a": {"$ne": 3}}]}),
        ({"a": {"$regex": "^x", "$options": "i"}}, {"locale": "sv"}, {"a": {"$regex": "^x", "$options": "i"}}),
        ({"$or": [{"a": {"$ne": "x"}}, {"b": 1}]}, {"locale": "de"}, {}),
        ({"$nor": [{"a": "x"}], "b": {"$ne": "x"}, "c": {"d": "x"}}, {"locale": "de"}, {}),
    ],
)
def test_a_collation_leaves_conditions_without_strings(condition: Any, collation: Any, left: Any) -> None:
    """A collation also leaves the equality of printable ASCII, on which every version of ICU agrees."""
    plan = plan_query(find(condition, collation=collation))
    assert (plan.match, plan.condition) == ("widened", left)


def test_equal_collated_queries_are_equal_and_others_are_not() -> None:
    ids = {plan_query(find({"a": name}, collation={"locale": "sv"})).query_id for name in ("x", "x", "y")}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("stages", "condition"),
    [
        (({"$set": {"x": "$b"}}, {"$match": {"a": 1, "x": 2}}, {"$group": {"_id": "$x"}}), {"a": 1}),
        (({"$unwind": "$l"}, {"$match": {"a": 1, "l": 2}}, {"$count": "n"}), {"a": 1}),
        (({"$sort": {"b": 1}}, {"$match": {"a": 1}}, {"$group": {"_id": "$b"}}), {"a": 1}),
        (({"$project": {"a": 1, "b": "$c"}}, {"$match": {"$and": [{"a": 1}, {"b": 2}]}}, {"$count": "n"}), {"a": 1}),
    ],
)
def test_later_filters_of_fields_that_are_still_their_own_lead_too(stages: Any, condition: Any) -> None:
    """As in views that compute, whose stages come before the query's."""
    plan = plan_query(aggregate(*stages))
    assert (plan.match, plan.reason, plan.condition) == ("widened", TO_LEADING_MATCH, condition)


def test_fields_that_only_the_leading_filter_reads_are_not_visible() -> None:
    """The exception is a filter that may decide a visible order:
    its fields count for records that pass before and after, too.
    """
    count, push = {"$sum": 1}, {"$push": "$b"}
    by_id = {"$sort": {"_id": 1}}
    assert plan_query(aggregate(MATCH, {"$group": {"_id": "$g", "n": count}}, by_id)).relevant.visible == Fields(("g",))
    assert plan_query(aggregate(MATCH, {"$group": {"_id": "$g", "n": count}})).relevant.visible == Fields(("a", "g"))
    assert plan_query(aggregate(MATCH, {"$group": {"_id": "$g", "n": push}}, by_id)).relevant.visible == Fields(
        ("a", "b", "g")
    )


@pytest.mark.parametrize(
    "stages",
    [
        ({"$limit": 3}, {"$match": {"a": 1}}),
        ({"$group": {"_id": "$a"}}, {"$match": {"_id": 1}}),
        ({"$set": {"a": 1}}, {"$match": {"a": 1}}),
        ({"$unset": "a"}, {"$match": {"a": None}}),
        ({"$project": {"b": 1}}, {"$match": {"a": None}}),
        ({"$replaceWith": "$b"}, {"$match": {"a": 1}}),
        ({"$unwind": {"path": "$l", "includeArrayIndex": "a"}}, {"$match": {"a": 1}}),
    ],
)
def test_later_filters_of_anything_else_do_not(stages: Any) -> None:
    assert not plan_query(aggregate(*stages)).condition


def _foreign(*stages: Any) -> list[tuple[str, Any, Any]]:
    return [(read.namespace, read.condition, read.fields) for read in plan_query(aggregate(*stages)).foreign_reads]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (({"$lookup": _JOIN},), ("shop.makers", {}, ALL)),
        (({"$lookup": _JOIN}, {"$project": {"b": 1, "o.name": 1}}), ("shop.makers", {}, Fields(("name",)))),
        (
            (
                {"$lookup": _JOIN | {"foreignField": "k"}},
                {"$unwind": "$o"},
                {"$group": {"_id": "$o.kind", "n": {"$sum": "$o.n"}}},
                {"$sort": {"_id": 1}},
            ),
            ("shop.makers", {}, Fields(("k", "kind", "n"))),
        ),
        (
            ({"$lookup": _JOIN | {"foreignField": "k"}}, {"$project": {"o.name": 1}}),
            ("shop.makers", {}, ALL),  # an index of k and something else may order them
        ),
        (({"$lookup": _JOIN}, {"$project": {"x": {"$first": "$o"}}}), ("shop.makers", {}, ALL)),
        (
            (
                {
                    "$lookup": {
                        "from": "makers",
                        "let": {"m": "$m"},
                        "pipeline": [
                            {"$match": {"on": True, "$expr": {"$eq": ["$k", "$$m"]}}},
                            {"$sort": {"_id": 1}},
                            {"$project": {"name": 1}},
                        ],
                        "as": "o",
                    }
                },
            ),
            ("shop.makers", {"on": True}, Fields(("k", "name", "on"))),
        ),
        (
            (
                {"$unionWith": {"coll": "old", "pipeline": [{"$match": {"a": 1}}]}},
                {"$group": {"_id": "$g", "n": {"$sum": 1}}},
                {"$sort": {"_id": 1}},
            ),
            ("shop.old", {"a": 1}, Fields(("a", "g"))),
        ),
        (({"$unionWith": "old"}, {"$limit": 3}), ("shop.old", {}, ALL)),
        (
            (
                {
                    "$graphLookup": {
                        "from": "items",
                        "startWith": "$p",
                        "connectFromField": "p",
                        "connectToField": "_id",
                        "as": "o",
                        "restrictSearchWithMatch": {"on": True},
                    }
                },
                {"$project": {"n": {"$size": "$o.x"}}},
            ),
            ("shop.items", {"on": True}, Fields(("on", "p", "x"))),
        ),
        (
            (
                {
                    "$graphLookup": {
                        "from": "items",
                        "startWith": "$p",
                        "connectFromField": "p",
                        "connectToField": "k",
                        "as": "o",
                    }
                },
                {"$count": "n"},
            ),
            ("shop.items", {}, ALL),
        ),
    ],
)
def test_reads_of_other_collections(stages: Any, expected: Any) -> None:
    assert _foreign(MATCH, *stages) == [expected]


@pytest.mark.parametrize(
    "query", [find({"a": {"$gt": 1, "$nonsense": 1}}), find({"$and": []}), find({}, sort=(("a", 7),))]
)
def test_filters_that_mongod_refuses_are_malformed(query: Any) -> None:
    with pytest.raises(MalformedQueryError):
        plan_query(query)


def test_a_plan_names_its_window() -> None:
    """Plans of queries with an order and a limit say which window they show."""
    assert plan_query(find({})).window is Window.NONE
    assert plan_query(find({}, limit=1)).window is Window.UNORDERED
    assert plan_query(find({}, limit=1, sort=(("a", 1),))).window is Window.BOUNDARY
    assert plan_query(find({}, limit=1, skip=1, sort=(("a", 1),))).window is Window.OFFSET


@pytest.mark.parametrize(
    ("query", "window"),
    [
        (find({"_id": 1}, limit=1), Window.NONE),
        (find({"_id": 1, "a": 2}, limit=1, sort=(("a", 1),)), Window.NONE),
        (find({"_id": {"$in": [1, 2]}}, limit=2), Window.NONE),
        (find({"_id": {"$in": [1, 2, 3]}}, limit=2), Window.UNORDERED),
        (find({"_id": 1}, limit=1, skip=1), Window.OFFSET),
        (find({"$or": [{"_id": 1}, {"a": 1}]}, limit=1), Window.UNORDERED),
        (find({"_id": {"$gt": 1}}, limit=1), Window.UNORDERED),
        (find({"_id": "a"}, limit=1, collation={"locale": "sv", "strength": 1}), Window.UNORDERED),
    ],
)
def test_a_limit_that_cannot_be_exceeded_is_none(query: Query, window: Window) -> None:
    """The filter names the `_id`s of all records that it can match."""
    assert plan_query(query).window is window


def test_a_plan_names_its_kind_of_result() -> None:
    """Plans say which results their query can have."""
    assert plan_query(aggregate(MATCH, {"$count": "n"})).result is Result.COUNT
    assert plan_query(aggregate(MATCH, {"$group": {"_id": 1}}, {"$count": "n"})).result is Result.OPAQUE


def test_every_collection_a_pipeline_reads_is_a_dependency() -> None:
    pipeline = (
        MATCH,
        {"$lookup": {"from": "makers", "pipeline": [{"$unionWith": {"coll": "old"}}], "as": "m"}},
        {"$facet": {"x": [{"$graphLookup": {"from": "tree", "as": "t"}}]}},
        {"$unionWith": "archive"},
    )
    plan = plan_query(aggregate(*pipeline))
    assert plan.foreign_namespaces == ("shop.archive", "shop.makers", "shop.old", "shop.tree")
    assert plan.namespaces[0] == "shop.items"


def test_a_pipeline_that_dresses_records_is_a_find() -> None:
    lookup = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "_id", "as": "maker"}}
    stages = (MATCH, {"$sort": {"b": 1}}, {"$match": {"c": 2}}, {"$limit": 9}, {"$skip": 3}, lookup, {"$unset": "x"})
    plan = plan_query(aggregate(*stages))
    assert (plan.by_predicate, plan.window, plan.result) == (True, Window.OFFSET, Result.RECORDS)
    assert (plan.query.sort, plan.query.skip, plan.query.limit) == ((("b", 1),), 3, 6)
    assert plan.foreign_namespaces == ("shop.makers",)
    assert plan.predicate is not None
    assert plan.predicate.matches({"a": 1, "c": 2})
    assert not plan.predicate.matches({"a": 1})


def test_near_orders_a_limited_result() -> None:
    plan = plan_query(find({"at": {"$near": [0, 0]}}, limit=3))
    assert (plan.window, plan.place.ordering) == (Window.BOUNDARY, ("at",))
    assert plan.place.rank is not None
    assert plan.place.rank({"at": [3, 4]}) == 5
    assert plan_query(find({"at": {"$near": [0, 0]}}, limit=3, sort=(("b", 1),))).place.ordering == ("b",)
    assert plan_query(find({"at": {"$near": [0, 0]}}, skip=1, limit=3)).window is Window.OFFSET
