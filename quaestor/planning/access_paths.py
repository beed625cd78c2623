"""Access paths, by which a filter is found from a written record: for each filter the conditions of which at least one must hold.

`access_paths(node)` lists alternatives, best first; each of them alone is enough. A conjunction offers those of all its
members (one is chosen), a disjunction the union of the best of each member (all are needed), a negation none. What a
record must have to satisfy an access path is necessary for the filter, never sufficient: the predicate decides.

The order is equality (on `_id` first), `$in` by its length, anchored prefix, words of a text index, places, two-sided
range, one-sided range, equality with a value that many records share (booleans, null), existence. The index departs from
it when the entry is crowded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any, Final

from quaestor.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_order import BINARY, BOOLEAN, DATE, NUMBER, OBJECT_ID, STRING, TIMESTAMP, order_key
from quaestor.query.geo.bounds import Box
from quaestor.query.text import TextIndex
from quaestor.query.text.matching import Search

RANGED: Final = frozenset({NUMBER, STRING, DATE, OBJECT_ID, TIMESTAMP, BOOLEAN, BINARY})
"""Brackets that the interval index keeps; ranges over embedded documents, arrays, null and the like are rare."""

_ONE_SIDED: Final = 1_000.0
_TWO_SIDED: Final = 100.0
_NEARBY: Final = 50.0
_WORD: Final = 20.0
_REGION: Final = 16.0
"""Rectangles up to this many degrees tell records apart well."""
POINT: Final = 4.0
"""Cost up to which an access path is a few look-ups of rare values."""
SELECTIVE: Final = _TWO_SIDED
"""Cost up to which an access path can be expected to leave out most records."""
_SHARED: Final = 2_000.0
_EXISTS: Final = 5_000.0
_MOST_BOXES: Final = 64
MOST_ENTRIES: Final = 4_096
"""An access path with more entries than this (a huge $in) costs more to keep than it saves."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Access path by value: the path reaches one of a few values.

    keys: the values as `hash_key`s; None among them stands for null or missing.
    """

    path: str
    keys: tuple[Hashable, ...]

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        if any(key is None or (isinstance(key, tuple) and key[0] == BOOLEAN) for key in self.keys):
            return _SHARED
        return (0.5 if self.path == "_id" else 1.0) * len(self.keys)

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return f"hash on {self.path}"


@dataclass(frozen=True, slots=True)
class Range:
    """Access path by range: the path reaches a value in it.

    bracket: of the BSON order.
    low, high: ends, which are in the range; None: open on that side.
    """

    path: str
    bracket: int
    low: Any
    high: Any

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _TWO_SIDED if self.low is not None and self.high is not None else _ONE_SIDED

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return f"interval on {self.path}"


@dataclass(frozen=True, slots=True)
class Prefix:
    """Access path by prefix: the path reaches a string that begins so (or a regular expression as a value)."""

    path: str
    prefix: str

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return 5.0 + 50.0 / len(self.prefix)

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return f"prefix on {self.path}"


@dataclass(frozen=True, slots=True)
class Exists:
    """Access path by existence: the path reaches anything."""

    path: str

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _EXISTS

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return f"existence of {self.path}"


@dataclass(frozen=True, slots=True)
class GeoSquares:
    """Access path by place: the path reaches a geometry that touches one of a few rectangles.

    boxes: the rectangles (least x and y, greatest x and y); the index keeps them by the squares that they touch.
    """

    path: str
    boxes: tuple[Box, ...]

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        widest = max(max(right - left, high - low) for left, low, right, high in self.boxes)
        return _NEARBY if widest <= _REGION else _ONE_SIDED

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return f"cell on {self.path}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Access path by words: the texts that a text index covers hold one of a few words.

    words: stemmed.
    """

    index: TextIndex
    words: tuple[str, ...]

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _WORD * len(self.words)

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return "words of the text index"


