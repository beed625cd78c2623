"""The index never hides a match, whatever was added and removed before."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.invalidation.matching import intervals
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.intervals import IntervalTree
from quaestor.planning.access_paths import access_paths
from quaestor.query.compiled import CompiledQuery, compile_query
from tests.property.matching.records import bodies, filters


def added(index: QueryIndex, compiled: CompiledQuery) -> Filter:
    item = Filter(compiled.identity, b"", compiled.matches)
    index.add(item, access_paths(compiled.root))
    return item


@given(st.lists(st.tuples(filters, st.booleans()), max_size=12), st.lists(bodies, min_size=1, max_size=6))
@settings(max_examples=600, deadline=None)
def test_candidates_include_every_match(
    choices: list[tuple[dict[str, Any], bool]], records: list[dict[str, Any]]
) -> None:
    index = QueryIndex()
    kept: list[Filter] = []
    for source, stays in choices:
        item = added(index, compile_query(source))
        if stays:
            kept.append(item)
        else:
            index.remove(item)
    assert len(index) == len(kept)
    for record in records:
        candidates = set(index.candidates(record))
        assert candidates <= set(kept)
        for item in kept:
            assert item in candidates or item.matches is None or not item.matches(record)


@given(st.lists(filters, max_size=8))
@settings(max_examples=200, deadline=None)
def test_an_emptied_index_holds_nothing(sources: list[dict[str, Any]]) -> None:
    index = QueryIndex()
    items = [added(index, compile_query(source)) for source in sources]
    for item in items:
        index.remove(item)
    assert (len(index), index.always, index._paths, index._by_field, index._nulls) == (0, 0, {}, {}, {})


ends = st.integers(0, 60)
steps = st.lists(st.tuples(ends, ends, st.booleans()), max_size=400)


@given(steps, st.lists(st.tuples(ends, st.integers(0, 5)), max_size=10))
@settings(max_examples=300, deadline=None)
def test_interval_trees_find_what_a_scan_finds(
    changes: list[tuple[int, int, bool]], spans: list[tuple[int, int]]
) -> None:
    with mock.patch.object(intervals, "_FULL", 4):
        _compare(changes, spans)


def _compare(changes: list[tuple[int, int, bool]], spans: list[tuple[int, int]]) -> None:
    tree: IntervalTree[tuple[int, int]] = IntervalTree()
    model: set[tuple[int, int]] = set()
    for low, high, keep in changes:
        if keep:
            tree.put(low, high, (low, high))
            model.add((low, high))
        else:
            assert tree.pop(low, high) == ((low, high) if (low, high) in model else None)
            model.discard((low, high))
        assert len(tree) == len(model)
    assert sorted(tree.payloads()) == sorted(model)
    for low, width in spans:
        found: list[tuple[int, int]] = []
        tree.overlapping(low, low + width, found)
        assert sorted(found) == sorted(i for i in model if i[0] <= low + width and i[1] >= low)
