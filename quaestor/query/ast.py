"""A filter as a tree, after parsing and normalisation: read by the compiler, the index and `explain`.

Every node is hashable by identity only; equality of queries is decided by `identity()` of the normalised tree.

A normalised tree holds no `$ne`, `$nin`, `$not`, `$nor`, `$all`, `$and`, `$or`, `$options`: they have become Negation,
Conjunction and Disjunction of what remains. Members of a Conjunction are never Conjunctions, and so for Disjunctions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """One operator on one path, with MongoDB's array semantics: `operator` includes the dollar sign.

    operand: for `$eq`, `$gt`, `$gte`, `$lt`, `$lte` the BSON value mongod would compare with; for `$in` a tuple of at
        least two such values in BSON order, none a regular expression to be matched; for `$regex` a `Pattern` (see
        regex.py); for `$elemMatch` a Node over the element (`elements="documents"`) or over the bare value
        (`elements="values"`, predicates with path ""); for `$exists` True; for `$type` a sorted tuple of type
        numbers; for `$size` an int; for other operators whatever their module documents.
    path: dotted path; "" for operators on the whole document ($expr, $jsonSchema, $text) and inside value $elemMatch.
    """

    path: str
    operator: str
    operand: Any
    elements: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Conjunction:
    """A filter that holds where all of its members do."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Disjunction:
    """A filter that holds where any of its members does."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """Matches exactly the documents that `member` does not ($not, $nor, $ne, $nin)."""

    member: Node


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Matches everything ({}) or nothing ({$in: []})."""

    value: bool


Node = Predicate | Conjunction | Disjunction | Negation | Constant