PathEntry = Equality | Range | Prefix | Exists | GeoSquares
Entry = PathEntry | Tokens


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Access path of a disjunction: at least one of its members holds, all of which are therefore kept."""

    members: tuple[Entry, ...]

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return sum(member.cost for member in self.members)

    def describe(self) -> str:
        """A name of the index structure, for people."""
        return " or ".join(dict.fromkeys(member.describe() for member in self.members)) or "never matches"


Access = Entry | AnyOf
"""`AnyOf(())` is the access path of a filter that matches nothing."""

NEVER: Final = AnyOf(())


def access_paths(node: Node) -> list[Access]:
    """The alternative access paths of this filter, best first; empty: no index can find it, it is always tried."""
    return sorted(_paths(node, _TOP), key=lambda access: access.cost)


def hash_key(value: Any) -> Hashable:
    """The key of a value in the hash index: equal for values that `$eq` takes for equal. None is null.

    Strings and numbers are their own keys, which saves a tuple each; everything else is its order key.
    """
    kind = value.__class__
    if kind is str or value is None:
        return value  # type: ignore[no-any-return]
    if (kind is int or kind is float) and value == value:
        return value  # type: ignore[no-any-return]
    key = order_key(value)
    if key[0] in (NUMBER, STRING) and len(key) == 2:
        return key[1]  # type: ignore[no-any-return]
    return key


@dataclass(frozen=True, slots=True)
class _Place:
    """Place of a predicate: below which path it stands, and whether it may speak of the value there itself."""

    path: str
    bare: bool

    def of(self, name: str) -> str | None:
        """The whole path of a predicate on `name`; None if the index cannot follow it."""
        if not name:
            return self.path if self.bare else None
        if "" in name.split("."):
            return None
        return f"{self.path}.{name}" if self.path else name


_TOP: Final = _Place("", bare=False)


def _paths(node: Node, place: _Place) -> list[Access]:
    if isinstance(node, Predicate):
        if isinstance(node.operand, Search):
            words = tuple(sorted(node.operand.keys))
            return [Tokens(node.operand.index, words)] if words else [NEVER]
        path = place.of(node.path)
        return [] if path is None else _predicate(node, path)
    if isinstance(node, Conjunction):
        return _conjunction(node.members, place)
    if isinstance(node, Disjunction):
        return _disjunction(node.members, place)
    if isinstance(node, Negation):
        return []
    return [] if node.value else [NEVER]


def _conjunction(members: Iterable[Node], place: _Place) -> list[Access]:
    found: list[Access] = []
    ranges: dict[tuple[str, int], Range] = {}
    for member in members:
        for access in _paths(member, place):
            if isinstance(access, Range):
                axis = (access.path, access.bracket)
                ranges[axis] = _narrowed(ranges[axis], access) if axis in ranges else access
            else:
                found.append(access)
    return [*found, *ranges.values()]


def _narrowed(a: Range, b: Range) -> Range:
    """The range of both at once. Different elements of an array may satisfy the two: the index asks with the span of an array."""
    low = a.low if b.low is None else b.low if a.low is None else max(a.low, b.low)
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    return Range(a.path, a.bracket, low, high)


def _disjunction(members: Iterable[Node], place: _Place) -> list[Access]:
    parts: list[Entry] = []
    for member in members:
        alternatives = _paths(member, place)
        if not alternatives:
            return []
        best = min(alternatives, key=lambda access: access.cost)
        parts.extend(best.members if isinstance(best, AnyOf) else (best,))
    distinct = tuple(dict.fromkeys(parts))
    if len(distinct) == 1:
        return list(distinct)
    return [AnyOf(distinct)] if len(distinct) <= MOST_ENTRIES else []


def _predicate(predicate: Predicate, path: str) -> list[Access]:
    operator, operand = predicate.operator, predicate.operand
    if operator == "$eq":
        return [Equality(path, (hash_key(operand),))]
    if operator == "$in":
        if len(operand) > MOST_ENTRIES:
            return []
        return [Equality(path, tuple(dict.fromkeys(hash_key(value) for value in operand)))]
    if operator in ("$gt", "$gte", "$lt", "$lte"):
        return _range(operator, operand, path)
    if operator == "$regex":
        start = operand.prefix
        return [Prefix(path, start)] if start else [Exists(path)]
    if operator in ("$geoWithin", "$geoIntersects", "$near"):
        return _geo_squares(operand.boxes, path)
    if operator == "$elemMatch":
        return [*_paths(operand, _Place(path, bare=predicate.elements == "values")), Exists(path)]
    return [Exists(path)] if operator in _NEED_A_VALUE else []


def _range(operator: str, operand: Any, path: str) -> list[Access]:
    key = order_key(operand)
    if key[0] not in RANGED or len(key) != 2:
        return []
    low, high = (key[1], None) if operator in ("$gt", "$gte") else (None, key[1])
    return [Range(path, key[0], low, high)]


def _geo_squares(boxes: tuple[Box, ...] | None, path: str) -> list[Access]:
    if boxes is None or len(boxes) > _MOST_BOXES or not all(map(isfinite, chain.from_iterable(boxes))):
        return [Exists(path)]
    return [GeoSquares(path, boxes)] if boxes else [NEVER]


_NEED_A_VALUE: Final = frozenset(
    {"$exists", "$type", "$size", "$mod", "$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"}
)
"""Operators that a missing field never satisfies."""
