"""Random records and random queries of every kind that is maintained."""

from __future__ import annotations

import random
from typing import Any

from bson import Decimal128, Int64

from quaestor.model import Operation, Query

Document = dict[str, Any]
NUMBERS: list[Any] = [
    0, 1, 2, -3, 7, 2**31 - 1, Int64(5), Int64(2**40), Int64(2**62), 0.5, 0.1, 0.2, -2.5, 1e16, 3.0, float("nan"),
    float("inf"), Decimal128("0.1"), Decimal128("1.50"), Decimal128("-7"), Decimal128("1E+3"), None, "text", True,
]  # fmt: skip
WORDS = ["ant", "bee", "cat", "dog", "elk", "Ant", ""]


class Generator:
    """Everything follows from the seed."""

    def __init__(self, seed: int, database: str) -> None:
        self.random = random.Random(seed)
        self.things = f"{database}.things"

    def number(self) -> Any:
        return self.random.choice(NUMBERS)

    def thing(self) -> Document:
        draw = self.random
        thing: Document = {"a": draw.randrange(4), "w": draw.choice(WORDS)}
        if draw.random() < 0.8:
            thing["n"] = self.number()
        if draw.random() < 0.7:
            thing["ref"] = draw.choice([draw.randrange(6), draw.randrange(6), [draw.randrange(6), 1], None, "x"])
        if draw.random() < 0.6:
            thing["tags"] = [draw.choice(WORDS) for _ in range(draw.randrange(4))]
        if draw.random() < 0.6:
            thing["deep"] = draw.choice(
                [{"x": draw.randrange(3), "y": draw.choice(WORDS)}, [{"x": 1}, {"x": draw.randrange(3), "y": 2}, 5], 4]
            )
        return thing

    def other(self) -> Document:
        draw = self.random
        other: Document = {"a": draw.randrange(4), "v": draw.randrange(10), "w": draw.choice(WORDS)}
        if draw.random() < 0.9:
            other["fk"] = draw.choice([draw.randrange(6), float(draw.randrange(6)), [draw.randrange(6), 2], None])
        return other

    def filter(self) -> Document:
        draw = self.random
        if draw.random() < 0.35:
            return {}
        return draw.choice(
            [
                {"a": draw.randrange(4)},
                {"a": {"$gte": draw.randrange(4)}},
                {"a": {"$in": [draw.randrange(4), draw.randrange(4)]}},
                {"w": {"$regex": draw.choice(["^a", "e", "t$"])}},
                {"n": {"$gt": 0}},
                {"n": None},
                {"tags": draw.choice(WORDS)},
                {"deep.x": {"$exists": True}},
                {"$or": [{"a": 0}, {"w": "bee"}]},
                {"$expr": {"$gt": ["$a", 1]}},
            ]
        )

    def sort(self) -> tuple[tuple[str, int], ...]:
        draw = self.random
        paths = draw.sample(["a", "w", "n", "deep.x", "tags", "_id"], draw.choice([1, 1, 2]))
        if "tags" in paths and "deep.x" in paths:
            paths.remove("tags")
        return tuple((path, draw.choice([1, -1])) for path in paths)

    def projection(self) -> Document | None:
        draw = self.random
        return draw.choice(
            [
                None,
                {"w": 1},
                {"a": 0, "deep.x": 0},
                {"_id": 0, "n": 1, "deep.y": 1},
                {"w": 1, "twice": {"$add": ["$a", "$a"]}},
            ]
        )

    def query(self) -> Query:
        draw = self.random
        kind = draw.choice(
            [
                "filter",
                "sorted",
                "limited",
                "limited",
                "limited",
                "window",
                "window",
                "window",
                "skip",
                "count",
                "distinct",
                "shape",
            ]
            + ["group"] * 4
            + ["ordered group", "join", "join", "unwound join", "join group", "unwind", "limited pipeline"]
        )
        return getattr(self, f"_{kind.replace(' ', '_')}")()  # type: ignore[no-any-return]

    def _find(self, **options: Any) -> Query:
        return Query(
            namespace=self.things,
            operation=Operation.FIND,
            filter=self.filter(),
            projection=self.projection(),
            **options,
        )

    def _filter(self) -> Query:
        return self._find()

    def _sorted(self) -> Query:
        return self._find(sort=self.sort())

    def _limited(self) -> Query:
        return self._find(sort=self.sort() if self.random.random() < 0.8 else (), limit=self.random.randint(1, 5))

    def _window(self) -> Query:
        draw = self.random
        return self._find(sort=self.sort(), skip=draw.randint(1, 4), limit=draw.randint(1, 4))

    def _skip(self) -> Query:
        return self._find(sort=self.sort(), skip=self.random.randint(1, 4))

    def _count(self) -> Query:
        draw = self.random
        return Query(
            namespace=self.things,
            operation=Operation.COUNT,
            filter=self.filter(),
            skip=draw.choice([0, 0, 2]),
            limit=draw.choice([0, 0, 3]),
        )

    def _distinct(self) -> Query:
        path = self.random.choice(["a", "n", "tags", "deep.x", "deep.y", "ref", "deep.1.x"])
        return Query(namespace=self.things, operation=Operation.DISTINCT, filter=self.filter(), distinct_key=path)

    def _aggregate(self, *stages: Document) -> Query:
        leading = [{"$match": self.filter()}] if self.random.random() < 0.8 else []
        return Query(namespace=self.things, operation=Operation.AGGREGATE, filter={}, pipeline=(*leading, *stages))

    def _shape(self) -> Query:
        draw = self.random
        stages = draw.sample(
            [
                {"$addFields": {"b": {"$concat": ["$w", "!"]}, "w": "$a"}},
                {"$project": {"a": 1, "w": 1, "n": 1, "deep": {"x": 1}}},
                {"$unset": ["n", "deep.y"]},
                {"$match": {"a": {"$lt": 3}}},
                {"$replaceWith": {"_id": "$_id", "a": "$a", "w": "$w"}},
            ],
            draw.randint(1, 3),
        )
        return self._aggregate(*stages)

    def _group_stage(self) -> Document:
        draw = self.random
        group_id = draw.choice([None, "$a", "$w", "$n", {"a": "$a", "w": "$w"}, {"$toLower": "$w"}, "$missing"])
        fields = {
            "sum": {"$sum": "$n"},
            "avg": {"$avg": "$n"},
            "min": {"$min": "$n"},
            "max": {"$max": "$n"},
            "count": {"$count": {}},
            "set": {"$addToSet": draw.choice(["$w", "$tags", "$n"])},
            "total": {"$sum": {"$multiply": ["$a", 1.5]}},
            "least": {"$min": "$w"},
        }
        chosen = draw.sample(sorted(fields), draw.randint(1, 4))
        return {"$group": {"_id": group_id, **{name: fields[name] for name in chosen}, "size": {"$sum": 1}}}

    def _group(self) -> Query:
        draw = self.random
        stages = [self._group_stage()]
        if draw.random() < 0.2:
            stages.insert(0, {"$addFields": {"w": {"$substrCP": ["$w", 0, 1]}}})
        if draw.random() < 0.4:
            stages.append({"$match": {"size": {"$gt": draw.randrange(3)}}})
        if draw.random() < 0.5:
            stages.append({"$sort": draw.choice([{"size": -1}, {"_id": 1}, {"size": 1, "_id": -1}])})
            if draw.random() < 0.6:
                stages.append({"$limit": draw.randint(1, 3)})
            if draw.random() < 0.3:
                stages.insert(-1, {"$skip": 1})
        if draw.random() < 0.3:
            stages.append({"$project": {"size": 1, "double": {"$multiply": ["$size", 2]}}})
        if draw.random() < 0.1:
            stages.append({"$limit": 2})
        if draw.random() < 0.1:
            stages = [draw.choice([{"$count": "n"}, {"$sortByCount": "$w"}])]
        return self._aggregate(*stages)

    def _ordered_group(self) -> Query:
        draw = self.random
        return self._aggregate(
            {"$sort": dict(self.sort())},
            {
                "$group": {
                    "_id": draw.choice([None, "$a", "$w"]),
                    "first": {"$first": "$n"},
                    "last": {"$last": "$w"},
                    "all": {"$push": "$w"},
                    "sum": {"$sum": "$a"},
                }
            },
        )

    def _lookup_stage(self) -> Document:
        draw = self.random
        lookup: Document = {"from": "others", "localField": "ref", "foreignField": "fk", "as": "joined"}
        if draw.random() < 0.3:
            lookup |= {"localField": draw.choice(["a", "deep.x", "missing"]), "foreignField": draw.choice(["a", "v"])}
        if draw.random() < 0.5:
            inner: list[Document] = []
            if draw.random() < 0.6:
                inner.append({"$match": draw.choice([{"v": {"$gt": 3}}, {"a": {"$in": [0, 1]}}, {"w": "ant"}])})
            if draw.random() < 0.4:
                lookup["let"] = {"mine": "$a"}
                inner.append({"$match": {"$expr": {"$gte": ["$v", "$$mine"]}}})
            if draw.random() < 0.4:
                inner.append({"$project": {"v": 1, "fk": 1}})
            if draw.random() < 0.5:
                inner += [{"$sort": {"v": -1}}, {"$limit": 2}]
                if draw.random() < 0.3:
                    inner.append({"$match": {"v": {"$lt": 7}}})
            lookup["pipeline"] = inner
            if "let" in lookup and draw.random() < 0.3:
                del lookup["localField"], lookup["foreignField"]
        return {"$lookup": lookup}

    def _join(self) -> Query:
        draw = self.random
        stages = [self._lookup_stage()]
        if draw.random() < 0.3:
            stages.append({"$match": {"joined.v": {"$gt": 2}}})
        if draw.random() < 0.4:
            stages.append({"$addFields": {"partners": {"$size": "$joined"}}})
        if draw.random() < 0.4:
            stages += [{"$sort": dict(self.sort())}, {"$limit": draw.randint(1, 4)}]
        elif draw.random() < 0.3:
            stages = [{"$sort": dict(self.sort())}, {"$limit": draw.randint(1, 4)}, self._lookup_stage()]
        return self._aggregate(*stages)

    def _unwound_join(self) -> Query:
        draw = self.random
        preserve = draw.choice([True, False])
        return self._aggregate(
            self._lookup_stage(),
            {"$unwind": {"path": "$joined", "preserveNullAndEmptyArrays": preserve}},
            {"$project": {"a": 1, "v": "$joined.v"}},
        )

    def _join_group(self) -> Query:
        return self._aggregate(
            self._lookup_stage(),
            {"$unwind": "$joined"},
            {"$group": {"_id": "$a", "sum": {"$sum": "$joined.v"}, "max": {"$max": "$joined.v"}}},
        )

    def _unwind(self) -> Query:
        draw = self.random
        options: Document = {"path": "$tags", "preserveNullAndEmptyArrays": draw.choice([True, False])}
        if draw.random() < 0.5:
            options["includeArrayIndex"] = "at"
        stages: list[Document] = [{"$unwind": options}]
        if draw.random() < 0.5:
            stages += [{"$group": {"_id": "$tags", "count": {"$sum": 1}}}, {"$sort": {"count": -1}}, {"$limit": 3}]
        return self._aggregate(*stages)

    def _limited_pipeline(self) -> Query:
        draw = self.random
        return self._aggregate(
            {"$sort": dict(self.sort())},
            *draw.choice([[], [{"$skip": 2}]]),
            {"$limit": draw.randint(2, 5)},
            {"$project": {"a": 1, "w": 1}},
        )
