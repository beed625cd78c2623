"""Comparison in the BSON order: types never mix, numbers of all kinds compare by value, missing lies below null."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.query.bson_order import order_key
from quaestor.query.expressions.forms import Function, arguments_of, check_exactly, fixed, ordered
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, call

Relation = Callable[[Any, Any], bool]


def _comparing(relation: Relation) -> Operator:
    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        left, right = check_exactly(name, arguments_of(operand, scope), 2)
        if right.is_constant and not left.is_constant:
            return _compared_with(relation, left, right.constant, scope)
        key = scope.order_key
        plain = _plain_types(scope)

        def compare(first: Any, other: Any) -> bool:
            if type(first) is type(other) and type(first) in plain:
                return relation(first, other)
            return relation(key(first), key(other))

        return call(compare, (left, right), scope)

    return build


def _plain_types(scope: Scope) -> tuple[type, ...]:
    """Return the types whose Python order is the BSON order: not strings where a collation orders them."""
    return (int, str) if scope.order_key is order_key else (int,)


def _compared_with(relation: Relation, left: Compiled, known: Any, scope: Scope) -> Compiled:
    """Compile the usual case, a comparison with a constant: the constant's place in the order is looked up once."""
    evaluate_left, key, known_key = left.evaluate, scope.order_key, scope.order_key(known)
    plain = type(known) if type(known) in _plain_types(scope) else None

    def evaluate(frame: Frame) -> bool:
        value = evaluate_left(frame)
        if type(value) is plain:
            return relation(value, known)
        return relation(key(value), known_key)

    return Compiled(evaluate)


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
