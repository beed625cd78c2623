"""Fields that matter, against a real mongod: an update that leaves them alone leaves the answer of the pipeline alone.

Pipelines are put together from stages at random, so that fields are computed, renamed, hidden and replaced on the way.
"""

from __future__ import annotations

import random
from typing import Any

import bson
import pymongo
import pytest
from pymongo.errors import OperationFailure, WriteError

from quaestor.invalidation.ingest.change_events import STAGES, after_images
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import Operation, Query
from quaestor.planning.plan import plan_query
from quaestor.planning.relevant_fields import ALL

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8)))
PIPELINES = 120
UPDATES = 4

_ROWS: tuple[dict[str, Any], ...] = (
    {"$set": {"x": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}},
    {"$set": {"b.x": "$a.c", "n": {"$size": {"$ifNull": ["$list", []]}}}},
    {"$addFields": {"a": {"c": "$b.c"}}},
    {"$project": {"a": 1, "n": 1}},
    {"$project": {"b": {"c": 1}, "w": "$n", "list.c": 1}},
    {"$project": {"a": 0}},
    {"$project": {"b": {"c": 0}}},
    {"$project": {"n": "$a.c", "_id": 0}},
    {"$project": {"list": {"$slice": [{"$ifNull": ["$list", []]}, 1]}, "a.b": 1}},
    {"$unset": ["b.c", "n"]},
    {"$unset": "list"},
    {"$unwind": "$list"},
    {"$unwind": {"path": "$list", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": True}},
    {"$match": {"n": {"$gt": 1}}},
    {"$match": {"a.b": {"$exists": True}}},
    {"$match": {"$expr": {"$gt": ["$n", "$b.c"]}}},
    {"$sort": {"n": 1, "_id": 1}},
    {"$sort": {"list.c": -1, "_id": 1}},
    {"$sort": {"_id": 1}},
    {"$limit": 5},
    {"$skip": 2},
    {"$setWindowFields": {"partitionBy": "$b.c", "sortBy": {"_id": 1}, "output": {"n": {"$sum": "$a.b"}}}},
    {"$setWindowFields": {"sortBy": {"n": 1, "_id": 1}, "output": {"x": {"$shift": {"output": "$b.c", "by": 1}}}}},
    {"$fill": {"sortBy": {"_id": 1}, "output": {"n": {"method": "locf"}, "x": {"value": "$a.c"}}}},
    {"$replaceRoot": {"newRoot": {"_id": "$_id", "n": "$a.b", "b": "$b"}}},
    {"$replaceWith": {"$mergeObjects": [{"z": 1}, {"$cond": [{"$eq": [{"$type": "$b"}, "object"]}, "$b", {}]}]}},
)
_ENDS: tuple[tuple[dict[str, Any], ...], ...] = (
    (),
    (),
    ({"$group": {"_id": "$n", "k": {"$sum": 1}, "m": {"$max": "$a.b"}}},),
    ({"$group": {"_id": {"a": "$a.c", "b": "$b"}, "l": {"$push": "$list.c"}}},),
    ({"$sort": {"n": 1, "_id": 1}}, {"$group": {"_id": None, "f": {"$first": "$b.c"}, "l": {"$last": "$$ROOT.n"}}}),
    ({"$group": {"_id": None, "t": {"$top": {"sortBy": {"n": 1, "_id": 1}, "output": ["$a", "$_id"]}}}},),
    ({"$group": {"_id": "$x", "t": {"$maxN": {"input": "$b.c", "n": 2}}}},),
    ({"$group": {"_id": None, "n": {"$count": {}}}},),
    ({"$set": {"x": {"$ifNull": ["$n", "$a.b"]}}}, {"$group": {"_id": "$x", "k": {"$sum": 1}}}),
    ({"$sort": {"n": -1, "_id": 1}}, {"$limit": 3}, {"$group": {"_id": None, "l": {"$push": "$b.c"}}}),
    ({"$replaceWith": {"q": "$a.c"}}, {"$group": {"_id": "$q", "k": {"$sum": 1}}}),
    ({"$sortByCount": "$a.b"},),
    ({"$count": "n"},),
    ({"$bucket": {"groupBy": {"$ifNull": ["$n", 0]}, "boundaries": [0, 2, 4], "default": "-"}},),
    ({"$bucketAuto": {"groupBy": "$n", "buckets": 2, "output": {"s": {"$avg": "$b.c"}}}},),
    (
        {
            "$facet": {
                "a": [{"$sortByCount": "$n"}, {"$sort": {"_id": 1}}],
                "b": [{"$match": {"b.c": 1}}, {"$count": "n"}],
            }
        },
    ),
)


def _record(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if rng.random() < 0.8:
        made["n"] = rng.randrange(5)
    if rng.random() < 0.8:
        made["a"] = rng.choice([1, {"b": 1}, {"b": 2, "c": 3}, [{"b": 1}, {"c": 2}]])
    if rng.random() < 0.8:
        made["b"] = rng.choice([None, {"c": rng.randrange(4)}, {"c": 1, "d": 2}, 7])
    if rng.random() < 0.8:
        made["list"] = rng.choice([[], [1, 2], [{"c": 1}, {"c": 2, "d": 1}], {"c": 3}])
    made["other"] = rng.randrange(9)
    return made


def _pipeline(rng: random.Random) -> list[dict[str, Any]]:
    rows = rng.sample(_ROWS, rng.randrange(4))
    return [{"$match": rng.choice([{}, {"n": {"$lt": 4}}])}, *rows, *rng.choice(_ENDS)]


def _update(rng: random.Random) -> dict[str, Any]:
    path = rng.choice(["n", "a", "a.b", "a.c", "b.c", "b.d", "list", "list.0.c", "list.1.d", "other", "b.e", "a.0.z"])
    kind = rng.random()
    if kind < 0.7:
        return {"$set": {path: rng.choice([rng.randrange(9), {"c": 9}, [{"c": 5}]])}}
    if kind < 0.85:
        return {"$unset": {path: 1}}
    return {"$rename": {path: "moved"}} if "0" not in path and "1" not in path else {"$inc": {"other": 1}}


@pytest.mark.parametrize("seed", SEEDS)
def test_an_update_that_leaves_them_alone_leaves_the_answer_alone(mongo_url: str, prefix: str, seed: int) -> None:
    rng = random.Random(seed)
    notified = 0
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        try:
            records = database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
            records.insert_many([{"_id": key, **_record(rng)} for key in range(12)])
            with records.watch(
                list(STAGES), full_document="required", full_document_before_change="required"
            ) as stream:
                for _ in range(PIPELINES):
                    stages = _pipeline(rng)
                    query = Query(
                        namespace=f"{prefix}.c", operation=Operation.AGGREGATE, filter={}, pipeline=tuple(stages)
                    )
                    fields = plan_query(query).relevant.fields
                    if fields != ALL:
                        notified += sum(
                            _judged(records, stream, stages, fields, _update(rng), rng) for _ in range(UPDATES)
                        )
        finally:
            client.drop_database(prefix)
    assert notified > PIPELINES / 2


def _judged(records: Any, stream: Any, stages: Any, fields: Any, update: Any, rng: random.Random) -> bool:
    """Run, update, run again. Returns whether the update was said to leave the answer alone."""
    answer = _answer(records, stages)
    try:
        if not records.update_one({"_id": rng.randrange(12)}, update).modified_count:
            return False
    except WriteError:
        return False
    (image,) = after_images(stream.next(), records=RecordSource.IMAGES)
    assert image.changed is not None
    assert image.before is not None
    assert image.after is not None
    untouched, same = fields.untouched(image.changed), fields.same(image.before, image.after)
    if untouched or same:
        assert _answer(records, stages) == answer, (stages, update, image.changed, fields)
    assert same or not untouched, "what is not touched does not differ"
    return bool(untouched)


def _answer(records: Any, stages: Any) -> list[bytes] | str:
    try:
        return sorted(bson.encode(document) for document in records.aggregate(stages))
    except OperationFailure as failure:
        return str(failure.code)
