"""Bytes that say what a query asks for: equal for queries that differ only in how they are written.

Every part is written with its kind and its length, so different trees never share an encoding. Values that compare as
equal are written alike (1, 1.0 and Decimal128("1")), except inside operators whose operand is itself a language
(`$expr`, `$jsonSchema`), where the types count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import bson

from quaestor.invalidation.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.invalidation.query.bson_order import order_key
from quaestor.invalidation.query.operators import DOCUMENT_OPERATORS, FIELD_OPERATORS

DIGEST_BYTES: Final = 16
_AS_INTEGER: Final = 1 << 128
_VERBATIM: Final = frozenset({"$expr", "$jsonSchema"})


def identity(node: Node) -> bytes:
    """A digest of `encode(node)`, 16 bytes, the same in every process. The node must be normalised."""
    return hashlib.blake2b(encode(node), digest_size=DIGEST_BYTES).digest()


def encode(node: Node) -> bytes:
    """The tree as bytes; members of conjunctions and disjunctions in the order they have."""
    match node:
        case Predicate():
            return _joined(b"p", [node.path.encode(), node.operator.encode(), node.elements.encode(), _operand(node)])
        case Conjunction():
            return _joined(b"&", [encode(member) for member in node.members])
        case Disjunction():
            return _joined(b"|", [encode(member) for member in node.members])
        case Negation():
            return _joined(b"!", [encode(node.member)])
        case Constant():
            return b"1" if node.value else b"0"


def _operand(predicate: Predicate) -> bytes:
    operand = predicate.operand
    if predicate.operator in _VERBATIM:
        return bson.encode({"": operand})
    if predicate.operator == "$elemMatch":
        return encode(operand)
    operator = FIELD_OPERATORS.get(predicate.operator) or DOCUMENT_OPERATORS[predicate.operator]
    if operator.identity is not None:
        operand = operator.identity(operand)
    return encode_value(operand)


def encode_value(value: Any) -> bytes:
    """A BSON value as bytes, equal for equal values."""
    return _key(order_key(value))


def _key(part: Any) -> bytes:
    match part:
        case tuple():
            return _joined(b"(", [_key(member) for member in part])
        case str():
            return b"s" + part.encode("utf-8", "surrogatepass")
        case bytes():
            return b"b" + part
        case bool():
            return b"t" if part else b"f"
        case int() | float() | Decimal():
            return b"n" + _number(part).encode()
    raise TypeError(f"{part!r} is not part of an order key")


def _number(value: float | Decimal) -> str:
    # A number with a huge exponent stays in scientific notation: as an integer it would have thousands of digits.
    if -_AS_INTEGER < value < _AS_INTEGER and value == int(value):
        return str(int(value))
    return str(value.normalize()) if isinstance(value, Decimal) else repr(value)


def _joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    return kind + b"".join(b"%d:%b" % (len(part), part) for part in parts) + b";"
