"""Short cuts for the usual filters: equality and ranges of plain values on a field of the document itself.

A short cut decides values of the operand's own kind with one comparison. Everything else (arrays, other numeric types,
null, dates with a time zone) goes to the general matcher. That is only built when the first such value is met. Most
queries never need it, and a million of them have to fit into memory.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bson import Int64, ObjectId

from quaestor.query.ast import Conjunction, Node, Predicate
from quaestor.query.bson_order import milliseconds
from quaestor.query.paths import Matcher

Build = Callable[[Node], Matcher]
"""Builds the general matcher of a node."""

NUMBERS: Final = frozenset({int, float, Int64})
STRINGS: Final = frozenset({str})
OBJECT_IDS: Final = frozenset({ObjectId})
FLAGS: Final = frozenset({bool})
DATES: Final = frozenset({datetime.datetime})
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def short_cut(node: Node, build: Build) -> Matcher | None:
    """Return a faster matcher with the same results as `build(node)`, or None if there is none for this node."""
    match node:
        case Predicate(operator="$eq"):
            return _equality(node, build)
        case Predicate(operator="$gt" | "$gte"):
            return _half_open(node, _bound(node), build, above=True)
        case Predicate(operator="$lt" | "$lte"):
            return _half_open(node, _bound(node), build, above=False)
        case Conjunction():
            ends = ends_of(node)
            return None if ends is None or "." in ends.path else _interval(node, ends, build)
    return None


def paired_ranges(members: Sequence[Node]) -> list[Node]:
    """Return the members of a conjunction, with a lower and an upper bound of the same path put together: see `short_cut`.

    Two members alone stay as they are: `short_cut` has tried them already.
    """
    if len(members) < 3:
        return list(members)
    lower = {node.path: node for node in members if isinstance(node, Predicate) and node.operator in ("$gt", "$gte")}
    paired: list[Node] = []
    for node in members:
        if isinstance(node, Predicate) and node.operator in ("$lt", "$lte") and node.path in lower:
            paired.append(Conjunction((lower.pop(node.path), node)))
        else:
            paired.append(node)
    taken = {id(node.members[0]) for node in paired if isinstance(node, Conjunction)}
    return [node for node in paired if id(node) not in taken]


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range.

    classes: types that Python itself compares with `value`.
    inclusive: `value` is in the range.
    """

    classes: frozenset[type]
    value: Any
    inclusive: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """A lower and an upper bound of one class, on one path."""

    path: str
    low: Bound
    high: Bound


def bound_of(name: str, operand: Any) -> Bound | None:
    """Return the bound of a comparison with this operand; None: Python itself does not compare it as mongod does.

    name: operator of the comparison, or `$eq`.
    """
    kind = operand.__class__
    inclusive = name in ("$gte", "$lte")
    if kind in NUMBERS:
        return Bound(NUMBERS, int(operand) if kind is Int64 else operand, inclusive) if operand == operand else None
    if kind is datetime.datetime:
        return _date_bound(name, operand)
    classes = _CLASSES.get(kind)
    return None if classes is None else Bound(classes, operand, inclusive)


_CLASSES: Final = {str: STRINGS, ObjectId: OBJECT_IDS, bool: FLAGS}


def ends_of(node: Conjunction) -> Ends | None:
    """Return the ends of a range; None if the conjunction is anything else."""
    match node.members:
        case (Predicate() as first, Predicate() as other) if first.path == other.path:
            if first.operator in ("$lt", "$lte"):
                first, other = other, first
            if first.operator not in ("$gt", "$gte") or other.operator not in ("$lt", "$lte"):
                return None
            lower, upper = bound_of(first.operator, first.operand), bound_of(other.operator, other.operand)
            if lower is None or upper is None or lower.classes is not upper.classes:
                return None
            return Ends(first.path, lower, upper)
    return None


def _bound(node: Predicate) -> Bound | None:
    return None if "." in node.path else bound_of(node.operator, node.operand)


def _date_bound(name: str, operand: datetime.datetime) -> Bound | None:
    """Return the bound of a date. mongod compares whole milliseconds only: above one means from the next one on."""
    later = name in ("$gt", "$lte")
    try:
        instant = _EPOCH + datetime.timedelta(milliseconds=milliseconds(operand) + later)
    except OverflowError:
        return None
    return Bound(DATES, instant, name in ("$gt", "$gte"))


def _lazily(node: Node, build: Build) -> Matcher:
    """Return `build(node)`, built at the first call."""
    built: Matcher | None = None

    def general(document: Mapping[str, Any]) -> bool:
        nonlocal built
        if built is None:
            built = build(node)
        return built(document)

    return general


def _equality(node: Predicate, build: Build) -> Matcher | None:
    bound = _bound(node)
    if bound is None or bound.classes is DATES:
        return None
    name, classes, operand = node.path, bound.classes, bound.value
    general = _lazily(node, build)

    def equal(document: Mapping[str, Any]) -> bool:
        value = document.get(name)
        if value.__class__ in classes:
            return value == operand  # type: ignore[no-any-return]
        return value is not None and general(document)

    return equal


def _half_open(node: Predicate, bound: Bound | None, build: Build, *, above: bool) -> Matcher | None:
    if bound is None:
        return None
    name, classes, operand = node.path, bound.classes, bound.value
    compare = _COMPARE[above, bound.inclusive]
    general = _lazily(node, build)

    def beyond(document: Mapping[str, Any]) -> bool:
        value = document.get(name)
        if value.__class__ in classes:
            try:
                return compare(value, operand)
            except TypeError:  # a date with a time zone
                return general(document)
        return value is not None and general(document)

    return beyond


_COMPARE: Final[dict[tuple[bool, bool], Callable[[Any, Any], bool]]] = {
    (True, True): operator.ge,
    (True, False): operator.gt,
    (False, True): operator.le,
    (False, False): operator.lt,
}


def _interval(node: Conjunction, ends: Ends, build: Build) -> Matcher:
    lower, upper = ends.low, ends.high
    name, classes = ends.path, lower.classes
    low, high = lower.value, upper.value
    general = _lazily(node, build)
    if lower.inclusive and not upper.inclusive:

        def from_to_below(document: Mapping[str, Any]) -> bool:
            value = document.get(name)
            if value.__class__ in classes:
                try:
                    return low <= value < high  # type: ignore[no-any-return]
                except TypeError:
                    return general(document)
            return value is not None and general(document)

        return from_to_below
    above, below = _COMPARE[True, lower.inclusive], _COMPARE[False, upper.inclusive]

    def between(document: Mapping[str, Any]) -> bool:
        value = document.get(name)
        if value.__class__ in classes:
            try:
                return above(value, low) and below(value, high)
            except TypeError:
                return general(document)
        return value is not None and general(document)

    return between
