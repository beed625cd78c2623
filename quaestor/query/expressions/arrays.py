"""Arrays: measuring, picking, cutting, joining, searching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.bson_order import MISSING
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import (
    Function,
    arguments_of,
    associative,
    check_count,
    check_exactly,
    fixed,
    members_of,
    ranged,
)
from quaestor.query.expressions.kinds import NUMERIC, is_array, is_nullish, kind_of, truthy
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, call, constant
from quaestor.query.expressions.numeric import as_int32
from quaestor.query.expressions.strings import index_bounds

_RANGE_LIMIT: Final = 1_000_000
"""Longest `$range` in numbers; mongod's own limit depends on the memory that it counts."""


def _size(value: Any) -> int:
    if not is_array(value):
        raise ExpressionError(f"The argument to $size must be an array, but was of type: {kind_of(value)}")
    return len(value)


def _in(name: str, operand: Any, scope: Scope) -> Compiled:
    value, array = check_exactly(name, arguments_of(operand, scope), 2)
    key = scope.order_key
    if array.is_constant and is_array(array.constant) and not value.is_constant:
        members = frozenset(key(member) for member in array.constant)
        evaluate = value.evaluate
        return Compiled(lambda frame: key(evaluate(frame)) in members)

    def contains(wanted: Any, searched: Any) -> bool:
        if not is_array(searched):
            raise ExpressionError(f"$in requires an array as a second argument, found: {kind_of(searched)}")
        place = key(wanted)
        return any(key(member) == place for member in searched)

    return call(contains, (value, array), scope)


def _element_at(array: Any, index: Any) -> Any:
    if is_nullish(array) or is_nullish(index):
        return None
    if not is_array(array):
        raise ExpressionError(f"$arrayElemAt's first argument must be an array, but is {kind_of(array)}")
    if kind_of(index) not in NUMERIC:
        raise ExpressionError(f"$arrayElemAt's second argument must be a numeric value, but is {kind_of(index)}")
    position = as_int32(index)
    if position is None:
        raise ExpressionError(f"$arrayElemAt's second argument must be representable as a 32-bit integer: {index}")
    return array[position] if -len(array) <= position < len(array) else MISSING


def _end(position: int) -> Operator:
    """Return `$first` or `$last`."""

    def end(name: str, array: Any) -> Any:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"{name}'s argument must be an array, but is {kind_of(array)}")
        return array[position] if array else MISSING

    return fixed(1, end, named=True)


def _slice_operator(name: str, operand: Any, scope: Scope) -> Compiled:
    """Compile `$slice`: the array and the second operand are evaluated together; if one is null, a third is not evaluated."""
    operands = arguments_of(operand, scope)
    check_count(name, len(operands), 2, 3)
    if len(operands) == 2:
        return call(_slice, operands, scope)
    pair = call(lambda *both: None if any(is_nullish(value) for value in both) else both, operands[:2], scope)
    return call(lambda both, third: _slice(*both, third), [pair, operands[2]], scope, deciding=1)


def _slice(array: Any, second: Any, *third: Any) -> Any:
    if is_nullish(array) or is_nullish(second):
        return None
    if not is_array(array):
        raise ExpressionError(f"First argument to $slice must be an array, but is of type: {kind_of(array)}")
    first = _slice_bound("Second", second)
    if not third:
        return list(array[:first] if first >= 0 else array[first:])
    if is_nullish(third[0]):
        return None
    count = _slice_bound("Third", third[0])
    if count <= 0:
        raise ExpressionError(f"Third argument to $slice must be positive: {count}")
    start = max(len(array) + first, 0) if first < 0 else first
    return list(array[start : start + count])


def _slice_bound(position: str, value: Any) -> int:
    if kind_of(value) not in NUMERIC:
        raise ExpressionError(
            f"{position} argument to $slice must be a numeric value, but is of type: {kind_of(value)}"
        )
    bound = as_int32(value)
    if bound is None:
        raise ExpressionError(f"{position} argument to $slice can't be represented as a 32-bit integer: {value}")
    return bound


def _concat_arrays(arrays: Iterable[Any]) -> Any:
    joined: list[Any] = []
    for array in arrays:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"$concatArrays only supports arrays, not {kind_of(array)}")
        joined += array
    return joined


def _reverse(array: Any) -> Any:
    if is_nullish(array):
        return None
    if not is_array(array):
        raise ExpressionError(f"The argument to $reverseArray must be an array, but was of type: {kind_of(array)}")
    return list(array[::-1])


