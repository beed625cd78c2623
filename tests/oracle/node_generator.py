"""Records, cached queries and writes for the node's oracle, with what of an answer is mongod's own business taken out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import bson

from benchmarks.setups.judging.guarded import Records, comparable
from quaestor.model import Document, Operation, Query
from quaestor.query import aggregation

RECORDS: Final = 40
TEXT_INDEX: Final[dict[str, Any]] = {
    "weights": {"title": 2, "words": 1},
    "default_language": "english",
    "language_override": "language",
    "textIndexVersion": 3,
}
_WORDS: Final = ("dogs", "dog", "cat", "running", "the", "bird", "tame")
_BY_SCORE: Final = {"$meta": "textScore"}
_OTHERS: Final = "others"


@dataclass(frozen=True, kw_only=True)
class Cached:
    """exact: whether only a change of its answer may invalidate it, where every image is known.
    contributed: the same, where its contributors are known too.
    always: the same, where its contributors are known and no image before a write is.
    settled: the same, or what has not matched before, where every image is known.
    hides_order: it does not show what it is ordered by.
    """

    query: Query
    exact: bool = False
    contributed: bool = False
    always: bool = False
    settled: bool = False
    hides_order: bool = False
    ordered: bool = True

    def comparable(self, answer: Sequence[Document]) -> list[bytes]:
        return comparable(answer, ordered=self.ordered)


def record(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"a": rng.randrange(8), "name": rng.choice(["ann", "anna", "bob", "Bob", "bób", ""])}
    if rng.random() < 0.7:
        made["b"] = rng.choice([1, 2.5, None, "x", [1, 3], [], {"c": 1}, [{"c": 1}, {"c": 2}], {"c": "X", "d": 1}])
    if rng.random() < 0.5:
        made["views"] = rng.randrange(100)
    if rng.random() < 0.8:
        made["at"] = [round(rng.uniform(-5, 5), 6), round(rng.uniform(-5, 5), 6)]
    if rng.random() < 0.6:
        made["words"] = " ".join(rng.choices(_WORDS, k=rng.randrange(1, 6)))
    return made


def condition(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        [
            {},
            {"a": rng.randrange(8)},
            {"a": {"$gte": rng.randrange(4), "$lt": rng.randrange(4, 9)}},
            {"a": {"$in": rng.sample(range(8), 3)}},
            {"b": None},
            {"b": {"$gt": 1}},
            {"b.c": rng.choice([1, 2])},
            {"name": {"$regex": "^an"}},
            {"a": {"$ne": rng.randrange(8)}},
            {"_id": rng.randrange(RECORDS)},
            {"_id": {"$in": rng.sample(range(RECORDS + 9), 4)}, "a": {"$gt": 2}},
            {"$or": [{"a": rng.randrange(8)}, {"name": "bob"}]},
            {"b": {"$elemMatch": {"$gte": 1, "$lt": 3}}, "a": {"$gt": 1}},
            {"$expr": {"$gt": ["$a", {"$ifNull": ["$views", 3]}]}},
        ]
    )


def cached(rng: random.Random, namespace: str) -> Cached:
    """A query as capture would tell it."""
    kinds: list[Callable[[random.Random, str], Cached]] = [_find] * 6 + [_pipeline] * 3 + [_values, _nearest, _text]
    return rng.choice([*kinds, _collated, _as_stored, _with_variables])(rng, namespace)


_PROJECTIONS: Final[tuple[Document, ...]] = (
    {"name": 1}, {"views": 0}, {"a": 1, "_id": 0}, {"b.c": 1}, {"b.c": 0, "at": 0}, {"name": "$a"}, {"b": {"c": 1}, "name": 1},
    {"b": {"c": 0}}, {"b": {"$slice": 1}}, {"name": 1, "b": {"$slice": -1}}, {"b": {"$slice": [1, 1]}, "at": 0},
    {"b": {"$elemMatch": {"c": {"$gte": 2}}}}, {"name": 1, "b": {"$elemMatch": {"c": 1}}},
    {"b": {"$elemMatch": {"$gt": 1}}, "views": 1, "a": 1}, {"name": 1, "a": 1, "b": {"$elemMatch": {"c": {"$gt": 0}}}},
    {"big": {"$gt": ["$a", 4]}},
)  # fmt: skip
_DIGESTED: Final[tuple[Document, ...]] = (
    {"name": 1, "b": {"$slice": -1}}, {"b": {"$elemMatch": {"c": {"$gte": 2}}}}, {"name": 1, "b": {"$elemMatch": {"c": 1}}},
    {"b": {"$elemMatch": {"$gt": 1}}, "views": 1, "a": 1}, {"name": 1, "a": 1, "b": {"$elemMatch": {"c": {"$gt": 0}}}},
    {"big": {"$gt": ["$a", 4]}},
)  # fmt: skip
"""Projections of which paths do not tell what an update has changed, but digests of what is shown do."""


def _find(rng: random.Random, namespace: str) -> Cached:
    sorts: list[tuple[tuple[str, int], ...]] = [
        (), (("a", 1),), (("a", -1), ("_id", 1)), (("name", 1), ("_id", -1)), (("b", 1), ("_id", 1)),
    ]  # fmt: skip
    sort = rng.choice(sorts)
    where = condition(rng)
    if sort == (("a", 1),):
        # mongod may put records with equal keys in another order each time, and cut a window among them elsewhere.
        query = Query(namespace=namespace, operation=Operation.FIND, filter=where, sort=sort)
        return Cached(query=query, ordered=False, exact=True)
    projection: Document | None = rng.choice([None, None, None, None, *_PROJECTIONS])
    shows_order = all(aggregation.projects(projection, path) for path, _ in (*sort, ("_id", 1)))
    query = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=where,
        sort=sort,
        skip=rng.choice([0, 0, 0, 2, 15]),
        limit=rng.choice([0, 0, 1, 5]),
        projection=projection,
    )
    known = shows_order or aggregation.projects(projection, "_id")
    # Without _id the members are unknown, and without the sort's fields the end, unless contributors show them.
    # Contributors also show each member's place, so that a member may move and keep its place.
    shows_members = projection in (None, {"views": 0})
    plain = projection is None or sort
    by_id = isinstance(where.get("_id"), int) and not query.skip
    ordered = bool(sort or not (query.limit or query.skip) or by_id)
    return Cached(
        query=query,
        exact=bool(shows_members and plain and not query.skip and ordered),
        contributed=bool(plain and ordered and (by_id or known)),
        settled=bool(projection is None and not sort and query.limit and not query.skip),
        always=bool(ordered and (projection is None or (projection in _DIGESTED and plain and known))),
        hides_order=not shows_order,
    )


def _as_stored(rng: random.Random, namespace: str) -> Cached:
    """In the order of storage, of which no update moves a record."""
    projection = rng.choice([None, {"name": 1}, {"views": 0}])
    query = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=condition(rng),
        sort=(("$natural", rng.choice([1, -1])),),
        skip=rng.choice([0, 0, 2, 15]),
        limit=rng.choice([0, 0, 1, 5]),
        projection=projection,
    )
    everything = not query.skip and not query.limit
    return Cached(query=query, exact=everything, settled=bool(projection is None and query.limit and not query.skip))


def _with_variables(rng: random.Random, namespace: str) -> Cached:
    """With variables of the command, constants or not."""
    let = {"x": rng.choice([3, 5, {"$add": [1, 2]}]), "y": rng.choice(["ann", "bob"])}
    where = rng.choice(
        [
            {"$expr": {"$gt": ["$a", "$$x"]}},
            {"a": {"$lt": 6}, "$expr": {"$and": [{"$gte": ["$a", "$$x"]}, {"$ne": ["$name", "$$y"]}]}},
            {"$or": [{"a": 1}, {"$expr": {"$eq": ["$name", "$$y"]}}]},
        ]
    )
    query = Query(namespace=namespace, operation=Operation.FIND, filter=where, sort=(("_id", 1),), let=let)
    return Cached(query=query)


def _values(rng: random.Random, namespace: str) -> Cached:
    where = condition(rng)
    if rng.random() < 0.5:
        query = Query(
            namespace=namespace,
            operation=Operation.COUNT,
            filter=where,
            skip=rng.choice([0, 0, 3, 20]),
            limit=rng.choice([0, 0, 2, 8]),
        )
        return Cached(query=query, exact=not query.skip and not query.limit, contributed=True, always=True)
    key = rng.choice(["a", "b", "name", "b.c"])
    values = Query(namespace=namespace, operation=Operation.DISTINCT, filter=where, distinct_key=key)
    always_there = key == "name"  # of others it counts who lacks them: with an index mongod shows null
    return Cached(query=values, contributed=always_there, always=always_there)


_SHAPING: Final[tuple[tuple[Document, ...], ...]] = (
    ({"$group": {"_id": "$a", "n": {"$sum": 1}, "most": {"$max": "$views"}}}, {"$sort": {"_id": 1}}),
    ({"$set": {"x": {"$add": ["$a", 1]}}}, {"$group": {"_id": "$x", "n": {"$sum": "$x"}}}, {"$sort": {"_id": 1}}),
    ({"$project": {"b": 1, "y": "$a"}}, {"$unwind": "$b"}, {"$group": {"_id": "$y", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}),
    ({"$sort": {"name": 1, "_id": 1}}, {"$group": {"_id": None, "first": {"$first": "$a"}, "last": {"$last": "$name"}}}),
    ({"$sort": {"a": -1, "_id": 1}}, {"$limit": 4}, {"$group": {"_id": None, "names": {"$push": "$name"}}}),
    ({"$sortByCount": "$a"}, {"$sort": {"_id": 1}}),
    ({"$bucket": {"groupBy": "$a", "boundaries": [0, 3, 9], "default": "-", "output": {"v": {"$sum": "$views"}}}},),
    ({"$facet": {"n": [{"$count": "n"}], "a": [{"$group": {"_id": "$a"}}, {"$sort": {"_id": 1}}]}},),
    ({"$facet": {"n": [{"$count": "n"}], "all": [{"$sort": {"_id": 1}}]}},),
    ({"$count": "n"},),
    ({"$sort": {"a": 1, "_id": 1}}, {"$limit": 4}),
    ({"$sort": {"a": 1, "_id": 1}}, {"$limit": 6}, {"$skip": 2}, {"$set": {"x": {"$toUpper": "$name"}}}),
    ({"$sort": {"a": 1, "_id": 1}}, {"$limit": 4}, {"$project": {"n": "$name", "a": 1}}),
    ({"$sort": {"name": 1, "_id": 1}}, {"$limit": 3}, {"$unset": ["at", "views"]}),
    ({"$sort": {"_id": 1}}, {"$limit": 5}, {"$lookup": {"from": _OTHERS, "localField": "a", "foreignField": "_id", "as": "o"}}),
    ({"$project": {"at": 0}}, {"$sort": {"a": 1, "_id": 1}}, {"$limit": 3}),
    ({"$project": {"a": 1, "x": "$name"}}, {"$sort": {"a": -1, "_id": 1}}, {"$limit": 3}),
    ({"$sort": {"a": 1, "_id": 1}}, {"$set": {"a": "$b"}}, {"$limit": 3}),
    ({"$set": {"a": {"$mod": [{"$ifNull": ["$views", 7]}, 5]}}}, {"$sort": {"a": 1, "_id": 1}}, {"$limit": 3}),
    ({"$replaceWith": {"k": "$a", "w": "$name"}}, {"$group": {"_id": "$k", "w": {"$min": "$w"}}}, {"$sort": {"_id": 1}}),
    ({"$match": {"views": {"$gt": 20}}}, {"$sort": {"_id": 1}}, {"$project": {"_id": 1, "z": {"a": 1}}}),
)  # fmt: skip


def _pipeline(rng: random.Random, namespace: str) -> Cached:
    stages = [{"$match": condition(rng)}] if rng.random() < 0.8 else []
    stages.extend(dict(stage) for stage in rng.choice(_SHAPING))
    find = aggregation.as_find(stages)
    if find is None:
        return Cached(
            query=Query(namespace=namespace, operation=Operation.AGGREGATE, filter={}, pipeline=tuple(stages))
        )
    query = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=find.filter,
        sort=tuple(find.sort.items()),
        skip=find.skip,
        limit=find.limit,
        projection=find.projection,
    )
    return Cached(query=query, exact=not find.projection and not find.skip)


def _nearest(rng: random.Random, namespace: str) -> Cached:
    place = [rng.uniform(-5, 5), rng.uniform(-5, 5)]
    near = rng.choice(
        [
            {"$near": {"$geometry": {"type": "Point", "coordinates": place}, "$maxDistance": 400_000}},
            {"$nearSphere": {"$geometry": {"type": "Point", "coordinates": place}}},
            {"$nearSphere": place, "$maxDistance": 0.05},
        ]
    )
    where = {"at": near} | rng.choice([{}, {"a": {"$lt": 5}}])
    query = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=where,
        limit=rng.choice([0, 3, 3]),
        projection=rng.choice([None, {"views": 0}]),
    )
    return Cached(query=query, exact=query.projection is None)


def _text(rng: random.Random, namespace: str) -> Cached:
    search = rng.choice(["dog", "cats", "run bird", '"tame dog"', "dog -cat"])
    where = {"$text": {"$search": search}} | rng.choice([{}, {"a": {"$lt": 6}}])
    query = Query(
        namespace=namespace, operation=Operation.FIND, filter=where, sort=(("_id", 1),), text_index=TEXT_INDEX
    )
    if rng.random() < 0.5:
        return Cached(query=query, exact=True)
    score = {"score": _BY_SCORE}
    by_score = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=where,
        sort=(("score", _BY_SCORE),),
        limit=rng.choice([0, 0, 3]),
        projection=score,
        text_index=TEXT_INDEX,
    )
    return _ByScore(query=by_score)


class _ByScore(Cached):
    """Which of several equally good records is shown is mongod's own business: the scores are compared, and who stands
    before the last of them."""

    def comparable(self, answer: Sequence[Document]) -> list[bytes]:
        worst = min((record["score"] for record in answer), default=0) if self.query.limit else -1
        better = sorted(bson.encode(record) for record in answer if record["score"] > worst)
        return [*better, *(bson.encode({"score": record["score"]}) for record in answer)]


def _collated(rng: random.Random, namespace: str) -> Cached:
    collation = {"locale": rng.choice(["en", "de", "sv"]), "strength": rng.choice([1, 2, 3])}
    name = rng.choice(["BOB", "Ann", "bob"])
    where = rng.choice(
        [
            {"name": name},
            {"name": {"$in": [name, "ANNA"]}},
            {"name": {"$gt": name}},
            {"b.c": "x"},
            {"b": {"$lte": {"c": "x"}}},
            {"$expr": {"$eq": ["$name", name]}},
            {"$expr": {"$gt": ["$name", "$b"]}},
            {"a": rng.randrange(8)},
            {"b": {"$gt": {}}},
            {},
        ]
    )
    shape = rng.randrange(4)
    if shape == 0:
        sort = rng.choice([(), (("name", 1), ("_id", 1)), (("b", -1), ("_id", 1))])
        query = Query(
            namespace=namespace,
            operation=Operation.FIND,
            filter=where,
            sort=sort,
            limit=3 if sort else 0,
            collation=collation,
        )
    elif shape == 1:
        query = Query(namespace=namespace, operation=Operation.COUNT, filter=where, collation=collation)
    elif shape == 2:
        query = Query(
            namespace=namespace, operation=Operation.DISTINCT, filter=where, distinct_key="name", collation=collation
        )
    else:
        group = {"$group": {"_id": "$name", "n": {"$sum": 1}}}
        stages = ({"$match": where}, {"$sort": {"_id": 1}}, group)
        query = Query(
            namespace=namespace, operation=Operation.AGGREGATE, filter={}, pipeline=stages, collation=collation
        )
    return Cached(query=query, ordered=False)


def write(rng: random.Random, records: Records) -> None:
    key = {"_id": rng.randrange(RECORDS + 5)}
    kind = rng.randrange(15)
    if kind < 2:
        records.delete_one(key)
    elif kind < 4:
        records.replace_one(key, record(rng), upsert=True)
    elif kind < 6:
        records.update_one(key, {"$inc": {"views": 1}})
    elif kind < 8:
        some = record(rng)
        records.update_one(key, {"$set": {name: some[name] for name in rng.sample(sorted(some), 2)}})
    elif kind == 8:
        records.update_many({"a": rng.randrange(8)}, {"$set": {"b": rng.randrange(3)}})
    elif kind == 9:
        records.update_one(key, {"$unset": {rng.choice(["a", "b", "b.c", "words", "at"]): 1}})
    elif kind == 10:
        records.update_one(key, {"$rename": {rng.choice(["views", "a"]): rng.choice(["x.y", "b"])}})
    elif kind == 11:
        plain = {"$and": [{"b": {"$type": "object"}}, {"b": {"$not": {"$type": "array"}}}]}
        records.update_one({**key, **plain}, {"$set": {"b.c": rng.randrange(3), "b.e": 1}})
    elif kind == 12:
        records.update_one({**key, "b": {"$type": "array"}}, {"$push": {"b": {"c": rng.randrange(3)}}})
    elif kind == 13:
        records.update_one({**key, "b.0.c": {"$exists": True}}, {"$set": {f"b.{rng.randrange(2)}.c": rng.randrange(4)}})
    else:
        records.database[_OTHERS].replace_one({"_id": rng.randrange(8)}, {"v": rng.randrange(9)}, upsert=True)
