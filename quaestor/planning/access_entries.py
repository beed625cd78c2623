"""Conditions on a record under which the index keeps filters: each is necessary for the filter, none is sufficient.

An entry names a path, and values that the path must or must not reach. A record that satisfies a filter satisfies its entry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from quaestor.query.bson_order import BINARY, BOOLEAN, DATE, NUMBER, OBJECT_ID, STRING, TIMESTAMP, order_key
from quaestor.query.geo.bounds import Box
from quaestor.query.pcre.required_text import RequiredTexts
from quaestor.query.text import TextIndex

RANGED: Final = frozenset({NUMBER, STRING, DATE, OBJECT_ID, TIMESTAMP, BOOLEAN, BINARY})
"""Brackets that the interval index keeps. Ranges over embedded documents, arrays, null and the like are rare."""

_ONE_SIDED: Final = 1_000.0
_TWO_SIDED: Final = 100.0
_NEARBY: Final = 50.0
_WORD: Final = 20.0
_REGION: Final = 16.0
"""Rectangles up to this many degrees separate records well."""
POINT: Final = 4.0
"""Cost up to which an access path means a few look-ups of rare values."""
SELECTIVE: Final = _TWO_SIDED
"""Cost up to which an access path leaves out most records."""
_SHARED: Final = 2_000.0
_TRAIT: Final = 500.0
_OUTSIDE: Final = 1_500.0
_TYPED: Final = 4_000.0
_UNEQUAL: Final = 20_000.0
_EXISTS: Final = 5_000.0
_MOST_BOXES: Final = 64
MOST_ENTRIES: Final = 4_096
"""An access path with more entries (a huge $in) costs more to keep than it saves."""


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
        """Return the name of the index structure, for people."""
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
        """Return the name of the index structure, for people."""
        return f"interval on {self.path}"


@dataclass(frozen=True, slots=True)
class Prefix:
    """Access path by prefix: the path reaches a string with this beginning (or a regular expression as a value)."""

    path: str
    prefix: str

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return 5.0 + 50.0 / len(self.prefix)

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        return f"prefix on {self.path}"


@dataclass(frozen=True, slots=True)
class Exists:
    """Access path by existence: the path reaches any value."""

    path: str

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _EXISTS

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
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
        """Return the name of the index structure, for people."""
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
        """Return the name of the index structure, for people."""
        return "words of the text index"


@dataclass(frozen=True, slots=True)
class Literals:
    """Access path by text: the path reaches a string that holds one of a few texts (or a regular expression as a value)."""

    path: str
    texts: RequiredTexts

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return sum(8.0 + 80.0 / len(text.text) for text in self.texts)

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        return f"text in {self.path}"


@dataclass(frozen=True, slots=True)
class Traits:
    """Access path by a trait: the path reaches a value with one of a few traits.

    keys: ("type", number of a BSON type), ("size", length of an array), or (divisor, remainder).
    what: kind of trait, for people.
    """

    path: str
    keys: tuple[Hashable, ...]
    what: str

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _TYPED if self.what == "type" else _TRAIT

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        return f"{self.what} of {self.path}"


@dataclass(frozen=True, slots=True)
class Outside:
    """Access path by absence beyond an end: the path reaches no value of the bracket beyond it.

    low, high: the end; the other is None. With `high` no value is above it, with `low` none is below it.
    whole: a record with an array on the path is left undecided.
    """

    path: str
    bracket: int
    low: Any
    high: Any
    whole: bool = False

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _OUTSIDE

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        return f"no value of {self.path} {'above' if self.low is None else 'below'} an end"


@dataclass(frozen=True, slots=True)
class Unequal:
    """Access path by absence of values: the path reaches none of a few values. Most records satisfy it.

    keys: the values as `hash_key`s; None among them stands for null or missing.
    """

    path: str
    keys: tuple[Hashable, ...]

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _UNEQUAL

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        return f"other values of {self.path}"


@dataclass(frozen=True, slots=True)
class Absent:
    """Access path by absence: the path reaches nothing at all."""

    path: str

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return _EXISTS

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        return f"absence of {self.path}"


Negative = Outside | Unequal | Absent
PathEntry = Equality | Range | Prefix | Exists | GeoSquares | Literals | Traits | Negative
Entry = PathEntry | Tokens


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Access path of a disjunction: at least one of its members holds, so all members are kept.

    members: the best entry of each branch.
    choices: the alternatives of each branch, best first, if a branch has several. The index takes one of each.
    """

    members: tuple[Entry, ...]
    choices: tuple[tuple[Access, ...], ...] = ()

    @property
    def cost(self) -> float:
        """Expected cost of a search, relative to one look-up of a rare value."""
        return sum(member.cost for member in self.members)

    def describe(self) -> str:
        """Return the name of the index structure, for people."""
        if self.choices:
            return " or ".join(dict.fromkeys(map(describe_choice, self.choices)))
        return " or ".join(dict.fromkeys(member.describe() for member in self.members)) or "never matches"


Access = Entry | AnyOf
"""`AnyOf(())` is the access path of a filter that matches nothing."""

NEVER: Final = AnyOf(())


def entries_of(access: Access) -> tuple[Entry, ...]:
    """Return the entries under which the index keeps a filter with this access path."""
    return access.members if isinstance(access, AnyOf) else (access,)


def eligible(alternatives: Sequence[Access]) -> Sequence[Access]:
    """Return the access paths, best first, among which the index chooses: by load if several are selective."""
    selective = [access for access in alternatives if access.cost <= SELECTIVE]
    return selective or alternatives[:1]


def most_by_id(alternatives: Iterable[Access]) -> int | None:
    """Return how many records at most can satisfy all of these, by the `_id`s that they name; None: they name none."""
    return min((len(access.keys) for access in alternatives if names_ids(access)), default=None)


def names_ids(access: Access | None) -> TypeGuard[Equality]:
    """Whether only records with one of a few `_id`s satisfy it."""
    return isinstance(access, Equality) and access.path == "_id" and None not in access.keys


def describe_choice(alternatives: Sequence[Access]) -> str:
    """Return the conditions by which the index may find a filter, the likeliest first, for people."""
    if not alternatives:
        return "always try"
    first, *others = dict.fromkeys(access.describe() for access in eligible(alternatives))
    return f"{first} ({', '.join(others)} if less crowded)" if others else first


def is_broad(access: Access | None) -> bool:
    """Whether most records satisfy the access path; without an access path, all do."""
    return access is None or any(isinstance(member, Unequal) for member in getattr(access, "members", (access,)))


def hash_key(value: Any) -> Hashable:
    """Return the key of a value in the hash index: equal for values that `$eq` takes for equal. None is null.

    Strings and numbers are their own keys, which saves a tuple each; every other value has its order key.
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