def _range(start: Any, end: Any, step: Any = 1) -> list[int]:
    bounds = []
    for value, role in ((start, "starting"), (end, "ending"), (step, "step")):
        if kind_of(value) not in NUMERIC:
            raise ExpressionError(f"$range requires a numeric {role} value, found value of type: {kind_of(value)}")
        bound = as_int32(value)
        if bound is None:
            raise ExpressionError(
                f"$range requires a {role} value that can be represented as a 32-bit integer, found value: {value}"
            )
        bounds.append(bound)
    if not bounds[2]:
        raise ExpressionError("$range requires a non-zero step value")
    numbers = range(*bounds)
    if len(numbers) > _RANGE_LIMIT:
        raise UnsupportedQueryError(f"a $range of more than {_RANGE_LIMIT} numbers")
    return list(numbers)


def _index_of_array(scope: Scope) -> Function:
    key = scope.order_key

    def index_of(array: Any, value: Any, *bounds: Any) -> Any:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"$indexOfArray requires an array as a first argument, found: {kind_of(array)}")
        first, last = index_bounds("$indexOfArray", bounds)
        last = len(array) if last is None else min(len(array), last)
        wanted = key(value)
        return next((position for position in range(first, last) if key(array[position]) == wanted), -1)

    return index_of


def _index_of_array_operator(name: str, operand: Any, scope: Scope) -> Compiled:
    """Compile `$indexOfArray`: a constant array is checked at compilation, as in mongod's optimiser."""
    operands = arguments_of(operand, scope)
    check_count(name, len(operands), 2, 4)
    array = operands[0]
    if array.is_constant and is_nullish(array.constant):
        return constant(None)
    if array.is_constant and not is_array(array.constant):
        scope.build.failures.append(ExpressionError(f"First operand of {name} must be an array"))
    return call(_index_of_array(scope), operands, scope, deciding=1)


def _elements_true(decide: Callable[[Any], bool]) -> Operator:
    def elements_true(name: str, array: Any) -> bool:
        if not is_array(array):
            raise ExpressionError(f"{name}'s argument must be an array, but is {kind_of(array)}")
        return decide(truthy(member) for member in array)

    return fixed(1, elements_true, named=True)


def _zip(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=(),
        optional=("inputs", "defaults", "useLongestLength"),
        unknown="{name} found an unknown argument: {field}",
        not_object="{name} only supports an object as an argument, found {kind}",
    )
    compiled = {}
    for field in ("inputs", "defaults"):
        written = members.get(field, [])
        if not isinstance(written, list):
            raise MalformedQueryError(f"{field} must be an array of expressions, found {kind_of(written)}")
        compiled[field] = [scope.compile(member) for member in written]
    longest = members.get("useLongestLength", False)
    if not isinstance(longest, bool):
        raise MalformedQueryError(f"useLongestLength must be a bool, found {kind_of(longest)}")
    inputs, defaults = compiled["inputs"], compiled["defaults"]
    if not inputs:
        raise MalformedQueryError("$zip requires at least one input array")
    if defaults and not longest:
        raise MalformedQueryError("cannot specify defaults unless useLongestLength is true")
    if defaults and len(defaults) != len(inputs):
        raise MalformedQueryError("defaults and inputs must have the same length")
    return Compiled(lambda frame: _zipped(frame, inputs, defaults, longest))


def _zipped(frame: Frame, inputs: list[Compiled], defaults: list[Compiled], longest: bool) -> Any:
    arrays: list[Any] = []
    for part in inputs:
        array = part.evaluate(frame)
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"$zip found a non-array expression in input: {array}")
        arrays.append(array)
    fills = [part.evaluate(frame) for part in defaults] or [None] * len(arrays)
    lengths = [len(array) for array in arrays]
    if any(fill is MISSING and size < max(lengths) for fill, size in zip(fills, lengths, strict=True)):
        raise UnsupportedQueryError("$zip with a default that is missing leaves holes")
    return [
        [array[row] if row < len(array) else fill for array, fill in zip(arrays, fills, strict=True)]
        for row in range(max(lengths) if longest else min(lengths))
    ]


OPERATORS: Final[Mapping[str, Operator]] = {
    "$size": fixed(1, _size),
    "$in": _in,
    "$arrayElemAt": fixed(2, _element_at),
    "$first": _end(0),
    "$last": _end(-1),
    "$slice": _slice_operator,
    "$concatArrays": associative(_concat_arrays, commutative=False),
    "$reverseArray": fixed(1, _reverse),
    "$range": ranged(2, 3, _range),
    "$indexOfArray": _index_of_array_operator,
    "$isArray": fixed(1, is_array),
    "$anyElementTrue": _elements_true(any),
    "$allElementsTrue": _elements_true(all),
    "$zip": _zip,
}
