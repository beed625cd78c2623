"""Which queries can be maintained, and why others cannot."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.incremental import plan_maintenance, unambiguous
from quaestor.model import Operation, Query
from tests.unit.matching.maintained.scene import aggregate, count, find

GROUP = {"$group": {"_id": "$a", "n": {"$sum": 1}}}
LOOKUP = {"$lookup": {"from": "others", "localField": "a", "foreignField": "b", "as": "j"}}


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ([{"$sample": {"size": 1}}], r"the stage \$sample is not maintained"),
        ([{"$facet": {}}], r"\$facet"),
        ([{"$limit": 3}, GROUP], r"\$group after a \$limit"),
        ([{"$limit": 3}, {"$match": {"a": 1}}], r"\$match after a \$limit"),
        ([{"$limit": 3}, {"$unwind": "$a"}], r"\$unwind after a \$limit"),
        ([{"$limit": 3}, {"$sort": {"a": 1}}], r"\$sort after a \$limit"),
        ([{"$sort": {"a": 1}}, {"$unwind": "$b"}], r"\$unwind behind a \$sort"),
        ([{"$sort": {"j": 1}}, {"$limit": 1}, LOOKUP], "which the \\$sort before it reads"),
        ([{"$group": {"_id": 1, "x": {"$first": "$a"}}}], r"\$first without a \$sort"),
        ([{"$group": {"_id": 1, "x": {"$stdDevPop": "$a"}}}], r"the accumulator \$stdDevPop is not maintained"),
        ([{"$project": {"a.b": {"$add": [1, 1]}}}], "computes the embedded field"),
        ([{"$set": {"a.b": 1}}], "embedded fields"),
        ([{"$lookup": {"from": "o", "as": "j", "pipeline": [{"$group": {"_id": 1}}]}}], "in the pipeline of a"),
        ([{"$lookup": {"from": {"db": "x", "coll": "y"}, "as": "j", "pipeline": []}}], "another database"),
        ([{"$project": {"a": "$$NOW"}}], "changes without any write"),
    ],
)
def test_unsupported_stages_are_refused_with_the_reason(stages: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        plan_maintenance(aggregate(*stages))


@pytest.mark.parametrize(
    "query",
    [
        find(widened="by hand"),
        find(collation={"locale": "de"}),
        find(let={"x": 1}),
        find(sort=(("$natural", 1),)),
        find(projection={"a": {"$slice": 1}}),
        find(filter={"loc": {"$near": [0, 0]}}),
        count(filter={"$where": "true"}),
    ],
    ids=lambda query: str(
        query.widened or query.collation or query.let or query.sort or query.projection or query.filter
    ),
)
def test_so_are_finds_that_depend_on_more_than_their_records(query: Query) -> None:
    with pytest.raises(UnsupportedQueryError):
        plan_maintenance(query)


@pytest.mark.parametrize(
    "stages",
    [
        [{"$limit": 0}],
        [{"$skip": -1}],
        [{"$limit": True}],
        [{"$group": {"n": {"$sum": 1}}}],
        [{"$group": {"_id": 1, "n": 1}}],
        [{"$group": {"_id": 1, "n.m": {"$sum": 1}}}],
        [{"$group": {"_id": 1, "n": {"$sum": [1, 2]}}}],
        [{"$group": {"_id": 1, "n": {"$count": 1}}}],
        [{"$count": "$n"}],
        [{"$sort": {}}],
        [{"$unwind": "a"}],
        [{"$unwind": {"path": "$a", "extra": 1}}],
        [{"$project": {}}],
        [{"$project": {"a": 1, "b": 0}}],
        [{"$project": {"a": 1, "a.b": 1}}],
        [{"$lookup": {"from": "o", "as": "j"}}],
        [{"$lookup": {"from": "o", "localField": "a", "foreignField": "b"}}],
        [{"$match": {"a": 1}, "$sort": {"a": 1}}],
        [{"$match": {"loc": {"$near": [0, 0]}}}],
        ["$match"],
    ],
    ids=repr,
)
def test_pipelines_that_the_database_refuses_are_malformed(stages: list[Any]) -> None:
    with pytest.raises(MalformedQueryError):
        plan_maintenance(aggregate(*stages))


def test_limit_and_skip_compose() -> None:
    window = plan_maintenance(aggregate({"$limit": 10}, {"$skip": 3}, {"$limit": 20}, {"$skip": 2})).window
    assert window is not None
    assert (window.skip, window.limit) == (5, 5)


@pytest.mark.parametrize(
    ("stages", "sliding"),
    [
        ([{"$sort": {"a": 1}}, {"$limit": 3}, {"$project": {"a": 1}}], True),
        ([{"$sort": {"a": 1}}, {"$limit": 3}, LOOKUP], True),
        ([LOOKUP, {"$sort": {"a": 1}}, {"$limit": 3}], True),
        ([LOOKUP, {"$limit": 3}], True),
        ([GROUP, {"$sort": {"a": 1}}, {"$limit": 3}], False),
        ([LOOKUP, {"$sort": {"j.b": 1}}, {"$limit": 3}], False),
        ([LOOKUP, {"$match": {"j.b": 1}}, {"$sort": {"a": 1}}, {"$limit": 3}], False),
        ([LOOKUP, {"$unwind": "$j"}, {"$sort": {"a": 1}}, {"$limit": 3}], False),
        ([LOOKUP, {"$sort": {"a": 1}}, {"$skip": 3}], False),
    ],
)
def test_windows_in_the_order_of_the_records_slide(stages: list[dict[str, Any]], sliding: bool) -> None:
    """A window knows a stretch of the records, also behind joins, unless another stage decides order or number of the rows."""
    assert plan_maintenance(aggregate(*stages)).sliding is sliding


def test_every_order_is_made_unambiguous_by_id() -> None:
    assert unambiguous(find(sort=(("a", -1),))).sort == (("a", -1), ("_id", 1))
    assert unambiguous(find(sort=(("_id", -1), ("a", 1)))).sort == (("_id", -1), ("a", 1))
    assert unambiguous(find(limit=1)).sort == (("_id", 1),)
    assert unambiguous(find()).sort == ()
    assert unambiguous(aggregate({"$limit": 1})).pipeline == ({"$sort": {"_id": 1}}, {"$limit": 1})
    assert unambiguous(aggregate({"$sortByCount": "$a"})).pipeline[-1] == {"$sort": {"count": -1, "_id": 1}}
    assert unambiguous(aggregate({"$sort": {"a": 1}}, {"$skip": 1})).pipeline[0] == {"$sort": {"a": 1, "_id": 1}}


def test_views_of_the_plan_name_every_collection() -> None:
    plan = plan_maintenance(aggregate(LOOKUP))
    assert plan.namespaces == {"db.things", "db.others"}
    assert plan.query.operation is Operation.AGGREGATE
