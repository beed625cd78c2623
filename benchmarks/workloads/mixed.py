"""A shop's reads and writes: what is cached, and what changes while it is. Everything follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.setups.judging.guarded import Records
from quaestor.model import Operation, Query

RECORDS = 400
TEXT_INDEX: dict[str, Any] = {
    "weights": {"title": 1},
    "default_language": "english",
    "language_override": "language",
    "textIndexVersion": 3,
}
_GROUPS = [f"group {i}" for i in range(8)]
_BRANDS = [f"brand {i}" for i in range(12)]
_WORDS = ["lamp", "chair", "table", "sofa", "shelf", "rug", "mirror", "desk", "stool", "bench"]


def record(rng: random.Random) -> dict[str, Any]:
    return {
        "group": rng.choice(_GROUPS),
        "brand": rng.choice(_BRANDS),
        "price": rng.randrange(1, 1_000),
        "stock": rng.randrange(0, 50),
        "views": 0,
        "title": " ".join(rng.sample(_WORDS, 3)),
        "at": [round(rng.uniform(-5, 5), 6), round(rng.uniform(-5, 5), 6)],
        "tags": rng.sample(["new", "sale", "eco", "last"], rng.randrange(3)),
        "maker": {"name": rng.choice(_BRANDS), "rating": rng.randrange(100)},
        "reviews": [review(rng) for _ in range(rng.randrange(5))],
    }


def review(rng: random.Random) -> dict[str, Any]:
    return {"stars": rng.randrange(1, 6), "votes": 0}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of read. ordered: whether mongod promises an order."""

    name: str
    make: Callable[[random.Random], dict[str, Any]]
    operation: Operation = Operation.FIND
    ordered: bool = True


def _range(rng: random.Random) -> dict[str, Any]:
    low = rng.randrange(1, 900)
    return {"price": {"$gte": low, "$lt": low + 100}}


def _group(rng: random.Random) -> dict[str, Any]:
    return {"group": rng.choice(_GROUPS)}


def _near(rng: random.Random) -> dict[str, Any]:
    place = [rng.uniform(-5, 5), rng.uniform(-5, 5)]
    return {"at": {"$near": {"$geometry": {"type": "Point", "coordinates": place}}}}


def _within(rng: random.Random) -> dict[str, Any]:
    x, y = rng.uniform(-5, 3), rng.uniform(-5, 3)
    ring = [[x, y], [x + 2, y], [x + 2, y + 2], [x, y + 2], [x, y]]
    return {"at": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}}}


_BY_ID = (("_id", 1),)
_BY_PRICE = (("price", 1), ("_id", 1))
KINDS: Sequence[Kind] = (
    Kind(name="find by id", make=lambda rng: {"filter": {"_id": rng.randrange(RECORDS)}}),
    Kind(name="find by equality", make=lambda rng: {"filter": _group(rng)}, ordered=False),
    Kind(name="find by range", make=lambda rng: {"filter": _range(rng)}, ordered=False),
    Kind(name="find by array", make=lambda rng: {"filter": {"tags": "sale", **_group(rng)}}, ordered=False),
    Kind(name="sort", make=lambda rng: {"filter": _range(rng), "sort": _BY_PRICE}),
    Kind(name="sort and limit", make=lambda rng: {"filter": _group(rng), "sort": _BY_PRICE, "limit": 10}),
    Kind(name="offset page", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "skip": rng.choice([10, 20]), "limit": 10}),
    Kind(name="projection", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "limit": 10, "projection": {"title": 1, "price": 1}}),
    Kind(name="projection without the sort key", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "limit": 10, "projection": {"title": 1}}),
    Kind(name="nested projection", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "limit": 10, "projection": {"maker": {"name": 1}, "price": 1}}),
    Kind(name="$slice of an array", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "limit": 10, "projection": {"price": 1, "reviews": {"$slice": 2}}}),
    Kind(name="$elemMatch of an array", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "limit": 10,
        "projection": {"price": 1, "reviews": {"$elemMatch": {"stars": 5}}}}),
    Kind(name="positional projection", make=lambda rng: {
        "filter": {**_group(rng), "reviews.stars": 5}, "sort": _BY_ID, "projection": {"reviews.$": 1}}),
    Kind(name="computed projection", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_ID, "projection": {"cheap": {"$lt": ["$price", 500]}}}),
    Kind(name="page past the end", make=lambda rng: {
        "filter": _group(rng), "sort": _BY_PRICE, "skip": RECORDS, "limit": 10}),
    Kind(name="count", make=lambda rng: {"filter": _range(rng)}, operation=Operation.COUNT),
    Kind(name="count with a limit", make=lambda rng: {"filter": _range(rng), "limit": 20}, operation=Operation.COUNT),
    Kind(name="count after a skip", make=lambda rng: {"filter": _range(rng), "skip": 60}, operation=Operation.COUNT),
    Kind(name="distinct", make=lambda rng: {"filter": _group(rng), "distinct_key": "brand"}, operation=Operation.DISTINCT),
    Kind(name="distinct of an array", make=lambda rng: {"filter": _range(rng), "distinct_key": "tags"},
         operation=Operation.DISTINCT),
    Kind(name="$text", make=lambda rng: {"filter": {"$text": {"$search": rng.choice(_WORDS)}}, "sort": _BY_ID}),
    Kind(name="$near and limit", make=lambda rng: {"filter": _near(rng), "limit": 5}),
    Kind(name="$geoWithin", make=lambda rng: {"filter": _within(rng)}, ordered=False),
    Kind(name="pipeline like a find", operation=Operation.AGGREGATE, make=lambda rng: {"pipeline": (
        {"$match": _group(rng)}, {"$sort": {"price": 1, "_id": 1}}, {"$limit": 10}, {"$project": {"title": 1, "price": 1}})}),
    Kind(name="pipeline that computes by record", operation=Operation.AGGREGATE, make=lambda rng: {"pipeline": (
        {"$match": _group(rng)}, {"$sort": {"_id": 1}},
        {"$project": {"cheap": {"$lt": ["$price", 500]}, "reviewed": {"$size": "$reviews"}}})}),
    Kind(name="$group: count", operation=Operation.AGGREGATE, make=lambda rng: {"pipeline": (
        {"$match": _range(rng)}, {"$group": {"_id": "$group", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}})}),
    Kind(name="$group: maximum", operation=Operation.AGGREGATE, make=lambda rng: {"pipeline": (
        {"$match": _group(rng)}, {"$group": {"_id": "$brand", "most": {"$max": "$price"}}}, {"$sort": {"_id": 1}})}),
    Kind(name="$count", operation=Operation.AGGREGATE, make=lambda rng: {"pipeline": (
        {"$match": _range(rng)}, {"$count": "n"})}),
    Kind(name="collation", operation=Operation.FIND, make=lambda rng: {
        "filter": _group(rng), "collation": {"locale": "en", "strength": 2}, "sort": _BY_ID}),
)  # fmt: skip


