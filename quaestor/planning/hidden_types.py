"""Types that the driver hides, decoding them as another: no after-image tells which records hold such values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.query.operators.integers import is_number

_TYPE_OPERATORS: Final = frozenset({"$type", "bsonType"})
_BY_CODE: Final[Mapping[int, str]] = {6: "undefined", 12: "dbPointer", 14: "symbol"}
_BY_NAME: Final = frozenset(_BY_CODE.values())


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
        if is_number(one) and not isinstance(one, str) and (name := _BY_CODE.get(_integer(one))) is not None:
            return name
    return None


def _integer(number: Any) -> int:
    try:
        return int(str(number).partition(".")[0])
    except ValueError:  # NaN and infinities
        return 0
