"""Projections of a find, against a real mongod: two records are taken to look alike exactly if the database shows them alike."""

from __future__ import annotations

import itertools
import random
from typing import Any

import bson
import pymongo
import pytest

from quaestor.invalidation.matching.projected import shows_same
from quaestor.model import Document
from quaestor.query.encoding import OPTIONS

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
    encoded = bson.encode(projection, codec_options=OPTIONS)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        try:
            client[prefix].records.insert_many(made)
            shown = list(client[prefix].records.find({}, projection).sort("_id"))
        finally:
            client.drop_database(prefix)
    alike = 0
    for (one, seen), (other, seen_too) in itertools.combinations(zip(made, shown, strict=True), 2):
        same = _of_one_id(seen) == _of_one_id(seen_too)
        assert shows_same(encoded, one | {"_id": 0}, other | {"_id": 0}) == same, (one, other, seen, seen_too)
        alike += same
    assert alike


def _of_one_id(shown: Document) -> bytes:
    return bson.encode({name: value for name, value in shown.items() if name != "_id"})


def test_a_projection_that_is_not_evaluated_shows_no_records_alike() -> None:
    """A position depends on the filter, a score on all of the collection; what other mixtures show the manual does not say."""
    for projection in NOT_EVALUATED:
        assert not shows_same(bson.encode(projection), {"_id": 1, "n": 1}, {"_id": 1, "n": 2})
