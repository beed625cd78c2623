"""Shapes of queries that are widened, and writes to the collections that they read, for the widened shapes' oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.setups.judging.guarded import Records
from quaestor.model import Document, Operation, Query

RECORDS: Final = 60
OTHERS: Final = "others"
_NAMES: Final = ("ann", "Ann", "bob", "Bob", "bób", "co-op", "coop", "")
_GROUPS: Final = 8
_JOIN: Final = {"from": OTHERS, "localField": "ref", "foreignField": "_id", "as": "o"}


def record(rng: random.Random) -> dict[str, Any]:
    """Of either collection."""
    return {
        "g": rng.randrange(_GROUPS),
        "v": rng.randrange(12),
        "name": rng.choice(_NAMES),
        "ref": rng.randrange(RECORDS),
        "list": [rng.randrange(5) for _ in range(rng.randrange(4))],
        "views": rng.randrange(100),
    }


def contents(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Records of both collections."""
    return {name: [{"_id": key, **record(rng)} for key in range(RECORDS)] for name in ("records", OTHERS)}


def _pipeline(*stages: Document, leading: bool = True) -> Callable[[random.Random], dict[str, Any]]:
    def make(rng: random.Random) -> dict[str, Any]:
        first = ({"$match": {"g": rng.randrange(_GROUPS)}},) if leading else ()
        return {"operation": Operation.AGGREGATE, "pipeline": (*first, *stages)}

    return make


def _view(*stages: Document) -> Callable[[random.Random], dict[str, Any]]:
    """As a find on a view that computes is resolved: the view's stages, then the condition."""

    def make(rng: random.Random) -> dict[str, Any]:
        condition = {"g": rng.randrange(_GROUPS), "double": {"$gt": rng.randrange(8)}}
        return {
            "operation": Operation.AGGREGATE,
            "pipeline": (*stages, {"$match": condition}, {"$sort": {"_id": 1}}, {"$project": {"double": 1, "v": 1}}),
        }

    return make


def _collated(rng: random.Random) -> dict[str, Any]:
    collation = {"locale": rng.choice(["en", "de", "fr", "sv", "hu"]), "strength": rng.choice([1, 2, 3])}
    name = rng.choice(_NAMES)
    where = rng.choice(
        [
            {"name": name},
            {"name": {"$in": [name, rng.choice(_NAMES), None]}},
            {"$or": [{"name": name}, {"g": rng.randrange(_GROUPS)}]},
            {"name": name, "g": rng.randrange(_GROUPS)},
            {"name": {"$gt": name}, "v": rng.randrange(12)},
            {"name": {"$ne": name}, "v": rng.randrange(12)},
        ]
    )
    sort = rng.choice([(), (("_id", 1),), (("name", 1), ("_id", 1))])
    return {"operation": Operation.FIND, "filter": where, "sort": sort, "collation": collation}


def _positional(rng: random.Random) -> dict[str, Any]:
    """The element of an array that the filter has found."""
    where = {"g": rng.randrange(_GROUPS), "list": rng.randrange(5)}
    return {"operation": Operation.FIND, "filter": where, "sort": (("_id", 1),), "projection": {"list.$": 1}}


def _collated_group(rng: random.Random) -> dict[str, Any]:
    made = _pipeline({"$group": {"_id": "$name", "n": {"$sum": 1}}})(rng)
    return made | {"collation": {"locale": rng.choice(["en", "sv"]), "strength": 2}}


_BY_ID: Final[Document] = {"$sort": {"_id": 1}}
SHAPES: Final[Mapping[str, Callable[[random.Random], dict[str, Any]]]] = {
    "$group: count": _pipeline({"$group": {"_id": "$v", "n": {"$sum": 1}}}, _BY_ID),
    "$group: sum": _pipeline({"$group": {"_id": None, "n": {"$sum": "$v"}}}),
    "$unwind": _pipeline({"$unwind": "$list"}, {"$group": {"_id": "$list", "n": {"$sum": 1}}}, _BY_ID),
    "$bucket": _pipeline({"$bucket": {"groupBy": "$v", "boundaries": [0, 4, 8, 12], "output": {"s": {"$sum": "$v"}}}}),
    "$facet": _pipeline(
        {"$facet": {"n": [{"$count": "n"}], "v": [{"$group": {"_id": "$v", "n": {"$sum": 1}}}, _BY_ID]}}
    ),
    "$setWindowFields": _pipeline(
        {
            "$setWindowFields": {
                "partitionBy": "$ref",
                "sortBy": {"v": 1, "_id": 1},
                "output": {"s": {"$sum": "$v", "window": {"documents": [-1, 1]}}},
            }
        },
        {"$project": {"s": 1}},
        _BY_ID,
    ),
    "$unionWith": _pipeline(
        {"$unionWith": {"coll": OTHERS, "pipeline": [{"$match": {"g": 3}}]}},
        {"$group": {"_id": "$v", "n": {"$sum": 1}}},
        _BY_ID,
    ),
    "$unionWith itself": _pipeline(
        {"$unionWith": {"coll": "records", "pipeline": [{"$match": {"g": 3}}]}},
        {"$group": {"_id": "$v", "n": {"$sum": 1}}},
        _BY_ID,
    ),
    "$lookup of a field": _pipeline({"$lookup": _JOIN}, {"$project": {"v": 1, "o.name": 1}}, _BY_ID),
    "$lookup, unwound and grouped": _pipeline(
        {"$lookup": _JOIN | {"localField": "v", "foreignField": "v"}},
        {"$unwind": {"path": "$o"}},
        {"$group": {"_id": "$o.g", "n": {"$sum": 1}}},
        _BY_ID,
    ),
    "$lookup with a pipeline": _pipeline(
        {
            "$lookup": {
                "from": OTHERS,
                "let": {"v": "$v"},
                "pipeline": [
                    {"$match": {"g": 3, "$expr": {"$eq": ["$v", "$$v"]}}},
                    {"$sort": {"_id": 1}},
                    {"$project": {"name": 1}},
                ],
                "as": "o",
            }
        },
        _BY_ID,
    ),
    "$graphLookup": _pipeline(
        {
            "$graphLookup": {
                "from": OTHERS,
                "startWith": "$ref",
                "connectFromField": "ref",
                "connectToField": "_id",
                "as": "o",
                "maxDepth": 3,
                "restrictSearchWithMatch": {"g": {"$gt": 5}},
            }
        },
        {"$project": {"n": {"$sum": "$o.v"}}},
        _BY_ID,
    ),
    "view that computes": _view({"$set": {"double": {"$multiply": ["$v", 2]}}}),
    "view that unwinds": _view({"$unwind": "$list"}, {"$set": {"double": {"$add": ["$v", "$list"]}}}, _BY_ID),
    "positional projection": _positional,
    "collation": _collated,
    "collation: $group": _collated_group,
}


def query(shape: str, rng: random.Random, namespace: str) -> Query:
    """As capture would tell it."""
    return Query(**{"namespace": namespace, "filter": {}} | SHAPES[shape](rng))


def write(rng: random.Random, records: Records) -> None:
    """One write to either collection, most of them to what no query looks at."""
    target = records if rng.random() < 0.6 else records.database[OTHERS]
    key = {"_id": rng.randrange(RECORDS + 4)}
    kind = rng.randrange(10)
    if kind < 4:
        target.update_one(key, {"$inc": {"views": 1}})
    elif kind < 8:
        some = record(rng)
        target.update_one(key, {"$set": {name: some[name] for name in rng.sample(sorted(some), 1)}})
    elif kind == 8:
        target.replace_one(key, record(rng), upsert=True)
    else:
        target.delete_one(key)
