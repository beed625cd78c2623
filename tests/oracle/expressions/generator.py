"""Random expressions, mostly well typed so that they get past their operands, sometimes not so that they fail."""

from __future__ import annotations

from typing import Any

from tests.oracle.expressions.containers import Containers
from tests.oracle.expressions.numbers import TRANSCENDENTAL, TRIGONOMETRY, Numbers

TYPES = ("int", "long", "double", "decimal", "string", "bool", "date", "objectId", "array", 1, 2, 8, 16, 18, 19)
INEXACT = frozenset((*TRIGONOMETRY, *TRANSCENDENTAL, "$log", "$pow", "$atan2", "$stdDevPop", "$stdDevSamp"))
"""Operators whose last digit depends on the library that computes them."""


class Generator(Numbers, Containers):
    """Expressions of every kind."""

    def any(self, depth: int) -> Any:
        pick = self.random.choice(
            (self.number, self.string, self.date, self.array, self.object, self.boolean, self.leaf, self.shaped)
        )
        return pick(depth)

    def boolean(self, depth: int) -> Any:
        return self._pick(depth, lambda: self.random.choice((True, False, "$f")), (self._boolean,))

    def _boolean(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(9)
        if kind < 3:
            same = random.choice((self.number, self.string, self.date, self.array, self.any))
            return {random.choice(("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")): [same(depth), same(depth)]}
        if kind == 3:
            return {random.choice(("$and", "$or")): [self.any(depth) for _ in range(random.randrange(4))]}
        if kind == 4:
            return {"$not": [self.any(depth)]}
        if kind == 5:
            return {"$in": [self.any(depth), self.array(depth)]}
        if kind == 6:
            name = random.choice(("$setEquals", "$setIsSubset"))
            return {name: [self.array(depth), self.array(depth)]}
        if kind == 7:
            return {random.choice(("$anyElementTrue", "$allElementsTrue", "$isArray")): [self.array(depth)]}
        return random.choice(
            ({"$isNumber": self.any(depth)}, {"$toBool": self.any(depth)}, self._regex("$regexMatch", depth))
        )

    def shaped(self, depth: int) -> Any:
        if depth <= 0:
            return self.leaf()
        depth -= 1
        random = self.random
        kind = random.randrange(9)
        if kind == 0:
            return {"$cond": [self.boolean(depth), self.any(depth), self.any(depth)]}
        if kind == 1:
            return {"$ifNull": [self.any(depth) for _ in range(random.randrange(2, 4))]}
        if kind == 2:
            cases = range(random.randrange(1, 3))
            members: dict[str, Any] = {
                "branches": [{"case": self.boolean(depth), "then": self.any(depth)} for _ in cases]
            }
            if random.random() < 0.8:
                members["default"] = self.any(depth)
            return {"$switch": members}
        if kind == 3:
            values_of = {name: self.any(depth) for name in ("v", "w")[: random.randrange(1, 3)]}
            return {"$let": {"vars": values_of, "in": self._within(tuple(values_of), lambda: self.any(depth))}}
        if kind == 4:
            name = random.choice(("$first", "$last", "$min", "$max"))
            return {name: [self.array(depth)]}
        if kind == 5:
            return {"$arrayElemAt": [self.array(depth), self.small()]}
        if kind == 6:
            return random.choice(({"$getField": "a"}, {"$getField": {"field": "a", "input": self.object(depth)}}))
        if kind == 7:
            members = {"input": self.any(depth), "to": random.choice(TYPES)}
            for field in ("onError", "onNull"):
                if random.random() < 0.4:
                    members[field] = self.leaf()
            return {"$convert": members}
        return random.choice(
            ({"$bsonSize": self.object(depth)}, {"$binarySize": self.string(depth)}, {"$tsSecond": self.leaf()},
             {"$min": [self.any(depth), self.any(depth)]}, {"$max": [self.any(depth), self.any(depth)]})
        )  # fmt: skip


def count(expression: Any, names: frozenset[str]) -> int:
    """How often the operators occur in the expression."""
    if isinstance(expression, dict):
        return sum((name in names) + count(member, names) for name, member in expression.items())
    return sum(count(member, names) for member in expression) if isinstance(expression, list) else 0
