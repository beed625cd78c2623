"""`$bitsAllSet`, `$bitsAnySet`, `$bitsAllClear`, `$bitsAnyClear`. Manual: Bitwise Query Operators.

A stored number is 64 bits in two's complement, sign-extended for positions beyond 63; stored binary data is extended
with zeros. Doubles with a fraction, or outside 64 bits, match none of the four.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from bson import Decimal128

from quaestor.errors import MalformedQueryError
from quaestor.query.ast import Node, Predicate
from quaestor.query.bson_order import BINARY, MISSING, is_list, stored_bytes, type_bracket
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.operators.integers import integer, is_number, truncated
from quaestor.query.paths import Test

_ALL_ONES: Final = (1 << 64) - 1
_SIGN_BIT: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Bits:
    """The bits to test: `number` for a stored number, `positions` for stored binary data.

    positions: sorted, in the order of the bytes, the least significant bit of each first.
    """

    number: int
    positions: tuple[int, ...]

    def of_length(self, length: int) -> int:
        """Return the mask for a value of so many bits; a bit above them all stands for every position beyond."""
        mask = 0
        for position in self.positions:
            mask |= 1 << min(position, length)
        return mask


def _parse(name: str) -> Callable[[Parser, str, Any, Mapping[str, Any], Level], Node]:
    def parse(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
        return Predicate(path, name, _bits(operand, f"{name} of {path!r}"))

    return parse


def _bits(operand: Any, what: str) -> Bits:
    if is_list(operand):
        number = 0
        positions = set()
        for member in operand:
            position = integer(member, f"{what}: a bit position")
            if not 0 <= position < 1 << 31:
                raise MalformedQueryError(f"{what}: a bit position must be in 0..2**31-1, not {member!r}")
            number |= 1 << min(position, 63)
            positions.add(position)
        return Bits(number, tuple(sorted(positions)))
    if is_number(operand):
        mask = integer(operand, what)
        if mask < 0:
            raise MalformedQueryError(f"{what} needs a mask that is not negative, not {operand!r}")
        return Bits(mask, _positions(mask))
    if type_bracket(operand) == BINARY:
        return _binary_mask(stored_bytes(operand))
    raise MalformedQueryError(f"{what} needs an array of positions, a number or binary data, not {operand!r}")


def _binary_mask(mask: bytes) -> Bits:
    number = int.from_bytes(mask[:8], "little")
    if any(mask[8:]):
        number |= 1 << 63
    return Bits(number, _positions(int.from_bytes(mask, "little")))


def _positions(mask: int) -> tuple[int, ...]:
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def _whole(value: Any) -> int | None:
    """Return the stored number as 64 unsigned bits; None if the operators do not hold for it."""
    if value.__class__ is Decimal128:
        return _whole_decimal(value.to_decimal())
    whole = truncated(value)
    if whole is None or value != whole:
        return None
    return whole & _ALL_ONES


def _whole_decimal(value: Decimal) -> int:
    """Return a Decimal128 like mongod: rounded to the nearest integer, or the least integer if it does not fit."""
    if value.is_finite() and -_SIGN_BIT <= (rounded := value.to_integral_value(ROUND_HALF_EVEN)) < _SIGN_BIT:
        return int(rounded) & _ALL_ONES
    return _SIGN_BIT


def _test(compiler: Compiler, predicate: Predicate) -> Test:
    holds = _HOLDS[predicate.operator]
    bits: Bits = predicate.operand

    def bits_hold(value: Any) -> bool:
        whole = _whole(value)
        if whole is not None:
            return holds(whole, bits.number)
        if value is MISSING or type_bracket(value) != BINARY:
            return False
        stored = stored_bytes(value.bytes if isinstance(value, uuid.UUID) else value)
        return holds(int.from_bytes(stored, "little"), bits.of_length(len(stored) * 8))

    return bits_hold


_HOLDS: Final[dict[str, Callable[[int, int], bool]]] = {
    "$bitsAllSet": lambda value, mask: value & mask == mask,
    "$bitsAllClear": lambda value, mask: value & mask == 0,
    "$bitsAnySet": lambda value, mask: value & mask != 0,
    "$bitsAnyClear": lambda value, mask: value & mask != mask,
}

OPERATORS: Final = {
    name: FieldOperator(parse=_parse(name), test=_test, identity=lambda bits: [str(bits.number), *bits.positions])
    for name in _HOLDS
}
