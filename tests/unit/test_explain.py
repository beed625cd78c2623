"""explain says what the node and capture do."""

from __future__ import annotations

import datetime
import json

import bson
import pytest

from quaestor.capture.commands import understand
from quaestor.capture.recorder import ReadInProgress, Recorder
from quaestor.explain.explanation import explain
from quaestor.model import Query
from quaestor.planning.plan import plan_query
from tests.unit.matching.scene import aggregate, count, find

NOW = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def test_an_ordinary_query_is_exact_and_names_its_index() -> None:
    explanation = explain(find({"origin": "JFK", "delay": {"$gt": 30}}, sort=(("delay", -1),), limit=20))
    assert (explanation.match, explanation.reason, explanation.cacheable) == ("exact", None, True)
    assert explanation.index == "hash on origin"
    assert explanation.window.startswith("the first 20 in order")


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        (
            {"$or": [{"a": 1, "b": 2}, {"c": {"$gte": 3, "$lt": 4}}]},
            "hash on a (hash on b if less crowded) or interval on c",
        ),
        ({"$or": [{"a": 1, "b": 2}, {"a": 1, "b": 3}]}, "hash on a (hash on b if less crowded)"),
        ({"tags": {"$all": ["x", "y"]}}, "hash on tags"),
        ({"note": {"$regex": "^Left.*right.*wrong"}}, "prefix on note (text in note if less crowded)"),
        ({"note": {"$regex": "(?=.*left)(?=.*right)"}}, "text in note"),
        ({"note": {"$regex": "МОСКВА", "$options": "i"}}, "text in note"),
        ({"note": {"$regex": "^[0-9]+$"}}, "type of note"),
        ({"a": {"$gt": {"b": 1}}}, "existence of a"),
        ({"$or": [{"a": 1}, {"b": {"$not": {"$size": 3}}}]}, "always try"),
    ],
)
def test_it_names_every_index_by_which_a_filter_may_be_found(condition: dict[str, object], index: str) -> None:
    assert explain(find(condition)).index == index


@pytest.mark.parametrize(
    ("condition", "requires"),
    [
        ({"a": 5, "b": {"$not": {"$size": 3}}}, "a is 5"),
        ({"a": {"$in": ["x", None]}}, "a is 'x' or null"),
        ({"a": {"$gte": 3, "$lt": 9}}, "a is at least 3 and at most 9"),
        ({"note": {"$regex": "xkcd$"}}, "note holds 'xkcd'"),
        ({"note": {"$regex": "Left|Right", "$options": "i"}}, "note holds 'left' in any case or 'right' in any case"),
        ({"note": {"$regex": "^N5"}}, "note begins with 'N5'"),
        ({"a": {"$not": {"$gte": 7}}, "b": {"$ne": 1}}, "a has no value above 7"),
        ({"a": {"$nin": [1, 2]}}, "a is not 1 or 2"),
        ({"$nor": [{"a": {"$exists": True}}]}, "a is not there"),
        ({"a": {"$size": 3}}, "a is an array of 3"),
        ({"a": {"$mod": [4, 1]}}, "a is 1 modulo 4"),
        ({"a": {"$type": "string"}}, "a is of type string"),
        ({"$expr": {"$and": [{"$eq": ["$a", 5]}, {"$gt": ["$b", "$c"]}]}}, "a is 5"),
        ({"a": {"$elemMatch": {"$ne": 1}}}, "a is of type array"),
        ({"$or": [{"a": 1}, {"b": {"$regex": "end$"}}]}, "a is 1 or b holds 'end'"),
        ({"$or": [{"a": 1, "b": 2}, {"c": 3}]}, "a is 1 or c is 3"),
        ({"note": {"$regex": "МОСКВА", "$options": "i"}}, "note holds 'москва' in any case"),
        ({"a": datetime.datetime(2026, 1, 1)}, "a is the value"),
        ({"a": {"$in": []}}, "no record satisfies it"),
        ({"a": {"$not": {"$size": 3}}}, None),
    ],
)
def test_it_names_the_condition_by_which_a_filter_is_found(condition: dict[str, object], requires: str | None) -> None:
    """The necessary one, also where the filter itself has no value to look for."""
    explanation = explain(find(condition))
    assert explanation.requires == requires
    assert requires is None or f"requires            {requires}" in explanation.text()
    assert json.loads(explanation.to_json())["requires"] == requires


def test_it_agrees_with_the_plan_the_node_uses() -> None:
    queries: list[Query] = [
        find({"a": 1}),
        find({"a": {"$ne": 1}}),
        count({"a": 1}),
        find({"a": 1}, collation={"locale": "de"}),
    ]
    for query in queries:
        plan, explanation = plan_query(query), explain(query)
        assert (explanation.match, explanation.reason, explanation.index) == (plan.match, plan.reason, plan.index)
        assert explanation.query_id == plan.query_id


def test_a_projection_says_which_fields_matter() -> None:
    explanation = explain(find({"status": "paid"}, projection={"name": 1}, sort=(("price", 1),)))
    assert explanation.fields == "name, price, status"
    assert "touches none of them" in explanation.text()
    assert "touches none of them" not in explain(find({"status": "paid"})).text()
    assert explain(find({"status": "paid"}, projection={"views": 0})).fields == "all but views"
    assert explain(find({"status": "paid"})).fields == "all"


def test_commands_that_capture_refuses_are_not_cacheable() -> None:
    assert explain(find({"$where": "true"})).not_cached == ("server-side-script: $where runs arbitrary code",)
    assert explain(aggregate({"$sample": {"size": 1}})).not_cached == ("random: $sample",)
    assert explain(find({"at": {"$gt": NOW}}), now_ms=NOW_MS).not_cached[0].startswith("clock:")
    assert explain(find({"at": {"$gt": NOW}}), now_ms=NOW_MS + 86_407_000).cacheable


