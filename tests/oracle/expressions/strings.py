"""Random expressions that give a string, and regular expressions on one."""

from __future__ import annotations

from typing import Any

from tests.oracle.expressions import values
from tests.oracle.expressions.dates import Dates


class Strings(Dates):
    """Pieces of strings, what other values look like as one, and patterns."""

    def string(self, depth: int) -> Any:
        return self._pick(depth, self._string_leaf, (self._string, self._string, self._string_of))

    def _string_leaf(self) -> Any:
        return self.random.choice(
            ("$s", "$t", {"$literal": values.string(self.random)}, {"$literal": values.string(self.random)})
        )

    def _string(self, depth: int) -> Any:
        random, s = self.random, self.string
        kind = random.randrange(8)
        if kind == 0:
            return {"$concat": [s(depth) for _ in range(random.randrange(5))]}
        if kind == 1:
            return {random.choice(("$toLower", "$toUpper")): random.choice((s(depth), self.any(depth)))}
        if kind == 2:
            return {random.choice(("$substrBytes", "$substrCP", "$substr")): [s(depth), self.small(), self.small()]}
        if kind == 3:
            members: dict[str, Any] = {"input": s(depth)}
            if random.random() < 0.5:
                members["chars"] = s(0)
            return {random.choice(("$trim", "$ltrim", "$rtrim")): members}
        if kind == 4:
            members = {"input": s(depth), "find": s(0), "replacement": s(0)}
            return {random.choice(("$replaceOne", "$replaceAll")): members}
        if kind == 5:
            return {"$arrayElemAt": [{"$split": [s(depth), s(0)]}, self.small()]}
        if kind == 6:
            return self._regex("$regexFind", depth)
        return {"$concat": [s(depth), {"$toString": self.any(depth)}]}

    def _string_of(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(4)
        if kind == 0:
            return {"$type": self.any(depth)}
        if kind == 1:
            return {"$toString": self.any(depth)}
        members: dict[str, Any] = {"date": self.date(depth)}
        if random.random() < 0.7:
            pieces = [random.choice("dGHjLmMSuUVYzZw%") for _ in range(random.randrange(5))]
            members["format"] = random.choice(("-", " ", "é")).join(f"%{piece}" for piece in pieces)
        if random.random() < 0.1:
            members["onNull"] = self.leaf()
        return {"$dateToString": self._zoned(members)}

    def _regex(self, name: str, depth: int) -> Any:
        random = self.random
        members: dict[str, Any] = {"input": self.string(depth)}
        source = random.choice(values.PATTERNS)
        members["regex"] = {"$literal": source} if random.random() < 0.8 else random.choice(("$s", "$t", "$x", None, 5))
        if random.random() < 0.3:
            members["options"] = random.choice(("i", "m", "s", "x", "im", "", None, "q"))
        return {name: members}
