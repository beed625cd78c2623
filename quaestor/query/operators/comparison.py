"""`$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`. Manual: Comparison Query Operators.

A comparison holds only between values of one bracket of the BSON order. There are two exceptions: null equals a missing
field, and MinKey and MaxKey compare with everything. NaN equals NaN and is neither above nor below anything.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from bson import Int64, ObjectId

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Negation, Node, Predicate
from quaestor.query.bson_order import MAX_KEY, MIN_KEY, MISSING, NAN, NULL, REGEX, milliseconds, order_key, type_bracket
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.paths import Test

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_SAME_CLASS_EQUALITY: Final = frozenset({str, ObjectId, bool})


def equality_test(operand: Any) -> Test:
    """Return a test whether a value equals the operand (null: or is missing)."""
    kind = operand.__class__
    if operand is None:
        return lambda value: value is None or value is MISSING
    key = order_key(operand)
    if kind in _SAME_CLASS_EQUALITY:

        def same_class(value: Any) -> bool:
            if value.__class__ is kind:
                return value == operand  # type: ignore[no-any-return]
            return value is not MISSING and order_key(value) == key

        return same_class
    if kind in (int, Int64, float) and operand == operand:

        def number(value: Any) -> bool:
            if value.__class__ is int or value.__class__ is float:
                return value == operand  # type: ignore[no-any-return]
            return value is not MISSING and order_key(value) == key

        return number

    def any_type(value: Any) -> bool:
        return order_key(value) == key

    return any_type


def range_test(name: str, operand: Any) -> Test:
    """Return a test whether a value is above or below the operand."""
    key = order_key(operand)
    bracket = type_bracket(operand)
    if key[0] == NAN:
        return (lambda _: False) if name in ("$gt", "$lt") else equality_test(operand)
    if bracket == NULL:
        return (lambda _: False) if name in ("$gt", "$lt") else equality_test(None)
    if bracket in (MIN_KEY, MAX_KEY):
        return _outermost(name, bracket)
    compare = _COMPARE[name]

    def in_bracket(value: Any) -> bool:
        other = order_key(value)
        return other[0] == bracket and compare(other, key)

    kind = operand.__class__
    if kind is str or kind is ObjectId:

        def same_class(value: Any) -> bool:
            if value.__class__ is kind:
                return compare(value, operand)
            return in_bracket(value)

        return same_class
    if kind in (int, Int64, float):

        def number(value: Any) -> bool:
            if value.__class__ is int or value.__class__ is float:
                return compare(value, operand)
            return in_bracket(value)

        return number
    if kind is datetime.datetime:
        instant = milliseconds(operand)

        def date(value: Any) -> bool:
            if value.__class__ is datetime.datetime:
                return compare(milliseconds(value), instant)
            return in_bracket(value)

        return date
    return in_bracket


def _outermost(name: str, bracket: int) -> Test:
    """Return a comparison with MinKey or MaxKey, which ignore brackets: even a missing field is above MinKey."""
    inclusive = name in ("$gte", "$lte")
    others = (name in ("$gt", "$gte")) == (bracket == MIN_KEY)

    def outermost(value: Any) -> bool:
        return inclusive if type_bracket(value) == bracket else others

    return outermost


def _parse_equality(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    return Predicate(path, "$eq", operand)


def _parse_inequality(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    if type_bracket(operand) == REGEX:
        raise MalformedQueryError(f"$ne of {path!r} cannot take a regular expression; use $not")
    return Negation(Predicate(path, "$eq", operand))


def _parse_range(name: str) -> Callable[[Parser, str, Any, Mapping[str, Any], Level], Node]:
    def parse(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
        if type_bracket(operand) == REGEX:
            raise MalformedQueryError(f"{name} of {path!r} cannot take a regular expression")
        return Predicate(path, name, operand)

    return parse


def _equality(compiler: Compiler, predicate: Predicate) -> Test:
    return equality_test(predicate.operand)


def _range(compiler: Compiler, predicate: Predicate) -> Test:
    return range_test(predicate.operator, predicate.operand)


OPERATORS: Final = {
    "$eq": FieldOperator(parse=_parse_equality, test=_equality),
    "$ne": FieldOperator(parse=_parse_inequality),
    **{name: FieldOperator(parse=_parse_range(name), test=_range) for name in _COMPARE},
}
