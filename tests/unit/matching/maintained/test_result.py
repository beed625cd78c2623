"""A maintained result reports the writes that it needs, and the writes that it can do without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.errors import UnsupportedQueryError
from quaestor.incremental import bootstrap_queries, maintain
from quaestor.model import AfterImage, Query, WriteKind
from tests.unit.matching.maintained.scene import NAMESPACE, Scene, aggregate, count, event_rows, find

LOOKUP = {"$lookup": {"from": "others", "localField": "ref", "foreignField": "fk", "as": "j"}}


@pytest.mark.parametrize(
    "query",
    [
        find(filter={"n": 1}),
        find(filter={"n": 1}, sort=(("m", 1),), limit=2),
        count(filter={"n": 1}),
        aggregate({"$match": {"n": 1}}, {"$group": {"_id": "$m"}}),
        aggregate({"$match": {"n": 1}}, {"$set": {"m": 1}}, LOOKUP),
        aggregate({"$match": {"n": 1}}, {"$unwind": {"path": "$m", "preserveNullAndEmptyArrays": True}}),
    ],
    ids=["find", "window", "count", "group", "join", "unwind"],
)
def test_held_records_are_those_that_a_removal_would_change(query: Query) -> None:
    scene = Scene(query, [{"_id": 1, "n": 1}])
    assert scene.maintained.holds(NAMESPACE, 1)
    assert not scene.maintained.holds(NAMESPACE, 2)
    assert not scene.maintained.holds("db.elsewhere", 1)
    scene.put(2, n=1)
    assert scene.maintained.holds(NAMESPACE, 2)
    scene.put(1, n=0)
    assert not scene.maintained.holds(NAMESPACE, 1)


def test_every_write_to_a_joined_collection_is_needed() -> None:
    assert Scene(aggregate(LOOKUP)).maintained.holds("db.others", 1)


def test_while_a_renewal_is_awaited_every_write_is_needed() -> None:
    scene = Scene(find(sort=(("n", 1),), limit=1), [{"_id": 1, "n": 1}, {"_id": 2, "n": 2}], slack=1)
    scene.delete(1)
    scene.delete(2)
    assert scene.maintained.renewal is not None
    assert scene.maintained.holds(NAMESPACE, 99)


def test_where_stale_images_are_dropped_earlier_no_versions_are_kept() -> None:
    """An image of a version that was read already is still recognised."""
    maintained = maintain(find(), initial=[{"_id": 1}], version=10, stale_dropped=True)
    image = AfterImage(namespace=NAMESPACE, kind=WriteKind.DELETE, version=10, key=1)
    assert maintained.apply(image) == []
    image = AfterImage(namespace=NAMESPACE, kind=WriteKind.DELETE, version=11, key=1)
    assert event_rows(maintained.apply(image)) == [("remove", 1, None, None)]


def test_text_is_matched_by_the_definition_that_the_query_carries() -> None:
    definition: dict[str, Any] = {
        "name": "w_text",
        "key": {"_fts": "text", "_ftsx": 1},
        "weights": {"w": 1},
        "default_language": "english",
        "language_override": "language",
        "textIndexVersion": 3,
    }
    filter_ = {"$text": {"$search": "running"}}
    query = find(filter=filter_, text_index=definition)
    scene = Scene(query)
    assert event_rows(scene.put(1, w="he runs")) == [("add", 1, None, None)]
    assert scene.put(2, w="he walks") == []
    (bootstrap,) = bootstrap_queries(query)
    assert bootstrap.filter == filter_, "the database takes it as it was sent"
    with pytest.raises(UnsupportedQueryError):
        bootstrap_queries(find(filter=filter_))


def test_a_write_says_what_happened_to_the_record_itself() -> None:
    scene = Scene(find(sort=(("n", 1),), limit=1), [{"_id": 1, "n": 1}])
    removed, added = scene.put(0, n=0)
    assert (removed.key, removed.operation) == (1, None), "pushed out by another"
    assert (added.key, added.operation, added.version) == (0, WriteKind.INSERT, scene.version)
    group = Scene(aggregate({"$group": {"_id": "$_id"}}))
    assert [event.operation for event in group.put(1)] == [None], "a group is no record"


@pytest.mark.parametrize(
    "query",
    [
        find(sort=(("n", 1),)),
        aggregate({"$sort": {"n": 1}}, {"$limit": 2}),
        aggregate(LOOKUP),
        aggregate({"$set": {"m": 1}}, LOOKUP, {"$unwind": "$j"}, {"$group": {"_id": "$j.v"}}),
    ],
    ids=["window", "limited pipeline", "join", "join and group"],
)
def test_results_that_hold_their_records_need_no_before_images(query: Query) -> None:
    scene = Scene(query, before_images=True)
    image = scene.image(1, {"n": 1})
    scene.maintained.apply(replace(image, before=None, before_known=False))
    assert scene.maintained.renewal is None


@pytest.mark.parametrize(
    "query",
    [
        count(),
        aggregate({"$group": {"_id": "$m"}}),
        aggregate({"$unwind": "$m"}, LOOKUP),
        aggregate({"$unwind": "$m"}, {"$group": {"_id": "$m"}}, {"$sort": {"_id": 1}}, {"$limit": 2}),
    ],
    ids=["count", "group", "unwind and join", "unwind and group"],
)
def test_results_that_hold_no_records_need_before_images(query: Query) -> None:
    scene = Scene(query, before_images=True)
    image = scene.image(1, {"n": 1, "m": [1]})
    scene.maintained.apply(replace(image, before=None, before_known=False))
    assert scene.maintained.renewal is not None
