"""A filter as a tree, after parsing and normalisation: read by the compiler, the index and `explain`.

Every node is hashable by identity only; `identity()` of the normalised tree decides whether queries are equal.

A normalised tree holds no `$ne`, `$nin`, `$not`, `$nor`, `$all`, `$and`, `$or`, `$options`: Negation, Conjunction and Disjunction
replace them. A Conjunction never has Conjunctions as members, and a Disjunction never has Disjunctions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """One operator on one path, with MongoDB's array semantics: `operator` includes the dollar sign.

    operand: depends on the operator.
        For `$eq`, `$gt`, `$gte`, `$lt`, `$lte`: the BSON value that mongod would compare with.
        For `$in`: a tuple of at least two such values in BSON order, none a regular expression to match.
        For `$regex`: a `Pattern` (see regex.py).
        For `$elemMatch`: a Node over the element (`elements="documents"`) or over the bare value (`elements="values"`,
        predicates with path "").
        For `$exists`: True. For `$type`: a sorted tuple of type numbers. For `$size`: an int.
        For other operators: as documented in their module.
    path: dotted path; "" for operators on the whole document ($expr, $jsonSchema, $text) and inside value $elemMatch.
    """

    path: str
    operator: str
    operand: Any
    elements: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Conjunction:
    """A filter that holds where all of its members hold."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Disjunction:
    """A filter that holds where any of its members holds."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """Matches exactly the documents that `member` does not match ($not, $nor, $ne, $nin)."""

    member: Node


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Matches every document ({}) or none ({$in: []})."""

    value: bool


Node = Predicate | Conjunction | Disjunction | Negation | Constant


def predicates_of(root: Node) -> list[Predicate]:
    """Return the predicates of a filter, at any depth. O(size)."""
    predicates: list[Predicate] = []
    nodes: list[Node] = [root]
    for node in nodes:
        if isinstance(node, Predicate):
            predicates.append(node)
            if node.operator == "$elemMatch":
                nodes.append(node.operand)
        elif isinstance(node, Negation):
            nodes.append(node.member)
        elif not isinstance(node, Constant):
            nodes.extend(node.members)
    return predicates
