"""Access paths, by which a filter is found from a written record. Each filter has conditions of which at least one must hold.

`access_paths(node)` lists alternatives, best first; each of them alone is enough. A conjunction offers the paths of all its
members, and one is chosen. A disjunction needs a path of each member, and the index chooses among the alternatives of each.
A negation offers the inverse paths of its member. An access path is necessary for the filter, never sufficient: the predicate
decides.

The order of preference:

- equality (on `_id` first)
- `$in` by its length
- anchored prefix
- text that a regular expression requires
- words of a text index
- places
- two-sided range
- size and remainder
- one-sided range
- nothing beyond an end
- equality with a value that many records share (booleans, null)
- type
- existence
- other values than these

The index departs from the order if an entry is crowded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any, Final

from quaestor.planning.access_combination import all_of, any_of
from quaestor.planning.access_entries import (
    MOST_ENTRIES,
    NEVER,
    RANGED,
    Absent,
    Access,
    Equality,
    Exists,
    GeoSquares,
    Literals,
    Outside,
    Prefix,
    Range,
    Tokens,
    Traits,
    Unequal,
    hash_key,
)
from quaestor.planning.expression_access import expression_paths
from quaestor.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import ARRAY, OBJECT, order_key, type_bracket
from quaestor.query.geo.bounds import Box
from quaestor.query.regex import Pattern
from quaestor.query.text.matching import Search

_MOST_BOXES: Final = 64


def access_paths(node: Node) -> list[Access]:
    """Return the alternative access paths of this filter, best first; empty: no index can find it, every write tries it."""
    return sorted(_paths(node, _TOP), key=lambda access: access.cost)


@dataclass(frozen=True, slots=True)
class _Place:
    """Place of a predicate: the path above it, and whether it may apply to the value there itself.

    elements: it applies to one element of an array, so that another element may have the denied value.
    """

    path: str
    bare: bool
    elements: bool

    def of(self, name: str) -> str | None:
        """Return the whole path of a predicate on `name`; None if the index cannot follow it."""
        if not name:
            return self.path if self.bare else None
        if "" in name.split("."):
            return None
        return f"{self.path}.{name}" if self.path else name


_TOP: Final = _Place("", bare=False, elements=False)


def _paths(node: Node, place: _Place) -> list[Access]:
    if isinstance(node, Predicate):
        if isinstance(node.operand, Search):
            words = tuple(sorted(node.operand.keys))
            return [Tokens(node.operand.index, words)] if words else [NEVER]
        if node.operator == "$expr":
            return expression_paths(node.operand)
        path = place.of(node.path)
        return [] if path is None else _predicate(node, path)
    if isinstance(node, Conjunction):
        return all_of(_paths(member, place) for member in node.members)
    if isinstance(node, Disjunction):
        return any_of(_paths(member, place) for member in node.members)
    if isinstance(node, Negation):
        return _denied(node.member, place)
    return [] if node.value else [NEVER]


def _denied(node: Node, place: _Place) -> list[Access]:
    """Return the access paths of a node's negation. The index knows all values that a path reaches on the document itself."""
    if isinstance(node, Conjunction):
        return any_of(_denied(member, place) for member in node.members)
    if isinstance(node, Disjunction):
        return all_of(_denied(member, place) for member in node.members)
    if isinstance(node, Negation):
        return _paths(node.member, place)
    if isinstance(node, Constant):
        return [NEVER] if node.value else []
    path = None if place.elements else place.of(node.path)
    return [] if path is None or isinstance(node.operand, Search) else _denied_predicate(node, path)


def _denied_predicate(predicate: Predicate, path: str) -> list[Access]:
    operator, operand = predicate.operator, predicate.operand
    if operator == "$exists":
        return [Absent(path)]
    if operator == "$eq":
        return [Unequal(path, (hash_key(operand),))]
    if operator == "$in" and len(operand) <= MOST_ENTRIES:
        return [Unequal(path, tuple(dict.fromkeys(hash_key(value) for value in operand)))]
    if operator in _COMPARISONS:
        return [
            Outside(path, interval.bracket, interval.high, interval.low) for interval in _range(operator, operand, path)
        ]
    return []


def _predicate(predicate: Predicate, path: str) -> list[Access]:
    operator, operand = predicate.operator, predicate.operand
    if operator == "$eq":
        return [Equality(path, (hash_key(operand),))]
    if operator == "$in":
        if len(operand) > MOST_ENTRIES:
            return []
        return [Equality(path, tuple(dict.fromkeys(hash_key(value) for value in operand)))]
    if operator in _COMPARISONS:
        ranges: list[Access] = [*_range(operator, operand, path)]
        return ranges or _within(operand, path)
    if operator == "$regex":
        return _by_text(operand, path) or [_of_types(path, _MATCHED_BY_REGEX)]
    if operator in ("$geoWithin", "$geoIntersects", "$near"):
        return _geo_squares(operand.boxes, path)
    if operator == "$elemMatch":
        inner = _Place(path, bare=predicate.elements == "values", elements=True)
        return [*_paths(operand, inner), _of_types(path, _ARRAY)]
    if operator == "$size":
        return [Traits(path, (("size", operand),), "size")]
    if operator == "$mod":
        divisor, remainder = operand
        return [Traits(path, ((abs(divisor), remainder),), "remainder")]
    if operator == "$type":
        return [_of_types(path, operand)]
    return [Exists(path)] if operator in _NEED_A_VALUE else []


def _by_text(pattern: Pattern, path: str) -> list[Access]:
    prefix = pattern.prefix
    accesses: list[Access] = [Prefix(path, prefix)] if prefix else []
    accesses += (Literals(path, texts) for texts in pattern.required if any(text.text not in prefix for text in texts))
    return accesses


def _of_types(path: str, codes: Iterable[int]) -> Traits:
    return Traits(path, tuple(("type", code) for code in codes), "type")


def _range(operator: str, operand: Any, path: str) -> list[Range]:
    key = order_key(operand)
    if key[0] not in RANGED or len(key) != 2:
        return []
    low, high = (key[1], None) if operator in ("$gt", "$gte") else (None, key[1])
    return [Range(path, key[0], low, high)]


def _within(operand: Any, path: str) -> list[Access]:
    """Return the access path of a comparison without a range: only a value of the operand's own kind may satisfy it."""
    return [Exists(path)] if type_bracket(operand) in _COMPOSED else []


def _geo_squares(boxes: tuple[Box, ...] | None, path: str) -> list[Access]:
    if boxes is None or len(boxes) > _MOST_BOXES or not all(map(isfinite, chain.from_iterable(boxes))):
        return [Exists(path)]
    return [GeoSquares(path, boxes)] if boxes else [NEVER]


_COMPARISONS: Final = frozenset({"$gt", "$gte", "$lt", "$lte"})
_COMPOSED: Final = frozenset({OBJECT, ARRAY})
_MATCHED_BY_REGEX: Final = (2, 11)
"""Types of strings and of regular expressions; a regular expression may equal the pattern."""
_ARRAY: Final = (4,)
_NEED_A_VALUE: Final = frozenset({"$exists", "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"})
"""Operators that a missing field never satisfies."""
