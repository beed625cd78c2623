"""Any operator on an operand of any shape: wrong arities, wrong names, wrong types. The refusals are compared."""

from __future__ import annotations

from random import Random
from typing import Any

from quaestor.query.expressions import refused
from quaestor.query.expressions.operators import OPERATORS
from tests.oracle.expressions.dates import DATE_PARTS
from tests.oracle.expressions.generator import Generator

NAMES = tuple(sorted(set(OPERATORS) - set(refused.OPERATORS)))
_PATTERN = ("input", "regex", "options")
_SHIFT = ("startDate", "unit", "amount", "timezone")
_PICK = ("n", "input")
_REPLACE = ("input", "find", "replacement")
FIELDS: dict[str, tuple[str, ...]] = {
    "$dateToString": ("date", "format", "timezone", "onNull"),
    "$dateFromString": ("dateString", "format", "timezone", "onNull", "onError"),
    "$dateToParts": ("date", "timezone", "iso8601"),
    "$dateFromParts": ("year", "month", "day", "hour", "isoWeekYear", "isoWeek", "timezone"),
    "$dateDiff": ("startDate", "endDate", "unit", "timezone", "startOfWeek"),
    "$dateTrunc": ("date", "unit", "binSize", "timezone", "startOfWeek"),
    "$convert": ("input", "to", "onError", "onNull"),
    "$zip": ("inputs", "defaults", "useLongestLength"),
    "$map": ("input", "as", "in"),
    "$filter": ("input", "as", "cond", "limit"),
    "$reduce": ("input", "initialValue", "in"),
    "$let": ("vars", "in"),
    "$cond": ("if", "then", "else"),
    "$switch": ("branches", "default"),
    "$getField": ("field", "input"),
    "$setField": ("field", "input", "value"),
    "$unsetField": ("field", "input"),
    "$sortArray": ("input", "sortBy"),
    **dict.fromkeys(("$dateAdd", "$dateSubtract"), _SHIFT),
    **dict.fromkeys(("$trim", "$ltrim", "$rtrim"), ("input", "chars")),
    **dict.fromkeys(("$replaceOne", "$replaceAll"), _REPLACE),
    **dict.fromkeys(("$regexMatch", "$regexFind", "$regexFindAll"), _PATTERN),
    **dict.fromkeys(("$maxN", "$minN", "$firstN", "$lastN"), _PICK),
    **dict.fromkeys(DATE_PARTS, ("date", "timezone")),
}
_PLAIN: tuple[Any, ...] = (
    None, 1, "x", [], {}, [1], {"a": 1}, True, "day", "$d", "$s", "$l", "$n", {"case": True, "then": 1},
    [{"case": "$f", "then": 1}], {"x": "$n"}, "$$REMOVE", "this",
)  # fmt: skip


def shaped(random: Random) -> Any:
    generator = Generator(random)

    def operand() -> Any:
        return generator.any(1) if random.random() < 0.2 else random.choice(_PLAIN)

    name = random.choice(NAMES)
    kind = random.randrange(4)
    written: Any
    if name in FIELDS and kind < 3:
        fields = [field for field in FIELDS[name] if random.random() < 0.85]
        if random.random() < 0.05:
            fields.append("zz")
        random.shuffle(fields)
        written = {field: operand() for field in fields}
    elif kind == 0:
        written = operand()
    else:
        written = [operand() for _ in range(random.randrange(5))]
    return {name: written, "b": 1} if random.random() < 0.03 else {name: written}
