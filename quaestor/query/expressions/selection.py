"""`$sortArray`, and `$firstN`, `$lastN`, `$minN`, `$maxN` over an array. mongod folds none of them, and does not optimise the
operands of the latter four.
"""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import bson

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.bson_order import Key
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import members_of
from quaestor.query.expressions.kinds import NUMERIC, as_mapping, is_array, is_nullish, kind_of
from quaestor.query.expressions.nodes import Compiled, Operator, Scope, call
from quaestor.query.expressions.numeric import to_decimal, whole_number

_STABLE_UP_TO: Final = 16
Pick = Callable[[Sequence[Any], int, Callable[[Any], Key]], list[Any]]


def _first(array: Sequence[Any], count: int, key: Callable[[Any], Key]) -> list[Any]:
    return list(array[:count])


def _last(array: Sequence[Any], count: int, key: Callable[[Any], Key]) -> list[Any]:
    return list(array[max(len(array) - count, 0) :])


def _least(array: Sequence[Any], count: int, key: Callable[[Any], Key]) -> list[Any]:
    return [member for _, member in _extremes(array, count, key, worst=-1)]


def _most(array: Sequence[Any], count: int, key: Callable[[Any], Key]) -> list[Any]:
    return [member for _, member in reversed(_extremes(array, count, key, worst=0))]


def _extremes(array: Sequence[Any], count: int, key: Callable[[Any], Key], *, worst: int) -> list[tuple[Key, Any]]:
    """Return the extremes in ascending order, equals as they came; a member only displaces a strictly worse one."""
    kept: list[tuple[Key, Any]] = []
    for member in array:
        if is_nullish(member):
            continue
        place = key(member)
        if len(kept) == count:
            if place <= kept[0][0] if worst == 0 else place >= kept[-1][0]:
                continue
            del kept[worst]
        insort_right(kept, (place, member), key=itemgetter(0))
    return kept


def _picking(pick: Pick) -> Operator:
    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        members = members_of(
            name,
            operand,
            required=("n", "input"),
            missing="Missing value for '{field}'",
            unknown="Unknown argument for 'n' operator: {field}",
            not_object="specification must be an object; found {name}: {kind}",
        )
        key = scope.order_key

        def picked(count: Any, array: Any) -> list[Any]:
            wanted = _count(count)
            if not is_array(array):
                raise ExpressionError("Input must be an array")
            return pick(array, wanted, key)

        operands = [scope.unoptimised().compile(members[field]) for field in ("n", "input")]
        return call(picked, operands, scope, foldable=False)

    return build


def _count(value: Any) -> int:
    count = whole_number(value)
    if count is None:
        raise ExpressionError(f"Value for 'n' must be of integral type, but found {value}")
    if count <= 0:
        raise ExpressionError(f"'n' must be greater than 0, found {value}")
    return count


def _sort_array(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("input", "sortBy"),
        missing="{name} requires '{field}' to be specified",
        unknown="{name} found an unknown argument: {field}",
        not_object="{name} requires an object as an argument, found: {kind}",
    )
    arrange = _arrangement(members["sortBy"], scope.order_key)

    def sort_array(array: Any) -> Any:
        if is_nullish(array):
            return None
        if not is_array(array):
            raise ExpressionError(
                f"The input argument to $sortArray must be an array, but was of type: {kind_of(array)}"
            )
        return arrange(array)

    return call(sort_array, [scope.compile(members["input"])], scope, foldable=False)


def _direction(value: Any, message: str) -> bool:
    """Whether the sort is descending."""
    if kind_of(value) in NUMERIC and to_decimal(value) in (1, -1):
        return bool(to_decimal(value) == -1)
    raise MalformedQueryError(message)


def _arrangement(written: Any, key: Callable[[Any], Key]) -> Callable[[Sequence[Any]], list[Any]]:
    if kind_of(written) in NUMERIC:
        descending = _direction(written, "The $sort element value must be either 1 or -1")
        return lambda array: _determined(sorted(array, key=key, reverse=descending), key)
    if kind_of(written) != "object":
        raise MalformedQueryError(
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields"
        )
    if not written:
        raise MalformedQueryError("The sort pattern is empty when it should be a set of fields.")
    columns = []
    for path, value in written.items():
        names = path.split(".")
        if "" in names:
            raise MalformedQueryError(f"The sort field is a dotted field but has an empty part: {path}")
        columns.append((names, _direction(value, "The sort element value must be either 1 or -1")))

    def arrange(array: Sequence[Any]) -> list[Any]:
        ordered = list(array)
        for names, descending in reversed(columns):
            ordered.sort(key=lambda member: key(_sort_value(member, names)), reverse=descending)
        return _determined(ordered, lambda member: tuple(key(_sort_value(member, names)) for names, _ in columns))

    return arrange


def _determined(ordered: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Return the sorted array, if only one order is right.

    mongod keeps the order of equals in short arrays; in longer ones the order of equals depends on its library.
    """
    if len(ordered) <= _STABLE_UP_TO:
        return ordered
    for left, right in pairwise(ordered):
        if key(left) == key(right) and bson.encode({"": left}) != bson.encode({"": right}):
            raise UnsupportedQueryError("$sortArray of a long array with different elements that sort alike")
    return ordered


def _sort_value(value: Any, names: Sequence[str]) -> Any:
    """Return the value that the path leads to, null if nowhere; a number in it is an array index."""
    for name in names:
        if kind_of(value) == "object":
            value = as_mapping(value).get(name)
        elif is_array(value) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


OPERATORS: Final[Mapping[str, Operator]] = {
    "$firstN": _picking(_first),
    "$lastN": _picking(_last),
    "$minN": _picking(_least),
    "$maxN": _picking(_most),
    "$sortArray": _sort_array,
}
