"""The aggregation stage: groups from contributions that can be taken away again, remembered or read off before-images."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Int64

from quaestor.incremental import PriorState, bootstrap_queries
from quaestor.model import AfterImage, Operation, Query, WriteKind
from tests.unit.matching.maintained.scene import NAMESPACE, Record, Scene, aggregate, count, event_rows

GROUP = {"$group": {"_id": "$g", "n": {"$sum": "$n"}, "least": {"$min": "$n"}, "most": {"$max": "$n"}}}
ways = pytest.mark.parametrize("before_images", [False, True], ids=["membership", "before-images"])


def record(key: int, group: str, number: Any) -> Record:
    return {"_id": key, "g": group, "n": number}


def compact(*rows: tuple[Any, list[Any], int]) -> list[Record]:
    """Return the database's answer to a query for contributions: group, values, number of records."""
    kinds = {int: "int", str: "string", type(None): "null"}
    return [
        {"_id": {"v": [group, *values], "t": [kinds[type(part)] for part in (group, *values)]}, "n": n}
        for group, values, n in rows
    ]


@ways
def test_a_record_that_changes_its_group_changes_both(before_images: bool) -> None:
    initial = [record(1, "a", 5), record(2, "a", 7)]
    read = compact(("a", [5, 5, 5], 1), ("a", [7, 7, 7], 1)) if before_images else initial
    scene = Scene(aggregate(GROUP), initial, read=read, before_images=before_images)
    assert scene.shown() == [{"_id": "a", "n": 12, "least": 5, "most": 7}]
    assert event_rows(scene.put(2, g="b", n=7)) == [("change", "a", None, None), ("add", "b", None, None)]
    assert event_rows(scene.put(1, g="b", n=5)) == [("remove", "a", None, None), ("change", "b", None, None)]
    assert scene.shown() == [{"_id": "b", "n": 12, "least": 5, "most": 7}]


@ways
def test_least_and_most_survive_the_removal_of_the_extreme(before_images: bool) -> None:
    scene = Scene(aggregate(GROUP), before_images=before_images)
    for key, number in enumerate([3, 1, 4, 1, 5]):
        scene.put(key, g="a", n=number)
    scene.delete(4)
    assert scene.shown() == [{"_id": "a", "n": 9, "least": 1, "most": 4}]
    scene.delete(1)
    assert scene.shown() == [{"_id": "a", "n": 8, "least": 1, "most": 4}], "there was another 1"
    scene.delete(3)
    assert scene.shown() == [{"_id": "a", "n": 7, "least": 3, "most": 4}]


def test_contributions_are_remembered_only_without_before_images() -> None:
    for before_images, remembered in ((False, 100), (True, 0)):
        scene = Scene(aggregate(GROUP), before_images=before_images)
        for key in range(100):
            scene.put(key, g="a", n=key)
        assert scene.maintained.remembered == remembered


def test_a_count_over_millions_begins_with_one_row() -> None:
    """By before-images nothing has to be read but the number."""
    query = count(filter={"n": {"$gt": 0}})
    (bootstrap,) = bootstrap_queries(query, prior_state=PriorState.BEFORE_IMAGES)
    assert bootstrap.operation is Operation.AGGREGATE
    assert list(bootstrap.pipeline[-1]) == ["$group"]
    scene = Scene(query, [{"_id": 1, "n": 3}], read=compact((None, [1], 5_000_000)), before_images=True)
    assert scene.shown() == [5_000_000]
    events = scene.delete(1)
    assert [(event.document, event.match_type.value) for event in events] == [(4_999_999, "change")]
    assert scene.put(2, n=-1) == []


@ways
def test_the_count_of_nothing_is_zero(before_images: bool) -> None:
    scene = Scene(count(filter={"n": 1}), before_images=before_images)
    assert scene.shown() == [0]
    assert [event.document for event in scene.put(1, n=1)] == [1]
    assert [event.document for event in scene.delete(1)] == [0]


@ways
def test_a_count_knows_its_limit_and_offset(before_images: bool) -> None:
    scene = Scene(count(skip=1, limit=2), before_images=before_images)
    assert [[event.document for event in scene.put(key)] for key in range(4)] == [[], [1], [2], []]
    assert scene.shown() == [2]


@ways
def test_distinct_values_stay_as_long_as_anybody_has_them(before_images: bool) -> None:
    query = Query(namespace=NAMESPACE, operation=Operation.DISTINCT, filter={}, distinct_key="tags")
    scene = Scene(query, before_images=before_images)
    assert event_rows(scene.put(1, tags=["x", "y", "x"])) == [("add", "x", None, None), ("add", "y", None, None)]
    assert scene.put(2, tags="x") == []
    assert event_rows(scene.delete(1)) == [("remove", "y", None, None)]
    assert event_rows(scene.put(2, tags=[None])) == [("remove", "x", None, None), ("add", None, None, None)]
    assert scene.shown() == [None]


@ways
def test_groups_come_and_go_by_the_condition_behind_them(before_images: bool) -> None:
    """HAVING."""
    scene = Scene(aggregate(GROUP, {"$match": {"n": {"$gte": 10}}}), before_images=before_images)
    assert scene.put(1, g="a", n=6) == []
    assert event_rows(scene.put(2, g="a", n=6)) == [("add", "a", None, None)]
    assert event_rows(scene.put(2, g="a", n=1)) == [("remove", "a", None, None)]


