"""Arrays as sets: duplicates count once, and the order of the results is that of the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.invalidation.query.bson_order import Key
from quaestor.invalidation.query.expressions.arrays import is_array
from quaestor.invalidation.query.expressions.errors import ExpressionError
from quaestor.invalidation.query.expressions.forms import Function, associative, fixed, ordered, variadic
from quaestor.invalidation.query.expressions.kinds import is_nullish, kind_of
from quaestor.invalidation.query.expressions.nodes import Compiled, Operator, Scope


def _sorted_values(members: Mapping[Key, Any]) -> list[Any]:
    return [members[key] for key in sorted(members)]


def _checked(name: str, array: Any) -> Any:
    if not is_array(array):
        raise ExpressionError(f"All operands of {name} must be arrays. One argument is of type: {kind_of(array)}")
    return array


def _union(scope: Scope) -> Function:
    order_key = scope.order_key

    def union(*arrays: Any) -> Any:
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

    def intersection(*arrays: Any) -> Any:
        members: dict[Key, Any] | None = None
        for array in arrays:
            if is_nullish(array):
                return None
            keys: dict[Key, Any] = {}
            for member in _checked("$setIntersection", array):
                keys.setdefault(order_key(member), member)
            members = keys if members is None else {key: value for key, value in members.items() if key in keys}
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

    def equals(*arrays: Any) -> bool:
        for position, array in enumerate(arrays, start=1):
            if not is_array(array):
                raise ExpressionError(
                    f"All operands of $setEquals must be arrays. {position}-th argument is of type: {kind_of(array)}"
                )
        first, *others = ({order_key(member) for member in array} for array in arrays)
        return all(other == first for other in others)

    return equals


def _is_subset(scope: Scope) -> Function:
    order_key = scope.order_key

    def is_subset(left: Any, right: Any) -> bool:
        _two_arrays("$setIsSubset", left, right)
        return {order_key(member) for member in left} <= {order_key(member) for member in right}

    return is_subset


def _at_least_two(function: Function) -> Operator:
    inner = variadic(function)

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        count = len(operand) if isinstance(operand, list) else 1
        if count < 2:
            raise MalformedQueryError(f"{name} needs at least two arguments had: {count}")
        return inner(name, operand, scope)

    return build


OPERATORS: Final[Mapping[str, Operator]] = {
    "$setUnion": ordered(_union, lambda function: associative(function, commutative=True)),
    "$setIntersection": ordered(_intersection, lambda function: associative(function, commutative=True)),
    "$setDifference": ordered(_difference, lambda function: fixed(2, function)),
    "$setEquals": ordered(_equals, _at_least_two),
    "$setIsSubset": ordered(_is_subset, lambda function: fixed(2, function)),
}
