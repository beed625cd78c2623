"""Arrays as sets: duplicates count once, and the order of the results is that of the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import Key
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import Function, arguments_of, associative, check_exactly, fixed, ordered
from quaestor.query.expressions.kinds import is_array, is_nullish, kind_of
from quaestor.query.expressions.nodes import Compiled, Operator, Scope, call


def _sorted_values(members: Mapping[Key, Any]) -> list[Any]:
    return [members[key] for key in sorted(members)]


def _checked(name: str, array: Any) -> Any:
    if not is_array(array):
        raise ExpressionError(f"All operands of {name} must be arrays. One argument is of type: {kind_of(array)}")
    return array


def _union(scope: Scope) -> Function:
    order_key = scope.order_key

    def union(arrays: Iterable[Any]) -> Any:
        members: dict[Key, Any] = {}
        for array in arrays:
            if is_nullish(array):
                return None
            for member in _checked("$setUnion", array):
                members.setdefault(order_key(member), member)
        return _sorted_values(members)

    return union


def _intersection(scope: Scope) -> Function:
    order_key = scope.order_key

    def intersection(arrays: Iterable[Any]) -> Any:
        members: dict[Key, Any] | None = None
        for array in arrays:
            if is_nullish(array):
                return None
            keys: dict[Key, Any] = {}
            for member in _checked("$setIntersection", array):
                keys.setdefault(order_key(member), member)
            if members is None:
                members = keys
                continue
            # Of equal values of different types, mongod keeps the value in the smaller set.
            fewer, more = (keys, members) if len(keys) < len(members) else (members, keys)
            members = {key: value for key, value in fewer.items() if key in more}
        return _sorted_values(members or {})

    return intersection


def _two_arrays(name: str, left: Any, right: Any) -> None:
    for array, position in ((left, "First"), (right, "Second")):
        if not is_array(array):
            raise ExpressionError(
                f"both operands of {name} must be arrays. {position} argument is of type: {kind_of(array)}"
            )


def _difference(scope: Scope) -> Function:
    order_key = scope.order_key

    def difference(left: Any, right: Any) -> Any:
        if is_nullish(left) or is_nullish(right):
            return None
        _two_arrays("$setDifference", left, right)
        seen = {order_key(member) for member in right}
        rest = []
        for member in left:
            key = order_key(member)
            if key not in seen:
                seen.add(key)
                rest.append(member)
        return rest

    return difference


def _equals(scope: Scope) -> Function:
    order_key = scope.order_key

    def equals(arrays: Iterable[Any]) -> bool:
        first: set[Key] | None = None
        for position, array in enumerate(arrays, start=1):
            if not is_array(array):
                raise ExpressionError(
                    f"All operands of $setEquals must be arrays. {position}-th argument is of type: {kind_of(array)}"
                )
            keys = {order_key(member) for member in array}
            if first is not None and keys != first:
                return False
            first = keys
        return True

    return equals


def _is_subset(scope: Scope) -> Function:
    order_key = scope.order_key

    def is_subset(left: Any, right: Any) -> bool:
        _two_arrays("$setIsSubset", left, right)
        return {order_key(member) for member in left} <= {order_key(member) for member in right}

    return is_subset


def _set_equals(name: str, operand: Any, scope: Scope) -> Compiled:
    """Compile `$setEquals`: mongod does not fold it, but checks its constants beforehand."""
    operands = arguments_of(operand, scope)
    if len(operands) < 2:
        raise MalformedQueryError(f"{name} needs at least two arguments had: {len(operands)}")
    for part in operands:
        if part.is_constant and not is_array(part.constant):
            scope.build.failures.append(ExpressionError(f"All operands of {name} must be arrays."))
    equals = _equals(scope)
    # The others are compared with the first constant; operands after a differing one are not examined.
    known = next((position for position, part in enumerate(operands) if part.is_constant), 0)
    evaluations = [part.evaluate for part in (operands[known], *operands[:known], *operands[known + 1 :])]
    return Compiled(lambda frame: equals(evaluate(frame) for evaluate in evaluations))


def _set_is_subset(name: str, operand: Any, scope: Scope) -> Compiled:
    operands = check_exactly(name, arguments_of(operand, scope), 2)
    if operands[1].is_constant and not is_array(operands[1].constant):
        scope.build.failures.append(ExpressionError(f"both operands of {name} must be arrays."))
    return call(_is_subset(scope), operands, scope)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$setUnion": ordered(_union, lambda function: associative(function, commutative=True)),
    "$setIntersection": ordered(_intersection, lambda function: associative(function, commutative=True)),
    "$setDifference": ordered(_difference, lambda function: fixed(2, function)),
    "$setEquals": _set_equals,
    "$setIsSubset": _set_is_subset,
}