@ways
def test_groups_are_ordered_limited_and_shaped(before_images: bool) -> None:
    scene = Scene(
        aggregate(GROUP, {"$sort": {"n": -1}}, {"$limit": 2}, {"$project": {"n": 1}}), before_images=before_images
    )
    for key, (group, number) in enumerate([("a", 1), ("b", 2), ("c", 3)]):
        scene.put(key, g=group, n=number)
    assert scene.shown() == [{"_id": "c", "n": 3}, {"_id": "b", "n": 2}]
    assert event_rows(scene.put(9, g="a", n=5)) == [("remove", "b", None, 1), ("add", "a", 0, None)]
    assert event_rows(scene.put(9, g="b", n=5)) == [("remove", "a", None, 0), ("add", "b", 0, None)], "the net effect"


@ways
def test_the_first_and_the_last_under_a_sort(before_images: bool) -> None:
    scene = Scene(
        aggregate(
            {"$sort": {"n": 1}},
            {"$group": {"_id": "$g", "first": {"$first": "$n"}, "last": {"$last": "$n"}, "all": {"$push": "$n"}}},
        ),
        before_images=before_images,
    )
    for key, number in enumerate([5, 3, 8]):
        scene.put(key, g="a", n=number)
    assert scene.shown() == [{"_id": "a", "first": 3, "last": 8, "all": [3, 5, 8]}]
    scene.delete(1)
    scene.put(2, g="a", n=1)
    assert scene.shown() == [{"_id": "a", "first": 1, "last": 5, "all": [1, 5]}]


def test_sums_have_the_widest_type_among_what_is_left() -> None:
    scene = Scene(aggregate({"$group": {"_id": None, "n": {"$sum": "$n"}}}))
    seen = []
    for key, number in enumerate([1, Int64(2), 0.5, Decimal128("0.10")]):
        scene.put(key, n=number)
        seen.append(scene.shown()[0]["n"])
    assert seen == [1, Int64(3), 3.5, Decimal128("3.60")]
    assert [type(number) for number in seen] == [int, Int64, float, Decimal128]
    scene.delete(3)
    scene.delete(2)
    assert type(scene.shown()[0]["n"]) is Int64
    scene.delete(1)
    assert type(scene.shown()[0]["n"]) is int


def test_a_record_added_and_removed_leaves_no_error() -> None:
    scene = Scene(aggregate({"$group": {"_id": None, "n": {"$sum": "$n"}, "mean": {"$avg": "$n"}}}))
    scene.put(1, n=0.1)
    for number in (1e300, 1e-300, -3e17, float("inf"), float("nan")):
        scene.put(2, n=number)
    scene.delete(2)
    assert scene.shown() == [{"_id": None, "n": 0.1, "mean": 0.1}]


def test_a_change_that_nothing_accumulates_makes_no_event() -> None:
    scene = Scene(aggregate(GROUP), [record(1, "a", 5)])
    assert scene.put(1, g="a", n=5, other=1) == []


def test_missing_and_null_are_one_group() -> None:
    scene = Scene(aggregate({"$sortByCount": "$g"}), [{"_id": 1}, {"_id": 2, "g": None}])
    assert scene.shown() == [{"_id": None, "count": 2}]


def test_a_before_image_of_what_was_never_counted_asks_for_a_renewal() -> None:
    """A write was missed: better no answer than a wrong one."""
    scene = Scene(aggregate(GROUP), before_images=True)
    scene.state[NAMESPACE, 1] = record(1, "a", 5)
    assert scene.delete(1) == []
    assert scene.maintained.renewal is not None
    assert scene.maintained.renew([], scene.version) == []
    assert scene.maintained.renewal is None


def test_an_expression_that_fails_the_query_there_makes_the_result_stand_still() -> None:
    scene = Scene(aggregate({"$group": {"_id": None, "n": {"$sum": {"$divide": [1, "$n"]}}}}), [{"_id": 1, "n": 2}])
    assert scene.put(2, n=0) == []
    request = scene.maintained.renewal
    assert request is not None
    assert "divide by zero" in request.reason
    assert scene.shown() == [{"_id": None, "n": 0.5}]
    assert scene.maintained.renew([{"_id": 1, "n": 2}, {"_id": 2, "n": 0}], scene.version) == []
    assert scene.maintained.renewal is not None, "it still fails there"
    scene.put(2, n=4)
    events = scene.maintained.renew([{"_id": 1, "n": 2}, {"_id": 2, "n": 4}], scene.version)
    assert [event.document["n"] for event in events] == [0.75]


def test_records_that_a_renewal_has_read_are_not_counted_again() -> None:
    scene = Scene(count(), before_images=True)
    late = scene.image(1, {})
    scene.maintained.apply(AfterImage(namespace="*", kind=WriteKind.GAP, version=scene.version))
    scene.maintained.renew(compact((None, [1], 1)), scene.version)
    assert scene.maintained.apply(late) == []
    assert scene.shown() == [1]


def test_missing_values_begin_as_missing() -> None:
    """Contributions are read inside arrays, where the database writes null for missing; the type tells them apart."""
    stage = {"$group": {"_id": None, "set": {"$addToSet": "$x"}}}
    read = [{"_id": {"v": [None, None], "t": ["null", "missing"]}, "n": 2}]
    scene = Scene(aggregate(stage), [{"_id": 1}, {"_id": 2}], read=read, before_images=True)
    assert scene.shown() == [{"_id": None, "set": []}]
    scene.put(3, x=None)
    assert scene.shown() == [{"_id": None, "set": [None]}]
