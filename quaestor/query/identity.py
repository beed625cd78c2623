"""Identity of a query as bytes: equal for queries that differ only in how they are written.

Every part is written with its kind and its length, so different trees never share an encoding. Equal values are written
alike (1, 1.0 and Decimal128("1")), except inside operators whose operand is itself a language (`$expr`, `$jsonSchema`), where
the types count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import bson

from quaestor.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import NUMBER, STRING, order_key
from quaestor.query.expressions.numeric import DECIMAL
from quaestor.query.operators import DOCUMENT_OPERATORS, FIELD_OPERATORS

DIGEST_BYTES: Final = 16
_AS_INTEGER: Final = 1 << 128
_VERBATIM: Final = frozenset({"$expr", "$jsonSchema"})
_KINDS: Final[dict[type, bytes]] = {Conjunction: b"&", Disjunction: b"|", Negation: b"!"}


def identity(node: Node) -> bytes:
    """Return a digest of the tree's meaning, 16 bytes, the same in every process. The node must be normalised."""
    return digest(encode(node))


def digest(encoding: bytes) -> bytes:
    return hashlib.blake2b(encoding, digest_size=DIGEST_BYTES).digest()


def encode(node: Node) -> bytes:
    """Return the encoding of a normalised node."""
    match node:
        case Predicate():
            return encode_predicate(node, encode(node.operand) if node.operator == "$elemMatch" else None)
        case Negation():
            return encode_members(Negation, (encode(node.member),))
        case Conjunction() | Disjunction():
            return encode_members(type(node), [encode(member) for member in node.members])
        case Constant():
            return encode_constant(node.value)


def encode_constant(value: bool) -> bytes:
    return b"1" if value else b"0"


def encode_members(kind: type[Conjunction] | type[Disjunction] | type[Negation], encodings: Iterable[bytes]) -> bytes:
    """Return the encoding of a node over encoded members, in the order given."""
    return _joined(_KINDS[kind], encodings)


def encode_predicate(predicate: Predicate, inner: bytes | None = None) -> bytes:
    """Return the encoding of a predicate.

    inner: the encoding of the node that is the operand of an `$elemMatch`."""
    return encode_operand(encode_place(predicate), predicate, inner)


def encode_place(predicate: Predicate) -> bytes:
    """Return the beginning of a predicate's encoding: the place of its operand."""
    return b"p" + _parts((predicate.path.encode(), predicate.operator.encode(), predicate.elements.encode()))


def encode_operand(place: bytes, predicate: Predicate, inner: bytes | None = None) -> bytes:
    """Return the encoding of a predicate, from its beginning.

    inner: see encode_predicate()."""
    operand = _operand(predicate) if inner is None else inner
    return b"%b%d:%b;" % (place, len(operand), operand)


def _operand(predicate: Predicate) -> bytes:
    operand = predicate.operand
    if predicate.operator in _VERBATIM:
        return bson.encode({"": operand})
    operator = FIELD_OPERATORS.get(predicate.operator) or DOCUMENT_OPERATORS[predicate.operator]
    if operator.identity is not None:
        operand = operator.identity(operand)
    return encode_value(operand)


def encode_value(value: Any) -> bytes:
    """Return a BSON value as bytes, equal for equal values."""
    if value.__class__ is int:
        digits = b"n%d" % value
        return b"(3:n%d%d:%b;" % (NUMBER, len(digits), digits)
    if value.__class__ is str:
        text = b"s" + value.encode("utf-8", "surrogatepass")
        return b"(3:n%d%d:%b;" % (STRING, len(text), text)
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
        case int():
            return b"n%d" % part
        case float() | Decimal():
            return b"n" + _number(part).encode()
    raise TypeError(f"{part!r} is not part of an order key")


def _number(value: float | Decimal) -> str:
    # A number with a huge exponent stays in scientific notation: as an integer it would have thousands of digits.
    if -_AS_INTEGER < value < _AS_INTEGER and value == int(value):
        return str(int(value))
    if isinstance(value, Decimal) and value != float(value):  # 0.1 as Decimal128 differs from 0.1 as double
        return f"d{value.normalize(DECIMAL)}"
    return repr(float(value))


def _joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    return kind + _parts(parts) + b";"


def _parts(parts: Iterable[bytes]) -> bytes:
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])
