"""Arrays: measuring, picking, cutting, joining, searching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.invalidation.query.bson_order import MISSING
from quaestor.invalidation.query.expressions.errors import ExpressionError
from quaestor.invalidation.query.expressions.forms import Function, associative, fixed, members_of, ordered, ranged
from quaestor.invalidation.query.expressions.kinds import NUMERIC, is_nullish, kind_of, truthy
from quaestor.invalidation.query.expressions.nodes import Compiled, Frame, Operator, Scope
from quaestor.invalidation.query.expressions.numeric import as_int32
from quaestor.invalidation.query.expressions.strings import index_bound

_RANGE_LIMIT: Final = 100 * 1024 * 1024 // 16
"""How many numbers a `$range` may hold within mongod's default memory limit of 100 MiB."""


def is_array(value: Any) -> bool:
    return isinstance(value, list | tuple)


def none_for_missing(value: Any) -> Any:
    """An array cannot hold missing; null takes its place."""
    return None if value is MISSING else value


def _size(value: Any) -> int:
    if not is_array(value):
        raise ExpressionError(f"The argument to $size must be an array, but was of type: {kind_of(value)}")
    return len(value)


def _in(scope: Scope) -> Function:
    key = scope.order_key

    def contains(value: Any, array: Any) -> bool:
        if not is_array(array):
            raise ExpressionError(f"$in requires an array as a second argument, found: {kind_of(array)}")
        wanted = key(value)
        return any(key(member) == wanted for member in array)

    return contains


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
    """`$first` and `$last`."""

    def end(name: str, array: Any) -> Any:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"{name}'s argument must be an array, but is {kind_of(array)}")
        return array[position] if array else MISSING

    return fixed(1, end, named=True)


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


def _concat_arrays(*arrays: Any) -> Any:
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
        raise ExpressionError(f"$range would use too much memory for {len(numbers)} numbers")
    return list(numbers)


def _index_of_array(scope: Scope) -> Function:
    key = scope.order_key

    def index_of(array: Any, value: Any, start: Any = 0, end: Any = MISSING) -> Any:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"$indexOfArray requires an array as a first argument, found: {kind_of(array)}")
        first = index_bound("$indexOfArray", start, "starting")
        last = len(array) if end is MISSING else min(len(array), index_bound("$indexOfArray", end, "ending"))
        wanted = key(value)
        return next((position for position in range(first, last) if key(array[position]) == wanted), -1)

    return index_of


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
    arrays = [part.evaluate(frame) for part in inputs]
    for array in arrays:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(f"$zip found a non-array expression in input: {array}")
    fills = [none_for_missing(part.evaluate(frame)) for part in defaults] or [None] * len(arrays)
    lengths = [len(array) for array in arrays]
    return [
        [array[row] if row < len(array) else fill for array, fill in zip(arrays, fills, strict=True)]
        for row in range(max(lengths) if longest else min(lengths))
    ]


OPERATORS: Final[Mapping[str, Operator]] = {
    "$size": fixed(1, _size),
    "$in": ordered(_in, lambda function: fixed(2, function)),
    "$arrayElemAt": fixed(2, _element_at),
    "$first": _end(0),
    "$last": _end(-1),
    "$slice": ranged(2, 3, _slice),
    "$concatArrays": associative(_concat_arrays, commutative=False),
    "$reverseArray": fixed(1, _reverse),
    "$range": ranged(2, 3, _range),
    "$indexOfArray": ordered(_index_of_array, lambda function: ranged(2, 4, function)),
    "$isArray": fixed(1, is_array),
    "$anyElementTrue": _elements_true(any),
    "$allElementsTrue": _elements_true(all),
    "$zip": _zip,
}