def query(kind: Kind, rng: random.Random, namespace: str) -> Query:
    """As capture would tell it."""
    made: dict[str, Any] = {"filter": {}} | kind.make(rng)
    text = TEXT_INDEX if "$text" in made["filter"] else None
    return Query(namespace=namespace, operation=kind.operation, text_index=text, **made)


class Writer:
    """One write at a time: mostly updates, half of them of what no query looks at."""

    def __init__(self, records: Records, rng: random.Random) -> None:
        self._records = records
        self._rng = rng
        self._keys = list(range(RECORDS))
        self._next = RECORDS
        self._writes: Sequence[tuple[int, str, Callable[[], None]]] = (
            (40, "unrelated field", self._unrelated), (15, "price", self._price), (8, "stock", self._stock),
            (6, "part of a nested field", self._rate), (6, "element of an array", self._vote), (4, "longer array", self._review),
            (6, "group", self._regroup), (5, "title", self._title), (5, "place", self._move), (4, "tags", self._tags),
            (3, "replaced by itself", self._replace), (7, "insert", self._insert), (7, "delete", self._delete),
        )  # fmt: skip

    def write(self) -> str:
        """Perform one; returns its name. Every one of them is an event of the change stream."""
        weights = [weight for weight, _, _ in self._writes]
        _, name, act = self._rng.choices(self._writes, weights)[0]
        act()
        return name

    def _set(self, name: str, value: Any) -> None:
        # The counter makes it a write even if the value stays.
        self._records.update_one({"_id": self._rng.choice(self._keys)}, {"$set": {name: value}, "$inc": {"rev": 1}})

    def _unrelated(self) -> None:
        self._records.update_one({"_id": self._rng.choice(self._keys)}, {"$inc": {"views": 1}})

    def _price(self) -> None:
        self._set("price", self._rng.randrange(1, 1_000))

    def _stock(self) -> None:
        self._set("stock", self._rng.randrange(0, 50))

    def _regroup(self) -> None:
        self._set("group", self._rng.choice(_GROUPS))

    def _title(self) -> None:
        self._set("title", record(self._rng)["title"])

    def _move(self) -> None:
        self._set("at", record(self._rng)["at"])

    def _tags(self) -> None:
        self._set("tags", record(self._rng)["tags"])

    def _rate(self) -> None:
        self._set("maker.rating", self._rng.randrange(100))

    def _vote(self) -> None:
        place = f"reviews.{self._rng.randrange(4)}"
        key = {"_id": self._rng.choice(self._keys), place: {"$exists": True}}
        if not self._records.update_one(key, {"$inc": {f"{place}.votes": 1}}).modified_count:
            self._unrelated()

    def _review(self) -> None:
        self._records.update_one({"_id": self._rng.choice(self._keys)}, {"$push": {"reviews": review(self._rng)}})

    def _replace(self) -> None:
        key = self._rng.choice(self._keys)
        document = self._records.find_one({"_id": key})
        assert document is not None
        self._records.replace_one({"_id": key}, {**document, "rev": document.get("rev", 0) + 1})

    def _insert(self) -> None:
        self._records.insert_one({"_id": self._next, **record(self._rng)})
        self._keys.append(self._next)
        self._next += 1

    def _delete(self) -> None:
        if len(self._keys) <= RECORDS // 2:
            return self._insert()
        key = self._keys.pop(self._rng.randrange(len(self._keys)))
        self._records.delete_one({"_id": key})
        return None
