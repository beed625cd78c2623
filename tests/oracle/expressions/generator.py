"""Random expressions, mostly well typed so that they get past their operands, sometimes not so that they fail."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.oracle.expressions import values

UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
TYPES = ("int", "long", "double", "decimal", "string", "bool", "date", "objectId", "array", 1, 2, 8, 16, 18, 19)
TRIGONOMETRY = (
    "$sin", "$cos", "$tan", "$asin", "$acos", "$atan", "$sinh", "$cosh", "$tanh", "$asinh", "$acosh", "$atanh",
    "$degreesToRadians", "$radiansToDegrees",
)  # fmt: skip
TRANSCENDENTAL = ("$sqrt", "$exp", "$ln", "$log10")
ROUNDING = ("$abs", "$ceil", "$floor", "$round", "$trunc")
DATE_PARTS = (
    "$year", "$month", "$dayOfMonth", "$hour", "$minute", "$second", "$millisecond", "$dayOfYear", "$dayOfWeek", "$week",
    "$isoWeek", "$isoWeekYear", "$isoDayOfWeek",
)  # fmt: skip
INEXACT = frozenset((*TRIGONOMETRY, *TRANSCENDENTAL, "$log", "$pow", "$atan2", "$stdDevPop", "$stdDevSamp"))
"""Operators whose last digit depends on the library that computes them."""


class Generator:
    """Draws from random, so the same generator serves Hypothesis (which shrinks) and long plain runs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.variables: list[str] = []

    def any(self, depth: int) -> Any:
        pick = self.random.choice(
            (self.number, self.string, self.date, self.array, self.object, self.boolean, self.leaf, self.shaped)
        )
        return pick(depth)

    def leaf(self, depth: int = 0) -> Any:
        random = self.random
        kind = random.randrange(10)
        if kind < 4:
            return "$" + random.choice(("n", "s", "d", "l", "o", "x", "z", "f", "none", "_id"))
        if kind == 4:
            return "$" + random.choice(("o.a", "o.a.b", "l.a", "x.a.b", "o.none", "l.k", "p.a.b"))
        if kind == 5 and self.variables:
            return "$$" + random.choice(self.variables) + random.choice(("", "", ".a"))
        if kind == 6:
            return random.choice(("$$ROOT", "$$CURRENT.n", "$$ROOT.o.b", "$$REMOVE", "$$CURRENT"))
        return {"$literal": values.value(random)}

    def mistyped(self, depth: int) -> Any:
        return self.any(depth - 1)

    def _pick(self, depth: int, leaves: Callable[[], Any], inner: tuple[Callable[[int], Any], ...]) -> Any:
        chance = self.random.random()
        if chance < 0.05:
            return self.mistyped(depth) if depth > 0 else self.leaf()
        if depth <= 0 or chance < 0.3:
            return leaves()
        return self.random.choice(inner)(depth - 1)

    # Numbers

    def number(self, depth: int) -> Any:
        return self._pick(depth, self._number_leaf, (self._arithmetic, self._arithmetic, self._unary, self._counted))

    def _number_leaf(self) -> Any:
        if self.variables and self.random.random() < 0.3:
            return "$$" + self.random.choice(self.variables)
        return self.random.choice(("$n", "$m", "$n", values.number(self.random), values.number(self.random)))

    def small(self) -> Any:
        return self.random.choice((0, 1, 2, 3, -1, -2, 5, 1.0, 2, 1, 0, "$n", 1.5, None, values.number(self.random)))

    def _arithmetic(self, depth: int) -> Any:
        random, n = self.random, self.number
        kind = random.randrange(12)
        if kind < 4:
            name = random.choice(
                ("$add", "$multiply", "$add", "$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp")
            )
            operands = [n(depth) for _ in range(random.randrange(1, 5))]
            return {name: operands}
        if kind < 8:
            return {random.choice(("$subtract", "$divide", "$mod", "$subtract")): [n(depth), n(depth)]}
        if kind == 8:
            return {random.choice(("$pow", "$log", "$atan2")): [n(depth), n(depth)]}
        if kind == 9:
            return {random.choice(("$round", "$trunc")): [n(depth), self.small()]}
        if kind == 10:
            return {"$subtract": [self.date(depth), self.date(depth)]}
        return {random.choice(("$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp")): self.array(depth)}

    def _unary(self, depth: int) -> Any:
        name = self.random.choice((*ROUNDING, *ROUNDING, *TRANSCENDENTAL, *TRIGONOMETRY))
        return {name: self.random.choice((self.number(depth), [self.number(depth)]))}

    def _counted(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(9)
        if kind == 0:
            return {"$size": [self.array(depth)]}
        if kind == 1:
            return {random.choice(("$strLenBytes", "$strLenCP")): self.string(depth)}
        if kind == 2:
            return {random.choice(("$strcasecmp", "$cmp")): [self.string(depth), self.string(depth)]}
        if kind == 3:
            operands = [self.string(depth), self.string(0), *[self.small() for _ in range(random.randrange(3))]]
            return {random.choice(("$indexOfBytes", "$indexOfCP")): operands}
        if kind == 4:
            operands = [self.array(depth), self.leaf(), *[self.small() for _ in range(random.randrange(3))]]
            return {"$indexOfArray": operands}
        if kind == 5:
            return self._date_part(depth)
        if kind == 6:
            return {random.choice(("$toInt", "$toLong", "$toDouble", "$toDecimal")): self.any(depth)}
        if kind == 7:
            return {"$cmp": [self.any(depth), self.any(depth)]}
        return {
            "$dateDiff": self._zoned(
                {"startDate": self.date(depth), "endDate": self.date(depth), "unit": self.unit()}, week=True
            )
        }

    # Booleans

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

    def _regex(self, name: str, depth: int) -> Any:
        random = self.random
        members: dict[str, Any] = {"input": self.string(depth)}
        source = random.choice(values.PATTERNS)
        members["regex"] = {"$literal": source} if random.random() < 0.8 else random.choice(("$s", "$t", "$x", None, 5))
        if random.random() < 0.3:
            members["options"] = random.choice(("i", "m", "s", "x", "im", "", None, "q"))
        return {name: members}

    # Strings

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

    # Dates

    def date(self, depth: int) -> Any:
        leaves = ("$d", "$e", values.date(self.random), values.date(self.random))
        return self._pick(depth, lambda: self.random.choice(leaves), (self._date, self._date, self._parsed))

    def unit(self) -> Any:
        chance = self.random.random()
        return "nope" if chance < 0.02 else None if chance < 0.04 else self.random.choice(UNITS)

    def _zoned(self, members: dict[str, Any], *, week: bool = False) -> dict[str, Any]:
        chance = self.random.random()
        if chance < 0.5:
            members["timezone"] = self.random.choice(values.ZONES)
        elif chance < 0.54:
            members["timezone"] = self.random.choice((None, "$s", "nope", 5))
        if week and self.random.random() < 0.3:
            members["startOfWeek"] = self.random.choice(("monday", "Sun", "wed", "FRIDAY", "x", None))
        return members

    def _date(self, depth: int) -> Any:
        random = self.random
        kind = random.randrange(6)
        if kind == 0:
            return {random.choice(("$add", "$subtract")): [self.date(depth), self.number(depth)]}
        if kind < 3:
            amount = random.choice((self.small(), random.randint(-400, 400), self.number(depth)))
            members = {"startDate": self.date(depth), "unit": self.unit(), "amount": amount}
            return {random.choice(("$dateAdd", "$dateSubtract")): self._zoned(members)}
        if kind < 5:
            members = {"date": self.date(depth), "unit": self.unit()}
            if random.random() < 0.6:
                members["binSize"] = random.choice((1, 2, 3, 5, 7, 12, 100, self.small()))
            return {"$dateTrunc": self._zoned(members, week=True)}
        return {"$toDate": self.any(depth)}

    def _parsed(self, depth: int) -> Any:
        random = self.random
        if random.random() < 0.5:
            iso = random.random() < 0.4
            members: dict[str, Any] = {
                ("isoWeekYear" if iso else "year"): random.choice((2020, 2021, 1999, 4, self.small()))
            }
            more = ("isoWeek", "isoDayOfWeek") if iso else ("month", "day")
            for field in (*more, "hour", "minute", "second", "millisecond"):
                if random.random() < 0.4:
                    members[field] = random.choice((1, 2, 12, 0, -1, 31, 60, 1000, self.small()))
            return {"$dateFromParts": self._zoned(members)}
        forms = (
            ("%Y-%m-%d", "2020-01-02"), ("%Y-%m-%d", "2020-02-30"), ("%d/%m/%Y %H:%M:%S", "02/01/2020 03:04:05"),
            ("%G-%V-%u", "2020-53-5"), ("%Y-%m-%dT%H:%M:%S.%L%z", "2020-01-02T03:04:05.678+0530"), ("%H:%M", "03:04"),
            (None, "2020-01-02T03:04:05.678Z"), (None, "2020-01-02"), (None, "nope"), (None, "2020-01-02 03:04"), (None, "$s"),
            (None, "$z"),
        )  # fmt: skip
        form, text = random.choice(forms)
        members = {"dateString": text}
        if form is not None:
            members["format"] = form
        for field in ("onError", "onNull"):
            if random.random() < 0.25:
                members[field] = self.leaf()
        return {"$dateFromString": self._zoned(members)}

    def _date_part(self, depth: int) -> Any:
        random = self.random
        if random.random() < 0.2:
            members: dict[str, Any] = {"date": self.date(depth)}
            if random.random() < 0.5:
                members["iso8601"] = random.choice((True, False))
            return {"$dateToParts": self._zoned(members)}
        name = random.choice(DATE_PARTS)
        if random.random() < 0.5:
            return {name: self.date(depth)}
        return {name: self._zoned({"date": self.date(depth)})}

    # Arrays and objects

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

    def _within(self, names: tuple[str, ...], make: Callable[[], Any]) -> Any:
        self.variables += names
        try:
            return make()
        finally:
            del self.variables[len(self.variables) - len(names) :]

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

    # Whatever holds any value

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
