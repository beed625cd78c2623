"""One tree for all ways to write the same query, with exactly the same matches.

What changes: nested conjunctions (and disjunctions) become one, members are sorted by their encoding and duplicates go,
an `$in` of one value becomes `$eq`, of none becomes nothing; comparisons with null that can only mean equality become
it; constants and double negations are folded. What does not: predicates on the same path stay separate, because on an
array different elements may satisfy them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from quaestor.invalidation.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.invalidation.query.bson_order import order_key
from quaestor.invalidation.query.identity import encode

_TRUE, _FALSE = Constant(True), Constant(False)


def normalise(node: Node) -> Node:
    """The canonical form: normalising it again changes nothing. O(n log n) in the size of the filter."""
    match node:
        case Predicate():
            return _predicate(node)
        case Negation():
            return _negation(normalise(node.member))
        case Conjunction():
            return _combined(Conjunction, [normalise(member) for member in node.members])
        case Disjunction():
            return _combined(Disjunction, [normalise(member) for member in node.members])
        case Constant():
            return _TRUE if node.value else _FALSE


def _predicate(node: Predicate) -> Node:
    if node.operator == "$elemMatch":
        return replace(node, operand=normalise(node.operand))
    if node.operator == "$in":
        distinct = {order_key(value): value for value in reversed(node.operand)}
        if not distinct:
            return _FALSE
        values = tuple(distinct[key] for key in sorted(distinct))
        return Predicate(node.path, "$eq", values[0]) if len(values) == 1 else Predicate(node.path, "$in", values)
    if node.operand is None and node.operator in ("$gte", "$lte"):
        return Predicate(node.path, "$eq", None)
    if node.operand is None and node.operator in ("$gt", "$lt"):
        return _FALSE
    return node


def _negation(member: Node) -> Node:
    match member:
        case Negation():
            return member.member
        case Constant():
            return _FALSE if member.value else _TRUE
    return Negation(member)


def _combined(kind: type[Conjunction] | type[Disjunction], members: list[Node]) -> Node:
    absorbing, neutral = (_FALSE, _TRUE) if kind is Conjunction else (_TRUE, _FALSE)
    distinct: dict[bytes, Node] = {}
    for member in _flattened(kind, members):
        if isinstance(member, Constant):
            if member.value == absorbing.value:
                return absorbing
            continue
        distinct[encode(member)] = member
    if not distinct:
        return neutral
    ordered = tuple(distinct[key] for key in sorted(distinct))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def _flattened(kind: type[Conjunction] | type[Disjunction], members: list[Node]) -> Iterator[Node]:
    for member in members:
        if isinstance(member, kind):
            yield from member.members
        else:
            yield member
