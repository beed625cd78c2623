"""The index never hides a match, after any additions and removals."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

import bson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quaestor.errors import QueryError, UncertainMatchError
from quaestor.invalidation.matching import index as index_module
from quaestor.invalidation.matching import intervals
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.intervals import IntervalTree
from quaestor.planning.access_entries import describe_choice, entries_of
from quaestor.planning.access_paths import access_paths
from quaestor.query.compiled import CompiledQuery, compile_query
from quaestor.query.expressions import ExpressionError
from quaestor.query.pcre.case import other_cases
from quaestor.query.pcre.required_text import folded_alike, without_case
from quaestor.query.regex import pattern
from tests.oracle.pattern_strategies import EXPRESSIONS, TEXTS
from tests.oracle.query_strategies import COLLECTIONS
from tests.property.matching.records import bodies, filters


def added(index: QueryIndex, compiled: CompiledQuery) -> Filter:
    item = Filter(compiled.identity, b"", compiled.matches)
    index.add(item, access_paths(compiled.root))
    return item


@given(
    st.lists(st.tuples(filters, st.booleans()), max_size=12),
    st.lists(bodies, min_size=1, max_size=6),
    st.sampled_from([32, 1]),
)
@settings(max_examples=800, deadline=None)
def test_candidates_include_every_match(
    choices: list[tuple[dict[str, Any], bool]], records: list[dict[str, Any]], crowded: int
) -> None:
    """Also where every entry is crowded at once, so that filters and branches of disjunctions go to their other entries."""
    index = QueryIndex()
    kept: list[Filter] = []
    with mock.patch.object(index_module, "_CROWDED", crowded):
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


@given(COLLECTIONS)
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
def test_candidates_include_every_match_of_what_the_oracle_is_asked(
    case: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    """Odd types, odd paths, nested operators: the filters whose answers are compared with those of a mongod."""
    records, sources = case
    index = QueryIndex()
    kept = []
    for source in sources:
        with suppress(QueryError):
            kept.append(added(index, compile_query(source)))
    for record in records:
        stored = bson.decode(bson.encode(record))
        candidates = set(index.candidates(stored))
        for item in kept:
            with suppress(UncertainMatchError, ExpressionError):
                assert item in candidates or item.matches is None or not item.matches(stored)


@given(st.lists(filters, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_plan_names_every_condition_by_which_the_index_may_find_it(sources: list[dict[str, Any]]) -> None:
    """The plan names every possible condition, also where an entry is crowded and another one was chosen."""
    index = QueryIndex()
    with mock.patch.object(index_module, "_CROWDED", 2):
        for source in sources * 3:
            compiled = compile_query(source)
            item = added(index, compiled)
            named = describe_choice(access_paths(compiled.root))
            entries = [] if item.access is None else [entry.describe() for entry in entries_of(item.access)]
            for condition in entries or ["always try" if item.access is None else "never matches"]:
                assert condition in named


@given(
    EXPRESSIONS,
    st.lists(st.one_of(st.sampled_from(TEXTS), st.text("abAB \n\u017f\u212aksK1", max_size=8)), max_size=20),
)
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_required_text_of_a_pattern_is_in_every_text_that_it_matches(
    expression: tuple[str, str], texts: list[str]
) -> None:
    try:
        compiled = pattern(*expression)
    except QueryError:
        return
    for text in texts if compiled.required else []:
        with suppress(UncertainMatchError):
            if compiled.occurs(text):
                for alternatives in compiled.required:
                    assert any(
                        required.text in (without_case(text) if required.caseless else text)
                        for required in alternatives
                    ), (compiled.required, text)


def test_no_character_that_a_pattern_takes_for_a_letter_is_folded_to_another() -> None:
    for code in range(128):
        for case in (chr(code), *other_cases(chr(code))):
            assert without_case(case) == chr(code).lower()


def test_a_text_without_case_is_in_every_spelling_of_it() -> None:
    """For every character with a case, beside the character whose small letter depends on its neighbours."""
    folded = 0
    for code in range(0x11900):
        character = chr(code)
        if cases := other_cases(character):
            text = folded_alike((character, *cases))
            folded += bool(text)
            assert not text or all(text in without_case(f"\u03a3{case}\u03a3 ") for case in (character, *cases))
    assert folded > 2_100
    assert folded_alike("\u03a3\u03c3") == folded_alike("\u00b5\u03bc") == ""


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
        overlapping: list[tuple[int, int]] = []
        tree.overlapping(low, low + width, overlapping)
        assert sorted(overlapping) == sorted(i for i in model if i[0] <= low + width and i[1] >= low)
