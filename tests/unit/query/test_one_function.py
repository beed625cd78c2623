"""Conjunctions as one function: the same answers as their members, no part of a query in the code, one code for a shape."""

from __future__ import annotations

import datetime
import gc
import re
import tracemalloc
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.errors import QueryError
from quaestor.query import compile_query, one_function
from quaestor.query.ast import Conjunction, Constant, Disjunction, Negation, Node, Predicate
from quaestor.query.compile import conjunction_of, cost, general_matcher
from quaestor.query.compiled import RECENT
from quaestor.query.fast_paths import paired_ranges, short_cut
from quaestor.query.paths import Matcher

HOSTILE = [
    "", "a", "a.b", "a.b.c", "a.0", "a.b.c.d.e", "document", "general", "value", "holds", "c0_0", "ODD", "return True",
    "__class__", "'", '"', '"""', "\\", "\n    return True", "#", "{0}", "{1!r}", "%s",
    "a); import os; (", "x = 1\nraise SystemExit",
    "é\u2028", "__builtins__", "None", "True", "\ud800",
]  # fmt: skip
DAY = datetime.datetime(2020, 5, 17, 12)
scalars: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 5),
    st.sampled_from(HOSTILE),
    st.sampled_from([2.0, 2.5, float("nan"), float("inf"), Int64(3), Decimal128("2"), None, True, False, b"a"]),
    st.sampled_from(
        [ObjectId("5" * 24), ObjectId("6" * 24), DAY, DAY.replace(hour=13), DAY.replace(tzinfo=datetime.UTC)]
    ),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c", "0"]), inner, max_size=2)
    ),
    max_leaves=5,
)
comparisons = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), scalars).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    st.tuples(st.sampled_from(["$gt", "$gte"]), scalars, st.sampled_from(["$lt", "$lte"]), scalars).map(
        lambda four: {four[0]: four[1], four[2]: four[3]}
    ),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(scalars, min_size=1, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    st.sampled_from([{"$exists": True}, {"$size": 1}, {"$not": {"$gt": 2}}, {"$regex": "a"}]),
)
conjunctions = st.lists(st.tuples(st.sampled_from(HOSTILE), comparisons), min_size=2, max_size=6)
records = st.dictionaries(st.sampled_from(HOSTILE), values, max_size=6)
NAMES = {
    "NUMBERS", "LISTED", "NOT_NULL", "ODD", "ObjectId", "TypeError", "bool", "datetime", "dict", "str", "get", "__class__",
}  # fmt: skip


def reference(node: Node) -> Matcher:
    """The matcher of a tree whose predicates are evaluated one by one, without short cuts."""
    match node:
        case Conjunction():
            members = list(map(reference, node.members))
            return lambda record: all(member(record) for member in members)
        case Disjunction():
            members = list(map(reference, node.members))
            return lambda record: any(member(record) for member in members)
        case Negation():
            inner = reference(node.member)
            return lambda record: not inner(record)
        case Predicate() | Constant():
            return general_matcher(node)


@given(conjunctions, st.lists(records, min_size=1, max_size=8))
@settings(max_examples=600, deadline=None)
def test_a_conjunction_answers_as_its_members_do(parts: list[tuple[str, Any]], written: list[dict[str, Any]]) -> None:
    """Hostile names, values of every class, arrays on the path; and the code holds names of its own vocabulary alone."""
    try:
        query = compile_query({"$and": [{path: comparison} for path, comparison in parts]})
    except (QueryError, UnicodeError):
        return
    expected = reference(query.root)
    for record in [*written, *({path: 2} for path, _ in parts), {"a": {"b": {"c": 2}}}]:
        assert query.matches(record) == expected(record)
    if isinstance(query.matches, FunctionType) and query.matches.__name__ == "matches":
        code = query.matches.__code__
        assert set(code.co_names) <= NAMES
        assert all(constant in (None, True, False) or constant in range(16) for constant in code.co_consts)
        assert all(re.fullmatch(r"document|general|value|holds|c\d+_\d+", name) for name in code.co_varnames)
        assert (code.co_freevars, code.co_cellvars) == ((), ())


def test_the_source_of_a_query_is_that_of_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    made = one_function.source_of

    def kept(shape: Any) -> str:
        texts.append(made(shape))
        return texts[-1]

    monkeypatch.setattr(one_function, "source_of", kept)
    monkeypatch.setattr(one_function, "_CODES", {})
    for name in ("first", '"); raise SystemExit #'):
        assert compile_query({name: "secret " + name, "other": {"$gt": 12_345}}).matches(
            {name: "secret " + name, "other": 12_346}
        )
    assert len(texts) == 1
    assert not any(part in texts[0] for part in ("first", "secret", "other", "12345", "SystemExit"))


def test_queries_of_one_shape_share_one_code() -> None:
    matchers = [
        compile_query({f"customer{n:04}": n, "state": f"s{n}", "at": {"$gte": n, "$lt": n + 5}}).matches
        for n in range(2_000)
    ]
    assert len({id(matches.__code__) for matches in matchers if isinstance(matches, FunctionType)}) == 1
    assert all(isinstance(matches, FunctionType) for matches in matchers)
    assert matchers[7]({"customer0007": 7, "state": "s7", "at": 8})
    assert not matchers[7]({"customer0007": 7, "state": "s7", "at": 12})


def test_shapes_beyond_the_bound_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_function, "_MOST_SHAPES", 3)
    monkeypatch.setattr(one_function, "_CODES", {})
    operands: list[Any] = [1, "a", True, ObjectId("5" * 24)]
    filters = [{"a": first, "b": other} for first in operands for other in operands]
    matchers = [(compile_query(filter_).matches, filter_) for filter_ in filters]
    assert len(one_function._CODES) <= 3
    for matches, record in matchers:
        assert [other for other in filters if matches(other)] == [record]


def test_a_conjunction_takes_no_more_memory_than_its_members() -> None:
    """A node keeps tens of thousands compiled."""
    roots = []
    for n in range(1_000):
        roots.append(compile_query({"customer": n, "state": f"s{n}", "price": {"$gte": n, "$lt": n + 1}}).root)
        RECENT.clear()

    def by_members(root: Node) -> Matcher:
        assert isinstance(root, Conjunction)
        members = sorted(paired_ranges(root.members), key=cost)
        return conjunction_of([short_cut(member, general_matcher) or general_matcher(member) for member in members])

    general_matcher(roots[0])  # the code of the shape
    assert _bytes_of(general_matcher, roots) < 0.8 * _bytes_of(by_members, roots)


def _bytes_of(build: Callable[[Node], Matcher], roots: list[Node]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = [build(root) for root in roots]
        size, _ = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return size
