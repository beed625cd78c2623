"""Comparison in the BSON order: types never mix, numbers of all kinds compare by value, missing lies below null."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.invalidation.query.bson_order import order_key
from quaestor.invalidation.query.expressions.forms import Function, fixed, ordered
from quaestor.invalidation.query.expressions.nodes import Operator, Scope


def _comparing(relation: Callable[[Any, Any], bool]) -> Operator:
    def make(scope: Scope) -> Function:
        key = scope.order_key
        # Of these, Python's order is the BSON order, unless a collation orders strings.
        plain = (int, str) if key is order_key else (int,)

        def compare(left: Any, right: Any) -> bool:
            if type(left) is type(right) and type(left) in plain:
                return relation(left, right)
            return relation(key(left), key(right))

        return compare

    return ordered(make, lambda function: fixed(2, function))


def _cmp(scope: Scope) -> Function:
    key = scope.order_key

    def compare(left: Any, right: Any) -> int:
        lower, upper = key(left), key(right)
        return (lower > upper) - (lower < upper)

    return compare


OPERATORS: Final[Mapping[str, Operator]] = {
    "$eq": _comparing(operator.eq),
    "$ne": _comparing(operator.ne),
    "$lt": _comparing(operator.lt),
    "$lte": _comparing(operator.le),
    "$gt": _comparing(operator.gt),
    "$gte": _comparing(operator.ge),
    "$cmp": ordered(_cmp, lambda function: fixed(2, function)),
}
