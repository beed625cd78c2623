"""`$sum`, `$avg`, `$min`, `$max`, `$stdDevPop`, `$stdDevSamp` over their operands, or over one array.

A single operand that is an array stands for its elements; among several operands an array is an ordinary value. Only numbers
count; in `$min` and `$max` all values except null and missing count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from quaestor.query.expressions.arithmetic import decimal_total, total_of
from quaestor.query.expressions.forms import Function, associative, ordered, variadic
from quaestor.query.expressions.kinds import NUMERIC, is_array, is_nullish, kind_of
from quaestor.query.expressions.nodes import Operator, Scope
from quaestor.query.expressions.numeric import DECIMAL, DoubleDouble, decimal128, to_double, widest


def elements_or_operands(values: Iterable[Any]) -> Sequence[Any]:
    """Return the elements of a single operand that is an array, else the operands."""
    operands = list(values)
    if len(operands) == 1 and is_array(operands[0]):
        elements: Sequence[Any] = operands[0]
        return elements
    return operands


def _numbers(values: Iterable[Any]) -> tuple[str, list[Any]]:
    """Return (widest type, the numbers)."""
    numbers, kinds = [], []
    for value in elements_or_operands(values):
        kind = kind_of(value)
        if kind in NUMERIC:
            numbers.append(value)
            kinds.append(kind)
    return widest(kinds), numbers


def _sum(values: Iterable[Any]) -> Any:
    return total_of(*_numbers(values))


def _avg(values: Iterable[Any]) -> Any:
    kind, numbers = _numbers(values)
    if not numbers:
        return None
    if kind == "decimal":
        return decimal128(DECIMAL.divide(decimal_total(numbers), Decimal(len(numbers))))
    return DoubleDouble(numbers).double() / len(numbers)


def _extreme(sign: int) -> Callable[[Scope], Function]:
    """Return the accumulator with this sign: 1 for `$max`, -1 for `$min`. Of equal values the first wins."""

    def make(scope: Scope) -> Function:
        key = scope.order_key

        def extreme(values: Iterable[Any]) -> Any:
            best, best_key = None, None
            for value in elements_or_operands(values):
                if is_nullish(value):
                    continue
                value_key = key(value)
                if best_key is None or (value_key > best_key if sign > 0 else value_key < best_key):
                    best, best_key = value, value_key
            return best

        return extreme

    return make


def _standard_deviation(less: int) -> Function:
    """Return a standard deviation by Welford's algorithm, in doubles. less: subtracted from the count, 1 for a sample."""

    def deviation(values: Iterable[Any]) -> Any:
        count, mean, squares = 0, 0.0, 0.0
        for value in elements_or_operands(values):
            if kind_of(value) not in NUMERIC:
                continue
            count += 1
            number = to_double(value)
            delta = number - mean
            mean += delta / count
            squares += delta * (number - mean)
        if count <= less:
            return None
        return math.sqrt(squares / (count - less))

    return deviation


OPERATORS: Final[Mapping[str, Operator]] = {
    "$sum": associative(_sum, commutative=True, alone=False),
    "$avg": variadic(_avg),
    "$min": ordered(_extreme(-1), lambda function: associative(function, commutative=True, alone=False)),
    "$max": ordered(_extreme(1), lambda function: associative(function, commutative=True, alone=False)),
    "$stdDevPop": variadic(_standard_deviation(0)),
    "$stdDevSamp": variadic(_standard_deviation(1)),
}
