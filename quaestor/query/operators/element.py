"""`$exists` and `$type`. Manual: Element Query Operators.

pymongo decodes the deprecated types undefined, symbol and DBPointer as None, str and DBRef: `$type` cannot see them.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Negation, Node, Predicate
from quaestor.query.bson_order import MISSING, STRING, is_list, type_bracket
from quaestor.query.bson_types import BSON_TYPES
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.operators.integers import integer, is_number
from quaestor.query.paths import Test, is_array, is_document

NUMBERS: Final = (1, 16, 18, 19)
_CODES: Final = frozenset(BSON_TYPES.values())
_BY_CLASS: Final[dict[type, int]] = {
    float: 1,
    str: 2,
    dict: 3,
    DBRef: 3,
    list: 4,
    tuple: 4,
    bytes: 5,
    Binary: 5,
    uuid.UUID: 5,
    ObjectId: 7,
    bool: 8,
    datetime.datetime: 9,
    DatetimeMS: 9,
    type(None): 10,
    Regex: 11,
    re.Pattern: 11,
    Timestamp: 17,
    Int64: 18,
    Decimal128: 19,
    MinKey: -1,
    MaxKey: 127,
}


def type_code(value: Any) -> int | None:
    """Return the BSON type number under which the value is stored; None for MISSING."""
    kind = value.__class__
    if kind is int:
        return 16 if -(1 << 31) <= value < 1 << 31 else 18
    if (code := _BY_CLASS.get(kind)) is not None:
        return code
    if value is MISSING:
        return None
    if isinstance(value, Code):
        return 13 if value.scope is None else 15
    if is_document(value):
        return 3
    if is_array(value):
        return 4
    return next((_BY_CLASS[base] for base in kind.__mro__ if base in _BY_CLASS), None)


def type_codes(operand: Any, what: str) -> tuple[int, ...]:
    """Return the type numbers in an operand of `$type`, sorted. Raises MalformedQueryError with the name `what`."""
    members = operand if is_list(operand) else (operand,)
    if not members:
        raise MalformedQueryError(f"{what} must name at least one type")
    codes: set[int] = set()
    for member in members:
        if type_bracket(member) == STRING:
            if member == "number":
                codes.update(NUMBERS)
                continue
            if member not in BSON_TYPES:
                raise MalformedQueryError(f"{what}: unknown type name {member!r}")
            codes.add(BSON_TYPES[member])
        elif is_number(member):
            code = integer(member, what)
            if code not in _CODES:
                raise MalformedQueryError(f"{what}: {member!r} is not the number of a BSON type")
            codes.add(code)
        else:
            raise MalformedQueryError(f"{what} needs names or numbers of types, not {member!r}")
    return tuple(sorted(codes))


def _parse_type(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    return Predicate(path, "$type", type_codes(operand, f"$type of {path!r}"))


def _type(compiler: Compiler, predicate: Predicate) -> Test:
    codes = frozenset(predicate.operand)
    return lambda value: type_code(value) in codes


def _parse_exists(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    exists = Predicate(path, "$exists", True)
    return exists if _truthy(operand) else Negation(exists)


def _truthy(value: Any) -> bool:
    """Coerce to bool like mongod: only null, false and zeros are false."""
    if isinstance(value, Decimal128):
        return value.to_decimal() != 0
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return True


def _exists(compiler: Compiler, predicate: Predicate) -> Test:
    return lambda value: value is not MISSING


OPERATORS: Final = {
    "$exists": FieldOperator(parse=_parse_exists, test=_exists),
    "$type": FieldOperator(parse=_parse_type, test=_type),
}
