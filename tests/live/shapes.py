"""Shapes of handlers for the any-GET oracle: random queries in random forms, each part of an answer read at one instant."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Collection = Any
Part = Callable[[Collection], Any]
FIELDS = ("a", "b", "n")


@dataclass(frozen=True, slots=True)
class Shape:
    """One handler. parts: of its answer, each from one command. form: of its body."""

    parts: tuple[Part, ...]
    form: str
    sync: bool

    def body(self, values: list[Any]) -> str:
        text = json.dumps(values)
        return f"<ul><li>{text}\n</ul>" if self.form == "text/html" else text

    def values(self, body: str) -> list[Any]:
        text = body.removeprefix("<ul><li>").removesuffix("\n</ul>")
        found: list[Any] = json.loads(text)
        return found


def condition(rng: random.Random) -> Mapping[str, Any]:
    """A random filter, exact or widened."""
    number = rng.randrange(6)
    forms: list[Callable[[], Mapping[str, Any]]] = [
        dict,
        lambda: {"a": number},
        lambda: {"n": {"$gte": number * 10}},
        lambda: {"a": {"$in": [number, (number + 1) % 6]}, "b": {"$ne": "b1"}},
        lambda: {"$or": [{"a": number}, {"n": {"$lt": 15}}]},
        lambda: {"b": {"$regex": f"^b[{number}-9]"}},
        lambda: {"$expr": {"$gt": ["$n", {"$multiply": ["$a", 10]}]}},
        lambda: {"c": {"$exists": bool(number % 2)}},
        lambda: {"tags": {"$size": number % 3}},
        lambda: {"tags": f"t{number}"},
    ]
    return rng.choice(forms)()


def part(rng: random.Random) -> Part:
    """A random command, and what a handler makes of its result."""
    where, field, limit, skip = condition(rng), rng.choice(FIELDS), rng.randrange(1, 6), rng.randrange(3)
    order = [(field, rng.choice((1, -1))), ("_id", 1)]
    group = {"$group": {"_id": f"${field}", "count": {"$sum": 1}, "most": {"$max": "$n"}}}
    joined = {"$lookup": {"from": "others", "localField": "a", "foreignField": "_id", "as": "other"}}
    facets = {"counted": [{"$match": where}, {"$count": "n"}], "grouped": [group, {"$sort": {"_id": 1}}]}
    kinds: list[Part] = [
        lambda c: list(c.find(where).sort("_id", 1)),
        lambda c: list(c.find(where, {"_id": 0, field: 1}).sort(order)),
        lambda c: list(c.find(where).sort(order).skip(skip).limit(limit)),
        lambda c: c.find_one(where, sort=order),
        lambda c: c.count_documents(where),
        lambda c: sorted(map(str, c.distinct(field, where))),
        lambda c: list(c.aggregate([{"$match": where}, group, {"$sort": {"_id": 1}}])),
        lambda c: sum(one["n"] for one in c.find(where, {"n": 1})),
        lambda c: list(c.aggregate([{"$match": where}, joined, {"$sort": {"_id": 1}}, {"$limit": 8}])),
        lambda c: list(c.aggregate([{"$facet": facets}])),
    ]
    return rng.choice(kinds)


def shape(rng: random.Random) -> Shape:
    parts = tuple(part(rng) for _ in range(rng.choice((1, 1, 2, 3))))
    return Shape(parts, rng.choice(("application/json", "text/html", "text/plain")), rng.random() < 0.5)


def record(rng: random.Random, key: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "_id": key, "a": rng.randrange(6), "b": f"b{rng.randrange(10)}", "n": rng.randrange(60),
        "tags": [f"t{rng.randrange(6)}" for _ in range(rng.randrange(3))],
    }  # fmt: skip
    if rng.random() < 0.5:
        document["c"] = rng.randrange(3)
    return document


def _raise_many(items: Collection, number: int) -> None:
    """Change many records at once: outside a transaction, a reader could find some of the records changed."""
    with items.database.client.start_session() as session, session.start_transaction():
        items.update_many({"a": number}, {"$inc": {"n": 7}}, session=session)


def write(rng: random.Random, database: Any, keys: int) -> None:
    """One random write."""
    items, key = database.items, rng.randrange(keys)
    kinds: list[Callable[[], Any]] = [
        lambda: items.replace_one({"_id": key}, record(rng, key), upsert=True),
        lambda: items.update_one({"_id": key}, {"$set": {rng.choice(("a", "n")): rng.randrange(6)}}),
        lambda: items.update_one({"_id": key}, {"$unset": {"c": ""}, "$push": {"tags": "t1"}}),
        lambda: items.delete_one({"_id": key}),
        lambda: _raise_many(items, rng.randrange(6)),
        lambda: database.others.update_one({"_id": rng.randrange(6)}, {"$inc": {"level": 1}}, upsert=True),
    ]
    rng.choice(kinds)()
