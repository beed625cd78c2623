"""Types that the driver hides, decoding them as another: no after-image tells which records hold such values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bson.decimal128 import Decimal128

from quaestor.query.bson_types import BSON_TYPES
from quaestor.query.operators.integers import is_number

_TYPE_OPERATORS: Final = frozenset({"$type", "bsonType"})
_BY_NAME: Final = frozenset({"undefined", "dbPointer", "symbol"})
_BY_CODE: Final[Mapping[Any, str]] = {BSON_TYPES[name]: name for name in _BY_NAME}


def hidden_type(value: Any) -> str | None:
    """The name of a hidden type that a filter asks for, also inside `$jsonSchema`; None: of none. O(size).

    A literal that looks like such a question is taken for one.
    """
    if isinstance(value, Mapping):
        for key, operand in value.items():
            if key in _TYPE_OPERATORS and (found := _named(operand)) is not None:
                return found
            if (found := hidden_type(operand)) is not None:
                return found
    elif isinstance(value, list | tuple):
        for item in value:
            if (found := hidden_type(item)) is not None:
                return found
    return None


def _named(operand: Any) -> str | None:
    for one in operand if isinstance(operand, list | tuple) else (operand,):
        if isinstance(one, str) and one in _BY_NAME:
            return one
        if is_number(one):
            code = one.to_decimal() if isinstance(one, Decimal128) else one
            if code == code and (name := _BY_CODE.get(code)) is not None:  # NaN has no hash as a decimal
                return name
    return None
