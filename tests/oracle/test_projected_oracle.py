"""Projected results against a real mongod: two records count as alike exactly if the database shows them alike."""

from __future__ import annotations

import itertools
import random
from typing import Any

import bson
import pymongo
import pytest

from quaestor.model import Document, Operation, Query
from quaestor.planning.projected import shown_by, shows_same

RECORDS = 60
PROJECTIONS: tuple[dict[str, Any], ...] = (
    {"a": 1},
    {"a": {"b": 1}},
    {"a": {"b": 0, "c": 0}},
    {"a.b": 1, "c": 1, "_id": 0},
    {"list": {"$slice": 1}},
    {"list": {"$slice": -2}},
    {"list": {"$slice": 0}, "c": 1},
    {"list": {"$slice": [1, 1]}},
    {"list": {"$slice": [-2, 1]}, "a": 0},
    {"list": {"$slice": [-9, 2]}, "a.b": 1},
    {"list": {"$elemMatch": {"b": 1}}},
    {"list": {"$elemMatch": {"$gt": 1}}, "c": 1},
    {"list": {"$elemMatch": {"b": {"$gte": 1}, "d": None}}, "a.b": 1},
    {"_id": 0, "list": {"$slice": 1}},
    {"_id": 1, "list": {"$elemMatch": {"b": 1}}},
    {"_id": 0, "list": {"$elemMatch": {"b": 1}}},
    {"list": {"$slice": 1}, "a.b": 0},
    {"c": 1, "list": {"$slice": 1}, "a": {"$elemMatch": {"b": 1}}},
    {"a.b": 1, "_id": 0, "list": {"$slice": 1}},
    {"big": {"$gt": ["$c", 2]}},
    {"c": "$a.b", "list": {"b": 1}},
)
PIPELINES: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"$project": {"a.b": 1, "c": 1}},),
    ({"$project": {"big": {"$gt": ["$c", 2]}, "n": {"$size": {"$cond": [{"$isArray": "$list"}, "$list", []]}}}},),
    ({"$set": {"c": {"$mod": ["$c", 2]}}}, {"$unset": ["a", "list"]}),
    ({"$addFields": {"n": {"$cond": [{"$isArray": "$list"}, {"$size": "$list"}, -1]}}}, {"$project": {"n": 1}}),
    ({"$set": {"a": "$c"}}, {"$project": {"list": 0, "c": 0}}),
    ({"$unset": "c"},),
)
NOT_EVALUATED: tuple[dict[str, Any], ...] = (
    {"list.$": 1},
    {"score": {"$meta": "textScore"}},
    {"_id": 1, "list": {"$slice": 1}},
    {"c": 0, "list": {"$elemMatch": {"b": 1}}},
    {"list": {"$slice": 2}, "a": {"$elemMatch": {"b": 1}}},
    {"list": {"$slice": 1}, "big": {"$gt": ["$c", 2]}},
    {"a": {"list": {"$slice": 1}}, "c": 1},
    {"a": {"b": 1}, "list": {"$slice": 1}},
)


def record(rng: random.Random, key: int) -> dict[str, Any]:
    elements: list[Any] = [1, 2, 3, "x", None, {"b": 1}, {"b": 1, "d": 2}, {"b": 2}, [1, 2], [{"b": 1}]]
    made: dict[str, Any] = {"_id": key, "c": rng.randrange(5)}
    if rng.random() < 0.8:
        made["a"] = rng.choice([1, {"b": 1}, {"b": 1, "c": 2}, {"b": 2}, [{"b": 1}, {"c": 1}], [{"b": 1}, 3], {}])
    if rng.random() < 0.9:
        made["list"] = rng.choice([rng.choices(elements, k=rng.randrange(5)), 7, {"b": 1}])
    return made


@pytest.mark.parametrize("projection", PROJECTIONS, ids=str)
def test_records_look_alike_as_the_database_shows_them(mongo_url: str, prefix: str, projection: dict[str, Any]) -> None:
    rng = random.Random(str(projection))
    made = [record(rng, key) for key in range(RECORDS)]
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        try:
            client[prefix].records.insert_many(made)
            shown = list(client[prefix].records.find({}, projection).sort("_id"))
        finally:
            client.drop_database(prefix)
    _compare(_query(projection=projection), (), made, shown)


@pytest.mark.parametrize("stages", PIPELINES, ids=str)
def test_records_look_alike_as_a_pipeline_dresses_them(
    mongo_url: str, prefix: str, stages: tuple[dict[str, Any], ...]
) -> None:
    rng = random.Random(str(stages))
    made = [record(rng, key) for key in range(RECORDS)]
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        try:
            client[prefix].records.insert_many(made)
            shown = list(client[prefix].records.aggregate([{"$sort": {"_id": 1}}, *stages]))
        finally:
            client.drop_database(prefix)
    _compare(_query(operation=Operation.AGGREGATE, pipeline=stages), stages, made, shown)


def _query(**rest: Any) -> Query:
    return Query(**{"namespace": "shop.records", "operation": Operation.FIND, "filter": {}} | rest)


def _compare(query: Query, shaping: tuple[Document, ...], made: list[dict[str, Any]], shown: list[Document]) -> None:
    encoded = shown_by(query, shaping)
    assert encoded
    alike = 0
    for (first_query, seen), (other, seen_too) in itertools.combinations(zip(made, shown, strict=True), 2):
        same = _of_one_id(seen) == _of_one_id(seen_too)
        assert shows_same(encoded, first_query | {"_id": 0}, other | {"_id": 0}) == same, (
            first_query,
            other,
            seen,
            seen_too,
        )
        alike += same
    assert alike


def _of_one_id(shown: Document) -> bytes:
    return bson.encode({name: value for name, value in shown.items() if name != "_id"})


def test_projections_that_are_not_evaluated_are_known() -> None:
    """A position depends on the filter, a score on all of the collection, a join on other records; what other mixtures show the
    manual does not say."""
    for projection in NOT_EVALUATED:
        assert shown_by(_query(projection=projection)) is None
    join = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "_id", "as": "o"}}
    assert shown_by(_query(operation=Operation.AGGREGATE, pipeline=(join,)), (join,)) is None
