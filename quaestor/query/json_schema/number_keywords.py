"""Keywords for numbers: `minimum`, `maximum` and their exclusive forms, `multipleOf`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import order_key
from quaestor.query.expressions.kinds import is_number
from quaestor.query.expressions.numeric import decimal_remainder, to_decimal
from quaestor.query.json_schema import operands
from quaestor.query.json_schema.checks import Check, Context, Keyword, is_nan


def _bound(inclusive: Callable[[Any, Any], bool], strict: Callable[[Any, Any], bool], exclusive: str) -> Keyword:
    def bound(keyword: str, value: Any, context: Context) -> Check:
        operands.number(keyword, value)
        is_strict = operands.boolean(exclusive, context.schema.get(exclusive, False))
        relation = strict if is_strict else inclusive
        if is_nan(value):
            return lambda number: not is_number(number) or (not is_strict and is_nan(number))
        limit = order_key(value)
        return lambda number: not is_number(number) or (not is_nan(number) and relation(order_key(number), limit))

    return bound


def _exclusive(base: str) -> Keyword:
    def exclusive(keyword: str, value: Any, context: Context) -> None:
        operands.boolean(keyword, value)
        if base not in context.schema:
            raise MalformedQueryError(f"$jsonSchema keyword '{base}' must be a present if {keyword} is present")

    return exclusive


def _multiple_of(keyword: str, value: Any, context: Context) -> Check:
    divisor = to_decimal(operands.number(keyword, value))
    if not divisor.is_nan() and divisor <= 0:
        raise MalformedQueryError("$jsonSchema keyword 'multipleOf' must have a positive value")
    if divisor.is_nan() and not context.at_top:
        raise MalformedQueryError("divisor cannot be NaN")
    if divisor.is_infinite() and not context.at_top:
        raise MalformedQueryError("divisor cannot be infinite")
    return lambda number: not is_number(number) or decimal_remainder(to_decimal(number), divisor) == 0


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "minimum": _bound(operator.ge, operator.gt, "exclusiveMinimum"),
    "maximum": _bound(operator.le, operator.lt, "exclusiveMaximum"),
    "exclusiveMinimum": _exclusive("minimum"),
    "exclusiveMaximum": _exclusive("maximum"),
    "multipleOf": _multiple_of,
}
