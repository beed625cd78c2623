"""`$type`, `$isNumber`, `$convert` and its shorthands, and the sizes of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import bson
from bson import Decimal128, Int64, ObjectId
from bson.errors import InvalidId

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.date_text import parse_date
from quaestor.query.expressions.dates import date, date_ms, moment_ms
from quaestor.query.expressions.errors import ConversionError, ExpressionError
from quaestor.query.expressions.forms import compiled_member, fixed, members_of
from quaestor.query.expressions.kinds import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    NUMERIC,
    TYPE_CODES,
    as_mapping,
    is_nullish,
    is_number,
    is_string,
    kind_of,
    truthy,
)
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, folded
from quaestor.query.expressions.number_text import parse_decimal, parse_double, parse_integer
from quaestor.query.expressions.numeric import as_int32, to_decimal, to_double
from quaestor.query.expressions.text import date_text, double_text

_TYPE_NAMES: Final = {code: name for name, code in TYPE_CODES.items()}


def _overflow(value: Any) -> ConversionError:
    return ConversionError(f"Conversion would overflow target type in $convert with no onError value: {value}")


def _whole(value: Any, least: int, most: int) -> int:
    """Return the integer part of a double or Decimal128 within the bounds."""
    exact = to_decimal(value) if isinstance(value, Decimal128) else value
    if exact != exact:
        raise ConversionError("Attempt to convert NaN value to integer type in $convert with no onError value")
    if abs(exact) == math.inf:
        raise ConversionError("Attempt to convert infinity value to integer type in $convert with no onError value")
    if isinstance(value, float) and not least <= value <= (most if most == INT32_MAX else math.nextafter(2.0**63, 0)):
        raise _overflow(value)
    if not least <= int(exact) <= most:
        raise _overflow(value)
    return int(exact)


def _decimal_to_double(value: Decimal128) -> float:
    double = to_double(value)
    exact = value.to_decimal()
    if exact.is_finite() and (math.isinf(double) or (not double and exact)):
        raise _overflow(value)
    return double


def _int_within(value: int) -> int:
    if not INT32_MIN <= value <= INT32_MAX:
        raise _overflow(value)
    return int(value)


def _object_id(value: str) -> ObjectId:
    try:
        return ObjectId(value)
    except InvalidId as error:
        raise ConversionError(f"Failed to parse objectId '{value}' in $convert with no onError value") from error


def _same(value: Any) -> Any:
    return value


_CONVERSIONS: Final[Mapping[str, Mapping[str, Callable[[Any], Any]]]] = {
    "double": {
        "double": _same,
        "bool": float,
        "int": float,
        "long": float,
        "decimal": _decimal_to_double,
        "date": lambda value: float(date_ms(value)),
        "string": parse_double,
    },
    "string": {
        "string": _same,
        "bool": lambda value: "true" if value else "false",
        "int": str,
        "long": lambda value: str(int(value)),
        "double": lambda value: double_text(value) if math.isfinite(value) else str(Decimal128(str(value))),
        "decimal": str,
        "objectId": str,
        "date": lambda value: date_text(date_ms(value)),
    },
    "objectId": {"objectId": _same, "string": _object_id},
    "bool": dict.fromkeys(TYPE_CODES, truthy),
    "date": {
        "date": _same,
        "long": lambda value: date(int(value)),
        "double": lambda value: date(_whole(value, INT64_MIN, INT64_MAX)),
        "decimal": lambda value: date(_whole(value, INT64_MIN, INT64_MAX)),
        "timestamp": lambda value: date(moment_ms(value)),
        "objectId": lambda value: date(moment_ms(value)),
        "string": lambda value: date(parse_date(value)),
    },
    "int": {
        "int": int,
        "bool": int,
        "long": _int_within,
        "double": lambda value: _whole(value, INT32_MIN, INT32_MAX),
        "decimal": lambda value: _whole(value, INT32_MIN, INT32_MAX),
        "string": lambda value: parse_integer(value, INT32_MIN, INT32_MAX),
    },
    "long": {
        "int": Int64,
        "bool": Int64,
        "long": Int64,
        "double": lambda value: Int64(_whole(value, INT64_MIN, INT64_MAX)),
        "decimal": lambda value: Int64(_whole(value, INT64_MIN, INT64_MAX)),
        "date": lambda value: Int64(date_ms(value)),
        "string": lambda value: Int64(parse_integer(value, INT64_MIN, INT64_MAX)),
    },
    "decimal": {
        "decimal": _same,
        "bool": lambda value: Decimal128(str(int(value))),
        "int": lambda value: Decimal128(str(int(value))),
        "long": lambda value: Decimal128(str(int(value))),
        "double": lambda value: Decimal128(to_decimal(value)),
        "date": lambda value: Decimal128(str(date_ms(value))),
        "string": parse_decimal,
    },
}
"""Conversions by target type, then source type. All other pairs cannot be converted."""


def convert(value: Any, target: str) -> Any:
    """Return the value as the BSON type target. Raises ExpressionError."""
    conversion = _CONVERSIONS.get(target, {}).get(kind_of(value))
    if conversion is None:
        raise ConversionError(
            f"Unsupported conversion from {kind_of(value)} to {target} in $convert with no onError value"
        )
    return conversion(value)


def _target(value: Any) -> str | None:
    """Return the type that `to` names or numbers; None for null. Raises ExpressionError."""
    if is_nullish(value):
        return None
    if is_string(value):
        if value not in TYPE_CODES:
            raise ExpressionError(f"Unknown type name: {value}")
        return value
    if kind_of(value) not in NUMERIC:
        raise ExpressionError(f"$convert's 'to' argument must be a string or number, but is {kind_of(value)}")
    number = as_int32(value)
    if number is None:
        raise ExpressionError("In $convert, numeric 'to' argument is not an integer")
    if number not in _TYPE_NAMES:
        raise ExpressionError(f"In $convert, numeric value for 'to' does not correspond to a BSON type: {number}")
    return _TYPE_NAMES[number]


def _convert(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("input", "to"),
        optional=("onError", "onNull"),
        unknown="{name} found an unknown argument: {field}",
        not_object="{name} expects an object of named arguments but found: {kind}",
    )
    operands = [compiled_member(members, field, scope) for field in ("input", "to", "onError", "onNull")]
    source, to, on_error, on_null = (part.evaluate for part in operands)
    has_on_error, has_on_null = "onError" in members, "onNull" in members

    def evaluate(frame: Frame) -> Any:
        target = _target(to(frame))
        value = source(frame)
        if is_nullish(value):
            return on_null(frame) if has_on_null else None
        if target is None:
            return None
        try:
            return convert(value, target)
        except ConversionError:
            if not has_on_error:
                raise
        return on_error(frame)

    converted = Compiled(evaluate)
    return folded(converted, scope) if all(part.is_constant for part in operands) else converted


def _shorthand(target: str) -> Operator:
    inner = fixed(1, lambda value: None if is_nullish(value) else convert(value, target))

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        if isinstance(operand, list) and len(operand) != 1:
            raise MalformedQueryError(f"{name} requires a single argument, got {len(operand)}")
        return inner(name, operand, scope)

    return build


def _binary_size(value: Any) -> Any:
    if is_nullish(value):
        return None
    if is_string(value):
        return len(value.encode())
    if kind_of(value) != "binData":
        raise ExpressionError(f"$binarySize requires a string or BinData argument, found: {kind_of(value)}")
    return len(value.bytes if hasattr(value, "bytes") else value)


def _bson_size(value: Any) -> Any:
    if is_nullish(value):
        return None
    if kind_of(value) != "object":
        raise ExpressionError(f"$bsonSize requires a document input, found: {kind_of(value)}")
    return len(bson.encode(as_mapping(value)))


def _timestamp_part(read: Callable[[Any], int]) -> Operator:
    def part(name: str, value: Any) -> Any:
        if is_nullish(value):
            return None
        if kind_of(value) != "timestamp":
            raise ExpressionError(f"Argument to {name} must be a timestamp, but is {kind_of(value)}")
        return Int64(read(value))

    return fixed(1, part, named=True)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$type": fixed(1, kind_of),
    "$isNumber": fixed(1, is_number),
    "$convert": _convert,
    "$toInt": _shorthand("int"),
    "$toLong": _shorthand("long"),
    "$toDouble": _shorthand("double"),
    "$toDecimal": _shorthand("decimal"),
    "$toString": _shorthand("string"),
    "$toBool": _shorthand("bool"),
    "$toDate": _shorthand("date"),
    "$toObjectId": _shorthand("objectId"),
    "$binarySize": fixed(1, _binary_size),
    "$bsonSize": fixed(1, _bson_size),
    "$tsSecond": _timestamp_part(lambda value: value.time),
    "$tsIncrement": _timestamp_part(lambda value: value.inc),
}
