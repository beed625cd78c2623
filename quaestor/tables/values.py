"""Values of rows: the type that a value needs, and its form in a column of a type. Values are Python's or BSON's."""

from __future__ import annotations

import decimal
import math
import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from bson import json_util
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from quaestor.tables.instants import instant_of
from quaestor.tables.schema import Type

SCALE: Final = 12
PRECISION: Final = 38
_COORDINATES: Final = 2
_SMALLEST: Final = -(1 << 63)
_LARGEST: Final = (1 << 63) - 1
_EXACT: Final = decimal.Context(prec=PRECISION, traps=[decimal.Inexact, decimal.InvalidOperation])
_UNIT: Final = Decimal(1).scaleb(-SCALE)
_FIRST_INSTANT: Final = instant_of(datetime.min)
_LAST_INSTANT: Final = instant_of(datetime.max)


def type_of(value: Any) -> Type | None:
    """Type that a value needs; None: the value is NULL, and fits every type."""
    match value:
        case None:
            return None
        case bool():
            return Type.BOOL
        case int():
            return Type.BIGINT if _SMALLEST <= value <= _LARGEST else Type.JSON
        case float():
            return Type.DOUBLE
        case Decimal() | Decimal128():
            return Type.DECIMAL if _fits_decimal(value) else Type.JSON
        case str() | ObjectId() | uuid.UUID():
            return Type.TEXT
        case datetime() | DatetimeMS():
            return Type.TIMESTAMP
        case Binary() if value.subtype:
            return Type.JSON
        case bytes():
            return Type.BYTES
        case _:
            return Type.JSON


def fitted(value: Any, kind: Type) -> Any:
    """Return a value in the form of a column: an int, float, Decimal, str, bool, bytes, microseconds since 1970, or a point.

    A point is `[x, y]`, `{"x": x, "y": y}` or a GeoJSON Point.

    Raises ValueError if the value is of another type, or its type has no room for it.
    """
    if value is None:
        return None
    if kind is Type.JSON:
        return json_util.dumps(value, json_options=json_util.RELAXED_JSON_OPTIONS)
    if kind is Type.POINT:
        return _point(value)
    needed = type_of(value)
    try:
        if needed is kind or (needed is Type.BIGINT and kind in (Type.DOUBLE, Type.DECIMAL)):
            return _converted(value, kind)
    except (ValueError, OverflowError, decimal.DecimalException) as error:
        raise ValueError(f"{value!r} has no room in {kind.value}: {error}") from error
    raise ValueError(f"{type(value).__name__} is not {kind.value}")


def _converted(value: Any, kind: Type) -> Any:
    match kind:
        case Type.BIGINT:
            return int(value)
        case Type.DOUBLE:
            return float(value)
        case Type.DECIMAL:
            return _decimal(value)
        case Type.TEXT:
            return str(value)
        case Type.TIMESTAMP:
            return _micros(value)
        case Type.BYTES:
            return bytes(value)
        case _:
            return value


def _point(value: Any) -> dict[str, float]:
    match value:
        case {"type": "Point", "coordinates": [x, y]} | {"x": x, "y": y} | [x, y]:
            pass
        case _:
            raise ValueError(f"{value!r} is not point: write [x, y]")
    numbers = [float(part) for part in (x, y) if isinstance(part, int | float) and not isinstance(part, bool)]
    if len(numbers) < _COORDINATES or not all(map(math.isfinite, numbers)):
        raise ValueError(f"{value!r} is not point: both coordinates are finite numbers")
    return {"x": numbers[0], "y": numbers[1]}


def _decimal(value: Any) -> Decimal:
    number = value.to_decimal() if isinstance(value, Decimal128) else Decimal(value)
    if not number.is_finite():
        raise decimal.InvalidOperation(f"{number} is not finite")
    return number.quantize(_UNIT, context=_EXACT)


def _fits_decimal(value: Any) -> bool:
    try:
        _decimal(value)
    except decimal.DecimalException:
        return False
    return True


def _micros(value: datetime | DatetimeMS) -> int:
    micros = int(value) * 1000 if isinstance(value, DatetimeMS) else instant_of(value)
    if not _FIRST_INSTANT <= micros <= _LAST_INSTANT:
        raise ValueError("it is outside the years 1 to 9999")
    return micros
