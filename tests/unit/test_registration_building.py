"""Registrations built from replies: the members, and the end of a full window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.invalidation.registry.registration_building import dependencies, registration
from quaestor.model import CapturedRead, Document, Query, Registration
from quaestor.query.aggregation import projects
from tests.unit.matching.scene import aggregate, find

SORT = (("price", 1), ("_id", 1))
MATCH = {"$match": {"s": 1}}
PAGE = ({"$sort": {"price": 1}}, {"$limit": 2})


def registered(query: Query, *documents: Document) -> Registration:
    ids = tuple(document["_id"] for document in documents)
    read = CapturedRead(query=query, read_at=5, ids=ids, last=documents[-1])
    return registration(dependencies([read])[0], registration_id="a:1", tenant="t", since=4, expires_at_ms=9)


def last(query: Query, document: Document) -> Any:
    return registered(query, {"_id": 1}, document).last


RECORD = {"_id": 2, "price": 7, "name": "n"}


@pytest.mark.parametrize(
    "query",
    [
        find({}, sort=SORT, limit=2),
        find({}, sort=SORT, limit=2, projection={"price": 1}),
        aggregate(MATCH, *PAGE),
        aggregate(MATCH, *PAGE, {"$set": {"x": "$price"}}),
        aggregate(MATCH, *PAGE, {"$lookup": {"from": "makers", "as": "m", "localField": "a", "foreignField": "b"}}),
        aggregate(MATCH, *PAGE, {"$project": {"price": 1}}),
        aggregate(MATCH, {"$project": {"price": 1, "x": "$y"}}, {"$sort": {"price": 1, "_id": 1}}, {"$limit": 2}),
        aggregate(MATCH, *PAGE, {"$unset": ["name"]}),
    ],
)
def test_a_registration_carries_the_end_of_a_full_window(query: Query) -> None:
    assert last(query, RECORD) == {"_id": 2, "price": 7}
    assert registered(query, {"_id": 1}, RECORD).members == (1, 2)
    assert registered(query, RECORD).last is None


@pytest.mark.parametrize(
    "query",
    [
        find({}, sort=SORT, limit=2, projection={"name": 1}),
        find({}, sort=SORT, limit=2, projection={"price": 0}),
        find({}, sort=SORT, limit=2, projection={"price": {"$slice": 1}}),
        aggregate(MATCH, *PAGE, {"$set": {"price": 1}}),
        aggregate(MATCH, *PAGE, {"$set": {"price.x": 1}}),
        aggregate(MATCH, *PAGE, {"$unset": "price"}),
        aggregate(MATCH, *PAGE, {"$project": {"price": {"$add": ["$price", 1]}}}),
        aggregate(MATCH, *PAGE, {"$lookup": {"from": "x", "as": "price", "localField": "a", "foreignField": "b"}}),
    ],
)
def test_an_end_that_the_reply_does_not_show_is_not_made_up(query: Query) -> None:
    assert last(query, RECORD) is None
    assert registered(query, {"_id": 1}, RECORD).members == (1, 2)


def test_a_registration_carries_the_place_of_the_farthest_record() -> None:
    query = find({"at": {"$near": [0, 0]}}, limit=2)
    assert last(query, {"_id": 2, "at": [1, 1], "x": 1}) == {"_id": 2, "at": [1, 1]}
    assert last(find(query.filter, limit=2, projection={"x": 1}), {"_id": 2, "x": 1}) is None


def test_groups_have_no_members() -> None:
    assert registered(aggregate(MATCH, {"$group": {"_id": "$a"}}), {"_id": 1}).members is None


@pytest.mark.parametrize(
    ("projection", "field", "shown"),
    [
        (None, "a", True),
        ({"a": 1}, "a", True),
        ({"a": 1}, "b", False),
        ({"a": 0}, "a", False),
        ({"a.b": 0}, "a", False),
        ({"a": 0}, "b", True),
        ({"a": 1, "x": "$y"}, "a", True),
        ({"x": "$y"}, "a", False),
        ({"a": "$y"}, "a", False),
        ({"a": 1, "a.b": 1}, "a", False),
        ({"s": {"$meta": "textScore"}}, "a", True),
        ({"a": {"$meta": "textScore"}}, "a", False),
        ({"a": 1}, "_id", True),
        ({"_id": 0}, "_id", False),
        ({"_id": 0, "a": 1}, "_id", False),
        ({"_id": 0}, "a", True),
    ],
)
def test_fields_that_a_projection_certainly_leaves_alone(projection: Any, field: str, shown: bool) -> None:
    assert projects(projection, field) is shown


@pytest.mark.parametrize(("read_at", "expected"), [(9, 4), (4, 4), (3, 3)])
def test_a_primary_that_is_behind_the_reports_has_not_seen_their_writes(read_at: int, expected: int) -> None:
    """The primary was succeeded and does not know it yet: its answer lacks writes that the reporting cells have seen."""
    read = CapturedRead(query=find({}), read_at=read_at, ids=())
    built = registration(dependencies([read])[0], registration_id="a:1", tenant="t", since=4, expires_at_ms=9)
    assert built.since == expected


def test_two_runs_with_other_members_are_guarded_as_one_whose_members_are_not_known() -> None:
    """`find_one` without a sort may return another record each time, though nothing was written."""
    query = find({"s": 1}, limit=1)
    runs = [CapturedRead(query=query, read_at=at, ids=(at,), last={"_id": at}) for at in (6, 5, 5)]
    (dependency,) = dependencies(runs)
    assert (dependency.read.read_at, dependency.read.ids, dependency.read.last) == (5, None, None)
    (same,) = dependencies([runs[1], replace(runs[1], read_at=4)])
    assert (same.read.read_at, same.read.ids) == (4, (5,))
