"""Documents and filters that have something to do with each other: filters use paths and values of the documents."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import strategies as st

Document = dict[str, Any]
Filter = dict[str, Any]
Strategy = st.SearchStrategy[Any]

# fmt: off
PATHS = ["a", "b", "c", "a.b", "a.c", "b.a", "a.b.c", "a.a.a", "a.0", "a.1", "b.0.a", "a.0.b", "a.0.0", "a.b.0", "0", "a.00",
         "a.", "_id", "a.$id", "zz"]
NUMBERS = [0, 1, 2, 3, 4, 5, -1, -7, 127, 1 << 31, -(1 << 31), (1 << 53) + 1, (1 << 63) - 1, -(1 << 63),
           Int64(0), Int64(1), Int64(2), Int64(5), Int64((1 << 53) + 1),
           0.0, -0.0, 1.0, 1.5, -1.5, 2.0, 0.1, 1e300, float(1 << 53), float(1 << 63),
           float("inf"), -float("inf"), float("nan"),
           Decimal128("0"), Decimal128("-0"), Decimal128("1"), Decimal128("1.0"), Decimal128("1.5"), Decimal128("0.1"),
           Decimal128("NaN"), Decimal128("Infinity"), Decimal128("-Infinity"), Decimal128("1E+3"), Decimal128("5"),
           Decimal128("9007199254740993"), Decimal128("0.1000000000000000055511151231257827"), Decimal128("1E+6000")]
STRINGS = ["", "a", "A", "ab", "aab", "b", "ba", "a\n", "é", "É", "10", "a b", "\U0001f600", "aé", "line\nb", "ſ"]
OTHERS = [None, True, False,
          datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), datetime.datetime(2020, 1, 1),
          datetime.datetime(2020, 1, 1, 0, 0, 0, 1000), ObjectId("0" * 24), ObjectId("0123456789abcdef01234567"),
          Timestamp(1, 1), Timestamp(4_000_000_000, 2), Binary(b"", 0), Binary(b"a", 0), Binary(b"\x05\x00", 0),
          Binary(b"a", 2), Binary(b"a", 5), Binary(b"\x80\x01", 128), Binary(bytes(16), 4), Binary(bytes(range(16)), 3),
          Regex("a", ""), Regex("^a", "i"), Code("a"), Code("a", {"b": 1}), Code("a", {}), MinKey(), MaxKey(),
          DBRef("c", 1), DBRef("c", ObjectId("0" * 24), "d")]
PATTERNS = ["a", "^a", "a$", "^a$", "A", "^", "$", "", "a.b", "a|b", "^(a|b)", "[a-b]+", "\\w", "^\\d+$", "^ab?", "b\\z",
            "(?i)a", "a b", "(?=a)", "(a)\\1", "\\bb", "^a\\Z", "é", "^.$", "a{2}", "[^a]", "(?<!a)b", "\\s", "^a*",
            "(?m)a$", "a**", "(a", "[", "a{2,1}", "\\", "(?P<n>a)(?P=n)", "a++b", "(?>a|ab)b", "x{", "\\Qa", "\\x61",
            "[[:alpha:]]", "^b", "(?m)^b", "e$", "S", "a$\n"]
TYPES = ["number", "double", "string", "object", "array", "binData", "objectId", "bool", "date", "null", "regex",
         "javascript", "javascriptWithScope", "int", "timestamp", "long", "decimal", "minKey", "maxKey", "nonsense",
         1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 15, 16, 17, 18, 19, -1, 127, 0, 200, 2.0, 1.5]
POSITIONS = [0, 1, 2, 5, 7, 8, 9, 62, 63, 64, 100, 127, 130, Int64(1), 2.0, -1, 1.5, "a"]
MASKS = [0, 1, 2, 5, 6, 127, 255, Binary(b"\x05"), Binary(b"\x80"), Binary(b""), Binary(bytes(9) + b"\x01"), Binary(b"\x01", 2),
         (1 << 63) - 1, 1.0, -1, 2.5]
# fmt: on
COMMON = st.sampled_from([1, 2, 1.5, Int64(2), None, "a", "ab", True])
SCALARS = st.one_of(COMMON, COMMON, st.sampled_from(NUMBERS), st.sampled_from(STRINGS), st.sampled_from(OTHERS))
FIELD_NAMES = st.sampled_from(["a", "b", "c", "0", "1", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3), st.dictionaries(FIELD_NAMES, inner, max_size=3)
    ),
    max_leaves=5,
)
DOCUMENTS = st.one_of(
    st.fixed_dictionaries({"a": VALUES}),
    st.dictionaries(st.sampled_from(["a", "b", "c", "a", "0", ""]), VALUES, max_size=3),
    st.fixed_dictionaries({"a": st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=2), max_size=3)}),
)
OPTIONS = st.sampled_from(["", "i", "m", "s", "x", "im", "si", "z", "u"])


def contents(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every path and value in a document, arrays with and without indexes."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for name, member in value.items():
            yield from contents(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for position, member in enumerate(value):
            yield from contents(member, f"{path}.{position}")
            yield from contents(member, path)


@dataclass(frozen=True)
class Known:
    """Stands for the n-th value of the documents, until they are known. Building strategies for each would be slow."""

    number: int


KNOWN = st.integers(0, 31)
KNOWN_VALUES = KNOWN.map(Known)
KNOWN_PATHS = KNOWN.map(lambda number: f"@{number}")


def resolved(part: Any, known: Sequence[tuple[str, Any]]) -> Any:
    """The filter with what it says about the documents put in."""
    match part:
        case Known():
            return known[part.number % len(known)][1]
        case dict():
            return {
                known[int(name[1:]) % len(known)][0] if name.startswith("@") else name: resolved(value, known)
                for name, value in part.items()
            }
        case list():
            return [resolved(member, known) for member in part]
    return part


def combined(inner: Strategy) -> Strategy:
    """Clauses, and filters of two clauses, around `inner`."""
    paths = st.one_of(KNOWN_PATHS, st.sampled_from(PATHS))
    values = st.one_of(KNOWN_VALUES, KNOWN_VALUES, VALUES)
    operators = field_operators(inner, values)
    clauses = st.one_of(
        st.builds(lambda path, value: {path: value}, paths, values),
        st.builds(lambda path, value: {path: value}, paths, operators),
        st.builds(lambda path, value: {path: value}, paths, operators),
        st.builds(lambda path, pattern: {path: Regex(pattern)}, paths, st.sampled_from(PATTERNS)),
        st.builds(
            lambda name, members: {name: members}, st.sampled_from(["$and", "$or", "$nor"]), st.lists(inner, max_size=3)
        ),
    )
    return st.one_of(clauses, clauses, st.builds(lambda left, right: {**left, **right}, clauses, clauses))


def field_operators(inner: Strategy, values: Strategy) -> Strategy:
    """One or two operators for a path. inner: filters to put inside; values: operands."""
    regexes = st.builds(Regex, st.sampled_from(PATTERNS), st.sampled_from(["", "i"]))
    single = st.one_of(comparisons(values, regexes), array_operators(values), other_operators(), regex_operators())
    nested = st.one_of(
        single,
        single,
        st.builds(lambda value: {"$elemMatch": value}, inner),
        st.builds(lambda value: {"$elemMatch": value}, single),
        st.builds(lambda value: {"$not": value}, single),
        st.builds(lambda value: {"$not": {"$elemMatch": value}}, inner),
        st.builds(lambda value: {"$elemMatch": {"$not": value}}, single),
        st.builds(lambda value: {"$elemMatch": {"$elemMatch": value}}, single),
        st.builds(
            lambda members: {"$all": [{"$elemMatch": member} for member in members]}, st.lists(single, max_size=2)
        ),
        st.builds(lambda value: {"$not": value}, regexes),
        st.builds(
            lambda name, value: {name: value}, st.sampled_from(["$not", "$elemMatch", "$in", "$foo", "$and"]), SCALARS
        ),
    )
    return st.one_of(nested, nested, st.builds(lambda clause, other: {**clause, **other}, nested, nested))


def comparisons(values: Strategy, regexes: Strategy) -> Strategy:
    names = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
    lists = st.sampled_from(["$in", "$nin", "$all"])
    return st.one_of(
        st.builds(lambda name, value: {name: value}, names, values),
        st.builds(lambda name, value: {name: value}, names, st.sampled_from(NUMBERS)),
        st.builds(lambda name, value: {name: value}, lists, st.lists(values, max_size=3)),
        st.builds(lambda name, value: {name: value}, lists, st.lists(st.one_of(SCALARS, regexes), max_size=3)),
    )


def array_operators(values: Strategy) -> Strategy:
    return st.one_of(
        st.builds(lambda value: {"$size": value}, st.one_of(st.integers(0, 3), SCALARS)),
        st.builds(lambda value: {"$all": value}, st.lists(values, max_size=2)),
    )


def other_operators() -> Strategy:
    bits = st.sampled_from(["$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear"])
    masks = st.one_of(st.lists(st.sampled_from(POSITIONS), max_size=3), st.sampled_from(MASKS), SCALARS)
    types = st.sampled_from(TYPES)
    pairs = st.tuples(st.integers(-4, 4), st.integers(-2, 3)).map(list)
    return st.one_of(
        st.builds(lambda value: {"$exists": value}, st.one_of(st.booleans(), SCALARS)),
        st.builds(lambda value: {"$type": value}, st.one_of(types, types, st.lists(types, max_size=2), SCALARS)),
        st.builds(
            lambda value: {"$mod": value}, st.one_of(pairs, st.lists(st.sampled_from(NUMBERS), max_size=3), SCALARS)
        ),
        st.builds(lambda name, value: {name: value}, bits, masks),
    )


def regex_operators() -> Strategy:
    patterns = st.sampled_from(PATTERNS)
    return st.one_of(
        st.builds(lambda pattern: {"$regex": pattern}, patterns),
        st.builds(lambda pattern, options: {"$regex": pattern, "$options": options}, patterns, OPTIONS),
        st.builds(lambda pattern, options: {"$options": options, "$regex": pattern}, patterns, OPTIONS),
        st.builds(lambda pattern: {"$regex": Regex(pattern, "i")}, patterns),
        st.builds(lambda pattern: {"$regex": Regex(pattern), "$options": "i"}, patterns),
        st.builds(lambda value: {"$regex": value}, SCALARS),
    )


SORT_PATHS = ["a", "b", "c", "a.b", "a.c", "b.a", "a.b.c", "a.0", "a.0.b", "0", "a.1", "a.b.0"]
SORTS = st.lists(
    st.tuples(st.sampled_from(SORT_PATHS), st.sampled_from([1, -1])),
    min_size=1,
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(tuple)


FILTERS = st.recursive(KNOWN.map(lambda number: {f"@{number}": Known(number)}), combined, max_leaves=4)
"""With `Known` parts; some are malformed."""


def about(stored: Sequence[Document], filters: Sequence[Filter]) -> tuple[list[Document], list[Filter]]:
    """Return a collection's content, with ids, and the queries on it."""
    documents = [{"_id": position, **document} for position, document in enumerate(stored)]
    known = [pair for document in documents for pair in contents(document) if pair[0] != "_id"] or [("a", 1)]
    return documents, [resolved(filter_, known) for filter_ in filters]


COLLECTIONS = st.builds(about, st.lists(DOCUMENTS, min_size=1, max_size=8), st.lists(FILTERS, min_size=4, max_size=8))

SORTED_COLLECTIONS = st.tuples(
    st.lists(DOCUMENTS, min_size=2, max_size=9).map(
        lambda stored: [{"_id": position, **document} for position, document in enumerate(stored)]
    ),
    st.lists(SORTS, min_size=1, max_size=5),
)
"""A collection's content, and its order."""