@pytest.mark.parametrize(
    "value",
    [
        NOW + datetime.timedelta(seconds=7, milliseconds=250),
        NOW - datetime.timedelta(hours=3) + datetime.timedelta(seconds=7, milliseconds=250),
        NOW_MS // 1000 - 3600 + 7,
        str(NOW_MS - 7 * 86_400_000 + 7_250),
        bson.ObjectId.from_datetime(NOW - datetime.timedelta(seconds=23)),
        NOW.replace(minute=0),
        NOW.replace(hour=0),
        NOW.date().isoformat(),
        "12:00",
        NOW_MS // 900_000,
        datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC),
        1_500_000_007,
        "ann",
    ],
    ids=str,
)
def test_a_time_is_judged_as_capture_judges_it(value: object) -> None:
    """Followed, floored to a unit (and until when), or constant."""
    now_ms = NOW_MS + 7_250
    recorder = Recorder()
    understood = understand("find", {"find": "items", "filter": {"at": {"$gte": value}}}, "shop")
    recorder.begin(1, ReadInProgress(understood=understood, operation_id=1, primary=True, ids=[]))
    recorder.replied(1, read_at=1, ids=[], cursor=1, cursor_id=0, duration_ms=1)
    captured = recorder.outcome(now_ms)
    explained = explain(find({"at": {"$gte": value}}), now_ms=now_ms)
    assert explained.cacheable == (not captured.reasons)
    if explained.cacheable:
        assert explained.valid_until_ms == captured.valid_until_ms
        assert ("yes, until 2024-05-" in explained.text()) == (captured.valid_until_ms is not None)


def test_an_open_order_is_remarked_upon_unless_the_indexes_are_known() -> None:
    """Which fields matter then depends on them."""
    named = find({"a": 1}, projection={"name": 1})
    assert "compound indexes" in str(explain(named).remark)
    assert explain(named, indexes_known=True).remark is None
    assert explain(find({"a": 1}, projection={"name": 1}, sort=(("_id", 1),))).remark is None


def test_a_pipeline_names_what_else_it_reads() -> None:
    lookup = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "_id", "as": "maker"}}
    explanation = explain(aggregate({"$match": {"a": 1}}, lookup))
    assert (explanation.match, explanation.foreign) == ("widened", ("shop.makers",))
    assert str(explanation.reason).startswith("joined")
    assert "run again" in str(explanation.remark)
    assert "every write to shop.makers" in explanation.text()
    explanation = explain(aggregate({"$match": {"a": 1}}, lookup, {"$unwind": "$maker"}))
    assert (explanation.match, explanation.foreign) == ("widened", ("shop.makers",))
    assert "leading $match" in str(explanation.reason)


def test_it_says_what_is_kept_of_records_that_are_not_shown_as_they_are() -> None:
    computed = find({"a": 1}, projection={"big": {"$gt": ["$n", 1]}}, sort=(("_id", 1),))
    assert str(explain(computed).kept).startswith("digests of what is shown")
    assert explain(find({"a": 1}, projection={"n": 1}, sort=(("_id", 1),))).kept is None


def test_counts_recommend_pre_images() -> None:
    assert explain(count({"a": 1})).remark is not None
    assert explain(find({"a": 1})).remark is None


def test_a_limit_without_a_sort_says_what_decides_who_is_shown() -> None:
    explanation = explain(find({"a": 1}, limit=3))
    assert explanation.window.startswith("any 3 of the matching records, all of them while there are no more")
    assert "compound indexes" in str(explanation.remark)
    hidden = explain(find({"a": 1}, limit=3, projection={"_id": 0}))
    assert str(hidden.kept).startswith("ids of the matching records")


def test_records_that_are_named_are_no_window() -> None:
    """Neither does anything have to be kept, nor do indexes or pre-images matter."""
    for projection in (None, {"_id": 0}, {"name": 1}):
        explanation = explain(find({"_id": 5}, limit=1, projection=projection))
        assert explanation.window == "all matching records, at most 1 by the _id that the filter names"
        assert (explanation.kept, explanation.remark) == (None, None)
    assert explain(count({"_id": 5})).remark is None


def test_windows_that_end_in_a_tie_are_remarked_upon() -> None:
    assert "_id" in str(explain(find({"a": 1}, sort=(("b", 1),), limit=5)).remark)
    assert explain(find({"a": 1}, sort=(("b", 1), ("_id", 1)), limit=5)).remark is None


def test_both_forms_carry_the_same_facts() -> None:
    explanation = explain(find({"$expr": {"$gt": ["$a", "$b"]}}))
    assert json.loads(explanation.to_json())["index"] == "always try"
    assert "always try" in explanation.text()
    assert "find on shop.items" in explanation.text()


def test_a_query_that_follows_the_clock_says_when_it_goes_stale() -> None:
    """Or why that cannot be known: then the answer is not cached."""
    late = {"$expr": {"$gt": [{"$subtract": ["$$NOW", "$at"]}, 172_800_000]}}
    explained = explain(find(late), now_ms=NOW_MS)
    assert explained.cacheable
    assert explained.match == "exact"
    assert "goes stale by the clock at the first instant" in explained.text()
    assert "at passes now - 2 d" in explained.text()
    refused = explain(find({"$expr": {"$gt": [{"$year": "$$NOW"}, "$year"]}}), now_ms=NOW_MS)
    assert not refused.cacheable
    assert "the clock in $year of $expr" in refused.text()
