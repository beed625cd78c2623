"""Random schemas in MongoDB's dialect, mostly well formed, and documents they may fit."""

from __future__ import annotations

from random import Random
from typing import Any

from bson import Decimal128, Int64, Regex

from quaestor.query.expressions.kinds import TYPE_CODES
from tests.oracle.expressions import values

NAMES = ("a", "b", "c", "k", "v", "_id", "é", "", "$d")
JSON_TYPES = ("object", "array", "number", "boolean", "string", "null")
BSON_TYPES = tuple(name for name in TYPE_CODES if name not in ("missing", "undefined", "symbol", "dbPointer"))
PATTERNS = ("a", "^a", "b$", "^.$", "[a-c]", "^\\w$", "", "é", "^$", "_id", "(")
REFUSED = ("$ref", "$schema", "default", "definitions", "format", "id", "const", "$comment", "propertyNames")


class SchemaGenerator:
    def __init__(self, random: Random) -> None:
        self.random = random

    def schema(self, depth: int) -> dict[str, Any]:
        keywords = [
            self.types, self.bounds, self.multiple, self.lengths, self.pattern, self.items, self.unique, self.properties,
            self.properties, self.required, self.additional, self.enum, self.junction, self.dependencies, self.sizes,
        ]  # fmt: skip
        members: dict[str, Any] = {}
        for keyword in self.random.sample(keywords, self.random.randrange(1, 4)):
            members |= keyword(depth)
        if self.random.random() < 0.02:
            members[self.random.choice(REFUSED)] = self.nested(0)
        if self.random.random() < 0.03:
            members[self.random.choice(("title", "description"))] = self.random.choice(("text", "", 5, None))
        return members

    def nested(self, depth: int) -> Any:
        if self.random.random() < 0.01:
            return values.value(self.random)
        return self.schema(depth - 1) if depth > 0 else self.random.choice(({}, self.types(0), self.bounds(0)))

    def broken(self, value: Any) -> Any:
        """The value, or now and then something else altogether."""
        return values.value(self.random) if self.random.random() < 0.02 else value

    def names(self) -> list[str]:
        return self.random.sample(NAMES, self.random.randrange(1, 3))

    def types(self, depth: int) -> dict[str, Any]:
        random = self.random
        keyword, known = random.choice((("type", JSON_TYPES), ("bsonType", (*BSON_TYPES, "number"))))
        if random.random() < 0.02:
            known = (*known, "integer", "nope", "missing")
        if random.random() < 0.6:
            return {keyword: self.broken(random.choice(known))}
        return {keyword: self.broken(random.sample(known, random.randrange(1, 4)))}

    def bounds(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for keyword in self.random.sample(("minimum", "maximum"), self.random.randrange(1, 3)):
            members[keyword] = self.broken(values.number(self.random))
            if self.random.random() < 0.3:
                members[f"exclusive{keyword.capitalize()}"] = self.broken(self.random.random() < 0.7)
        return members

    def multiple(self, depth: int) -> dict[str, Any]:
        divisors = (
            1,
            2,
            3,
            0.5,
            0.1,
            7,
            Int64(2**40),
            Decimal128("0.01"),
            Decimal128("1E+3"),
            0,
            -1,
            float("nan"),
            1e300,
        )
        return {"multipleOf": self.broken(self.random.choice(divisors))}

    def length(self) -> Any:
        return self.broken(self.random.choice((0, 1, 2, 3, 2.0, Int64(1), Decimal128("2"), 5)))

    def lengths(self, depth: int) -> dict[str, Any]:
        return {self.random.choice(("minLength", "maxLength")): self.length()}

    def pattern(self, depth: int) -> dict[str, Any]:
        return {"pattern": self.broken(self.random.choice(PATTERNS))}

    def items(self, depth: int) -> dict[str, Any]:
        random = self.random
        members: dict[str, Any] = (
            {random.choice(("minItems", "maxItems")): self.length()} if random.random() < 0.4 else {}
        )
        kind = random.randrange(3)
        if kind == 0:
            members["items"] = self.broken(self.nested(depth))
        elif kind == 1:
            members["items"] = [self.nested(depth) for _ in range(random.randrange(3))]
        if random.random() < 0.4:
            members["additionalItems"] = self.broken(random.choice((True, False, self.nested(depth))))
        return members

    def unique(self, depth: int) -> dict[str, Any]:
        return {"uniqueItems": self.broken(self.random.random() < 0.8)}

    def properties(self, depth: int) -> dict[str, Any]:
        return {"properties": self.broken({name: self.nested(depth) for name in self.names()})}

    def required(self, depth: int) -> dict[str, Any]:
        return {"required": self.broken(self.names())}

    def additional(self, depth: int) -> dict[str, Any]:
        random = self.random
        members: dict[str, Any] = {}
        if random.random() < 0.7:
            members["additionalProperties"] = self.broken(random.choice((True, False, False, self.nested(depth))))
        if random.random() < 0.6:
            sources = random.sample(PATTERNS[:-1], random.randrange(1, 3))
            members["patternProperties"] = self.broken({source: self.nested(depth) for source in sources})
        return members

    def enum(self, depth: int) -> dict[str, Any]:
        members = [values.value(self.random) for _ in range(self.random.randrange(1, 5))]
        return {"enum": self.broken(members)}

    def junction(self, depth: int) -> dict[str, Any]:
        keyword = self.random.choice(("allOf", "anyOf", "oneOf", "not", "not"))
        if keyword == "not":
            return {keyword: self.broken(self.nested(depth))}
        return {keyword: self.broken([self.nested(depth) for _ in range(self.random.randrange(1, 4))])}

    def dependencies(self, depth: int) -> dict[str, Any]:
        choices = (self.names, lambda: self.nested(depth))
        return {"dependencies": self.broken({name: self.random.choice(choices)() for name in self.names()})}

    def sizes(self, depth: int) -> dict[str, Any]:
        return {self.random.choice(("minProperties", "maxProperties")): self.length()}


def document(random: Random) -> dict[str, Any]:
    """A document of the schemas' property names, nested twice."""
    members: dict[str, Any] = {"_id": random.choice((1, "a", values.number(random), {"a": 1}))}
    for name in random.sample(NAMES, random.randrange(1, 5)):
        members.setdefault(name, _member(random, 2))
    return members


def _member(random: Random, depth: int) -> Any:
    kind = random.randrange(6)
    if kind == 0 and depth:
        return {name: _member(random, depth - 1) for name in random.sample(NAMES, random.randrange(4))}
    if kind == 1 and depth:
        return [_member(random, depth - 1) for _ in range(random.randrange(4))]
    if kind == 2:
        return random.choice((1, 1.0, Int64(1), "a", "ab", "é", None, True, Regex("a")))
    return values.value(random)
