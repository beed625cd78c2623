"""Random expressions that give an array or an object."""

from __future__ import annotations

from typing import Any

from tests.oracle.expressions import values
from tests.oracle.expressions.strings import Strings


class Containers(Strings):
    """Built, cut, sorted, iterated with variables of their own, and taken as sets."""

    def array(self, depth: int) -> Any:
        return self._pick(depth, self._array_leaf, (self._array, self._array, self._iterated, self._set))

    def _array_leaf(self) -> Any:
        return self.random.choice(
            ("$l", "$p", "$l", {"$literal": values.array(self.random)}, [self.leaf(), self.leaf()])
        )

    def _array(self, depth: int) -> Any:
        random, a = self.random, self.array
        kind = random.randrange(11)
        if kind == 0:
            return {"$concatArrays": [a(depth) for _ in range(random.randrange(4))]}
        if kind == 1:
            return {"$reverseArray": a(depth)}
        if kind == 2:
            return {"$slice": [a(depth), *[self.small() for _ in range(random.randrange(1, 3))]]}
        if kind == 3:
            return {"$range": [self.small(), self.small(), *[self.small() for _ in range(random.randrange(2))]]}
        if kind == 4:
            return {"$split": [self.string(depth), self.string(0)]}
        if kind == 5:
            members: dict[str, Any] = {"inputs": [a(depth) for _ in range(random.randrange(1, 3))]}
            if random.random() < 0.5:
                members["useLongestLength"] = True
                if random.random() < 0.5:
                    members["defaults"] = [self.leaf() for _ in members["inputs"]]
            return {"$zip": members}
        if kind == 6:
            order: Any = random.choice((1, -1, {"a": 1}, {"a": -1, "b": 1}, {"a.b": 1}, {"k": -1}, {"a.0": 1}))
            return {"$sortArray": {"input": a(depth), "sortBy": order}}
        if kind == 7:
            name = random.choice(("$firstN", "$lastN", "$minN", "$maxN"))
            return {name: {"n": random.choice((1, 2, 3, self.small())), "input": a(depth)}}
        if kind == 8:
            return {"$objectToArray": self.object(depth)}
        if kind == 9:
            return self._regex("$regexFindAll", depth)
        return [self.any(depth) for _ in range(random.randrange(4))]

    def _iterated(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(3)
        source = self.array(depth)
        if kind == 2:
            return {
                "$reduce": {
                    "input": source,
                    "initialValue": self.any(0),
                    "in": self._within(("this", "value"), lambda: self.any(depth)),
                }
            }
        variable = random.choice(("this", "it"))
        members: dict[str, Any] = {"input": source}
        if variable != "this":
            members["as"] = variable
        if kind == 0:
            members["in"] = self._within((variable,), lambda: self.any(depth))
            return {"$map": members}
        members["cond"] = self._within((variable,), lambda: self.boolean(depth))
        if random.random() < 0.2:
            members["limit"] = self.small()
        return {"$filter": members}

    def _set(self, depth: int) -> Any:
        name = self.random.choice(("$setUnion", "$setIntersection", "$setDifference"))
        count = 2 if name == "$setDifference" else self.random.randrange(1, 4)
        return {name: [self.array(depth) for _ in range(count)]}

    def object(self, depth: int) -> Any:
        return self._pick(depth, self._object_leaf, (self._object,))

    def _object_leaf(self) -> Any:
        return self.random.choice(("$o", "$$ROOT", {"$literal": values.document(self.random)}, {"a": self.leaf()}))

    def _object(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(6)
        if kind == 0:
            return {"$mergeObjects": [self.object(depth) for _ in range(random.randrange(1, 4))]}
        if kind == 1:
            return {
                "$setField": {
                    "field": random.choice(("a", "x.y", "b")),
                    "input": random.choice(("$o", "$x", "$$ROOT", {"$mergeObjects": ["$o"]})),
                    "value": self.any(depth),
                }
            }
        if kind == 2:
            return {"$unsetField": {"field": "a", "input": self.object(depth)}}
        if kind == 3:
            return {"$arrayToObject": random.choice((self.array(depth), {"$objectToArray": self.object(depth)}))}
        if kind == 4:
            return {name: self.any(depth) for name in random.sample(("a", "b", "c"), 2)}
        return self._date_part(depth)
