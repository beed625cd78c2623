"""`$mod`. Manual: $mod. Divisor, remainder and stored value are cut off towards zero; the sign follows the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Node, Predicate
from quaestor.query.bson_order import is_list
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.operators.integers import is_number, truncated
from quaestor.query.paths import Test


def _parse(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    if not is_list(operand) or len(operand) != 2:
        raise MalformedQueryError(f"$mod of {path!r} needs [divisor, remainder], not {operand!r}")
    divisor, remainder = (_part(path, part) for part in operand)
    if divisor == 0:
        raise MalformedQueryError(f"$mod of {path!r} cannot divide by 0")
    return Predicate(path, "$mod", (divisor, remainder))


def _part(path: str, value: Any) -> int:
    if not is_number(value):
        raise MalformedQueryError(f"$mod of {path!r} needs numbers, not {value!r}")
    whole = truncated(value)
    if whole is None:
        raise MalformedQueryError(f"$mod of {path!r} needs numbers that fit 64 bits, not {value!r}")
    return whole


def remainder_of(value: int, divisor: int) -> int:
    """Return the remainder of a value, with the value's sign. The divisor is positive."""
    return value % divisor if value >= 0 else -(-value % divisor)


def _test(compiler: Compiler, predicate: Predicate) -> Test:
    divisor, remainder = predicate.operand
    size = abs(divisor)

    def has_remainder(value: Any) -> bool:
        whole = truncated(value)
        if whole is None:
            return False
        equal: bool = remainder_of(whole, size) == remainder
        return equal

    return has_remainder


OPERATORS: Final = {"$mod": FieldOperator(parse=_parse, test=_test)}
