"""Reads as applications write them, through the driver, so that their commands are captured, views and all."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from pymongo.collection import Collection
from pymongo.database import Database

from benchmarks.workloads import mixed

Data = Database[dict[str, Any]]
Read = Callable[[Data], Any]
"""Runs the commands of one answer and returns what the answer shows."""
Make = Callable[[random.Random], Read]

ITEMS: Final = "items"
_BY_PRICE: Final = [("price", 1), ("_id", 1)]
_GROUPS: Final = [f"group {number}" for number in range(8)]
_BRANDS: Final = [f"brand {number}" for number in range(12)]


def group(rng: random.Random) -> dict[str, Any]:
    """A filter that an eighth of the records passes."""
    return {"group": rng.choice(_GROUPS)}


def prices(rng: random.Random) -> dict[str, Any]:
    """A filter that a tenth of the records passes."""
    low = rng.randrange(1, 900)
    return {"price": {"$gte": low, "$lt": low + 100}}


def either(rng: random.Random) -> dict[str, Any]:
    """One filter or the other."""
    return rng.choice([group, prices])(rng)


def _find(where: Callable[[random.Random], dict[str, Any]] = either, *, on: str = ITEMS, **options: Any) -> Make:
    """A find; options that are functions are called with the random numbers."""

    def make(rng: random.Random) -> Read:
        condition = where(rng)
        chosen = {name: value(rng) if callable(value) else value for name, value in options.items()}
        return lambda database: list(database[on].find(condition, **chosen))

    return make


def _one(where: Callable[[random.Random], dict[str, Any]], **options: Any) -> Make:
    def make(rng: random.Random) -> Read:
        condition = where(rng)
        return lambda database: [database[ITEMS].find_one(condition, **options)]

    return make


def _single_batch(rng: random.Random) -> Read:
    condition, most = either(rng), rng.choice([3, 10, 200])
    return lambda database: list(database[ITEMS].find(condition).limit(-most))


def _single_batch_command(rng: random.Random) -> Read:
    command = {"find": ITEMS, "filter": either(rng), "batchSize": rng.choice([5, 200]), "singleBatch": True}
    return lambda database: list(database.command(dict(command))["cursor"]["firstBatch"])


def _count(where: Callable[[random.Random], dict[str, Any]] = either, *, on: str = ITEMS, **options: Any) -> Make:
    def make(rng: random.Random) -> Read:
        condition = where(rng)
        return lambda database: [database[on].count_documents(condition, **options)]

    return make


def _distinct(key: str, where: Callable[[random.Random], dict[str, Any]] = either, *, on: str = ITEMS) -> Make:
    def make(rng: random.Random) -> Read:
        condition = where(rng)
        return lambda database: sorted(database[on].distinct(key, condition), key=repr)

    return make


def _pipeline(*stages: Any, where: Callable[[random.Random], dict[str, Any]] = either, on: str = ITEMS) -> Make:
    def make(rng: random.Random) -> Read:
        first = {"$match": where(rng)}
        return lambda database: list(database[on].aggregate([first, *stages]))

    return make


def _everything(_: random.Random) -> dict[str, Any]:
    return {}


EXACT: Final[Mapping[str, Make]] = {
    "natural order": _find(),
    "natural order, projection": _find(projection={"title": 1, "price": 1}),
    "natural order, no _id": _find(projection={"title": 1, "_id": 0}),
    "natural order, limit": _find(limit=10),
    "natural order, limit above the end": _find(limit=500),
    "natural order, all records, limit": _find(_everything, limit=10),
    "find_one by a field": _one(lambda rng: {"brand": rng.choice(_BRANDS), **group(rng)}),
    "find_one by _id": _one(lambda rng: {"_id": rng.randrange(mixed.RECORDS)}),
    "by several _ids": _find(lambda rng: {"_id": {"$in": rng.sample(range(mixed.RECORDS + 20), 10)}}),
    "$or": _find(lambda rng: {"$or": [group(rng), {"stock": rng.randrange(50)}]}),
    "$ne": _find(lambda rng: {**prices(rng), "group": {"$ne": rng.choice(_GROUPS)}}),
    "array field": _find(lambda rng: {**group(rng), "tags": rng.choice(["sale", "new"])}),
    "nested field": _find(lambda rng: {"maker.rating": {"$gte": rng.randrange(90)}, **group(rng)}),
    "sort with ties": _find(sort=[("stock", 1)]),
    "sort with ties, limit": _find(sort=[("stock", 1)], limit=10),
    "sort, limit": _find(sort=_BY_PRICE, limit=10),
    "skip": _find(sort=_BY_PRICE, skip=lambda rng: rng.choice([5, 20])),
    "skip, limit": _find(sort=_BY_PRICE, skip=lambda rng: rng.choice([5, 20]), limit=10),
    "skip, limit, projection": _find(sort=_BY_PRICE, skip=10, limit=10, projection={"title": 1, "price": 1}),
    "skip, limit, ties": _find(sort=[("stock", 1)], skip=10, limit=10),
    "skip beyond the end": _find(sort=_BY_PRICE, skip=lambda rng: rng.choice([100, 500]), limit=10),
    "unsorted skip": _find(skip=lambda rng: rng.choice([5, 20])),
    "unsorted skip, limit": _find(skip=lambda rng: rng.choice([5, 20]), limit=10),
    "unsorted skip beyond the end": _find(skip=lambda rng: rng.choice([100, 500]), limit=10),
    "singleBatch": _single_batch,
    "singleBatch command": _single_batch_command,
    "count": _count(),
    "count, limit": _count(limit=20),
    "count, skip": _count(skip=30),
    "count, skip beyond the end": _count(skip=100),
    "distinct": _distinct("brand"),
    "distinct of few values": _distinct("group", prices),
    "distinct of a nested field": _distinct("maker.name"),
    "distinct of an array": _distinct("tags"),
    "distinct of all records": _distinct("brand", _everything),
    "view that filters": _find(on="stocked"),
    "view that filters, sort, limit": _find(on="stocked", sort=_BY_PRICE, limit=10),
    "view that filters, count": _count(on="stocked"),
    "view that filters, distinct": _distinct("brand", on="stocked"),
    "view that projects": _find(on="titles"),
    "view that projects, sort, limit": _find(on="titles", sort=_BY_PRICE, limit=10),
    "view that projects, count": _count(on="titles"),
    "view that projects, distinct": _distinct("group", prices, on="titles"),
    "view that sorts": _find(on="sorted"),
    "view that sorts, limit": _find(on="sorted", limit=10),
    "$expr": _find(lambda rng: {"$expr": {"$lt": ["$price", "$maker.rating"]}, **group(rng)}),
    "let": _find(
        lambda rng: {**group(rng), "$expr": {"$gt": ["$price", "$$least"]}},
        let=lambda rng: {"least": rng.randrange(900)},
    ),
    "$natural": _find(sort=[("$natural", 1)]),
    "$natural, limit": _find(sort=[("$natural", -1)], limit=10),
    "$natural, projection": _find(sort=[("$natural", 1)], projection={"title": 1}),
    "pipeline that counts in a $group": _pipeline({"$group": {"_id": None, "n": {"$sum": 1}}}),
    "pipeline like a find": _pipeline({"$sort": {"price": 1, "_id": 1}}, {"$limit": 10}),
    "pipeline that projects": _pipeline({"$project": {"title": 1}}),
    "pipeline $count": _pipeline({"$count": "n"}),
}
"""Shapes whose plan is exact."""

WIDENED: Final[Mapping[str, Make]] = {
    "$group: count": _pipeline({"$group": {"_id": "$brand", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}),
    "$group: sum": _pipeline({"$group": {"_id": None, "n": {"$sum": "$stock"}}}),
    "$group: maximum": _pipeline({"$group": {"_id": "$brand", "n": {"$max": "$price"}}}, {"$sort": {"_id": 1}}),
    "$sortByCount, $limit": _pipeline({"$sortByCount": "$brand"}, {"$sort": {"count": -1, "_id": 1}}, {"$limit": 3}),
    "$unwind": _pipeline({"$unwind": "$tags"}, {"$group": {"_id": "$tags", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}),
    "$bucket": _pipeline({"$bucket": {"groupBy": "$stock", "boundaries": [0, 20, 40, 60]}}),
    "$facet": _pipeline({"$facet": {"n": [{"$count": "n"}], "top": [{"$sort": {"price": -1, "_id": 1}}, {"$limit": 3}]}}),
    "$lookup": _pipeline(
        {"$lookup": {"from": "brands", "localField": "brand", "foreignField": "_id", "as": "made"}},
        {"$project": {"made.country": 1, "price": 1}},
        {"$sort": {"_id": 1}},
    ),
    "$lookup, unwound and grouped": _pipeline(
        {"$lookup": {"from": "brands", "localField": "brand", "foreignField": "_id", "as": "made"}},
        {"$unwind": "$made"},
        {"$group": {"_id": "$made.country", "n": {"$sum": 1}}},
        {"$sort": {"_id": 1}},
    ),
    "$lookup with a pipeline": _pipeline(
        {"$lookup": {
            "from": "brands", "let": {"brand": "$brand"}, "as": "made",
            "pipeline": [{"$match": {"active": True, "$expr": {"$eq": ["$_id", "$$brand"]}}}, {"$project": {"country": 1}}],
        }},
        {"$sort": {"_id": 1}},
        {"$project": {"made": 1, "price": 1}},
    ),
    "$unionWith": _pipeline(
        {"$project": {"k": "$brand"}},
        {"$unionWith": {"coll": "brands", "pipeline": [{"$match": {"active": True}}, {"$project": {"k": "$_id", "_id": 0}}]}},
        {"$group": {"_id": "$k", "n": {"$sum": 1}}},
        {"$sort": {"_id": 1}},
    ),
    "collation": _find(lambda rng: {"brand": rng.choice(_BRANDS).upper()}, collation={"locale": "en", "strength": 2}),
    "collation, sort": _find(sort=[("title", 1), ("_id", 1)], limit=10, collation={"locale": "en"}),
    "collation, distinct": _pipeline({"$group": {"_id": "$brand"}}, {"$sort": {"_id": 1}}),
    "positional projection": _find(
        lambda rng: {**group(rng), "reviews.stars": 5}, sort=[("_id", 1)], projection={"reviews.$": 1}
    ),
    "view that computes": _find(prices, on="dear"),
    "view that groups": _find(_everything, on="by_brand", sort=[("_id", 1)]),
    "view that joins": _find(prices, on="joined", sort=[("_id", 1)]),
    "hint": _find(hint=[("_id", 1)]),
}  # fmt: skip
"""Shapes whose plan is widened."""


def populate(database: Data, rng: random.Random, *, images: bool, indexes: bool) -> Collection[dict[str, Any]]:
    """Collections and views for these shapes; returns the collection that is written most.

    indexes: as a shop has them. Without them records come in the order of their insertion.
    """
    options = {"changeStreamPreAndPostImages": {"enabled": images}}
    items = database.create_collection(ITEMS, **options)
    items.insert_many([{"_id": key, **mixed.record(rng)} for key in range(mixed.RECORDS)])
    brands = database.create_collection("brands", **options)
    brands.insert_many([{"_id": name, **brand(rng)} for name in _BRANDS])
    if indexes:
        items.create_index([("group", 1), ("price", 1)])
        items.create_index([("brand", 1)])
    project = {"$project": {"title": 1, "price": 1, "group": 1}}
    views: Mapping[str, list[dict[str, Any]]] = {
        "stocked": [{"$match": {"stock": {"$gte": 10}}}],
        "titles": [{"$match": {"stock": {"$gte": 10}}}, project],
        "sorted": [{"$match": {"stock": {"$gte": 10}}}, {"$sort": {"price": 1, "_id": 1}}],
        "dear": [{"$set": {"value": {"$multiply": ["$price", "$stock"]}}}, {"$project": {"value": 1, "price": 1}}],
        "by_brand": [{"$group": {"_id": "$brand", "n": {"$sum": 1}}}],
        "joined": [
            {"$lookup": {"from": "brands", "localField": "brand", "foreignField": "_id", "as": "made"}},
            {"$project": {"made.country": 1, "price": 1}},
        ],
    }
    for name, pipeline in views.items():
        database.command("create", name, viewOn=ITEMS, pipeline=pipeline)
    return items


def brand(rng: random.Random) -> dict[str, Any]:
    """A record of the collection that is joined."""
    return {"country": rng.choice(["de", "fr", "it"]), "active": rng.random() < 0.7, "rank": rng.randrange(100)}


class Writer:
    """A shop's writes, a fifth of them to the collection that is joined."""

    def __init__(self, items: Collection[dict[str, Any]], rng: random.Random) -> None:
        self._brands = items.database["brands"]
        self._rng = rng
        self._items = mixed.Writer(items, rng)

    def write(self) -> str:
        """Perform one write; returns its name."""
        if self._rng.random() < 0.8:
            return self._items.write()
        key = {"_id": self._rng.choice(_BRANDS)}
        if self._rng.random() < 0.6:
            self._brands.update_one(key, {"$inc": {"rank": 1}})
            return "rank of a brand"
        self._brands.replace_one(key, brand(self._rng), upsert=True)
        return "brand"
