"""Normalisation: one tree for all ways to write the same query, with exactly the same matches.

Changes: nested conjunctions (and disjunctions) become one, members are sorted by their encoding, and duplicates go. An `$in` of
one value becomes `$eq`, of none becomes nothing. Comparisons with null that can only mean equality become equality. Constants
and double negations are folded.
Predicates on the same path stay separate, because on an array different elements may satisfy them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quaestor.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import order_key
from quaestor.query.identity import digest, encode_constant, encode_members, encode_predicate

_Encoded = tuple[Node, bytes]
"""A normalised node and its encoding, which the parent node needs for sorting and then for its own."""

_TRUE: _Encoded = (Constant(True), encode_constant(True))
_FALSE: _Encoded = (Constant(False), encode_constant(False))


def normalise(node: Node) -> Node:
    """Return the canonical form: normalising it again changes nothing. O(n log n) in the size of the filter."""
    return _normalised(node)[0]


def normalise_and_identify(node: Node) -> tuple[Node, bytes]:
    """Return the canonical form and its identity, for little more than the cost of the form."""
    normal, encoding = _normalised(node)
    return normal, digest(encoding)


def _normalised(node: Node) -> _Encoded:
    match node:
        case Predicate():
            return _predicate(node)
        case Negation():
            return _negation(_normalised(node.member))
        case Conjunction() | Disjunction():
            return _combined(type(node), [_normalised(member) for member in node.members])
        case Constant():
            return _TRUE if node.value else _FALSE


def _predicate(node: Predicate) -> _Encoded:
    if node.operator == "$elemMatch":
        inner, encoding = _normalised(node.operand)
        return replace(node, operand=inner), encode_predicate(node, encoding)
    if node.operator == "$in":
        distinct = {order_key(value): value for value in reversed(node.operand)}
        if not distinct:
            return _FALSE
        values = tuple(distinct[key] for key in sorted(distinct))
        node = Predicate(node.path, "$eq", values[0]) if len(values) == 1 else Predicate(node.path, "$in", values)
    elif node.operand is None and node.operator in ("$gte", "$lte"):
        node = Predicate(node.path, "$eq", None)
    elif node.operand is None and node.operator in ("$gt", "$lt"):
        return _FALSE
    return node, encode_predicate(node)


def _negation(member: _Encoded) -> _Encoded:
    node, encoding = member
    match node:
        case Negation():
            return _normalised(node.member)
        case Constant():
            return _FALSE if node.value else _TRUE
    return Negation(node), encode_members(Negation, (encoding,))


def _combined(kind: type[Conjunction] | type[Disjunction], members: Iterable[_Encoded]) -> _Encoded:
    absorbing, neutral = (_FALSE, _TRUE) if kind is Conjunction else (_TRUE, _FALSE)
    distinct: dict[bytes, Node] = {}
    for node, encoding in members:
        if isinstance(node, kind):
            distinct.update((inner_encoding, inner) for inner, inner_encoding in map(_normalised, node.members))
        elif not isinstance(node, Constant):
            distinct[encoding] = node
        elif node is absorbing[0]:
            return absorbing
    if not distinct:
        return neutral
    ordered = sorted(distinct)
    if len(ordered) == 1:
        return distinct[ordered[0]], ordered[0]
    return kind(tuple(distinct[encoding] for encoding in ordered)), encode_members(kind, ordered)
