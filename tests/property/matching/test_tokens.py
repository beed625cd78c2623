"""The words of a record lead to every text search that it answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.planning.access_paths import access_paths
from quaestor.query.compiled import compile_query
from quaestor.query.text import TextIndex

INDEXES = [
    TextIndex.of({"weights": {"title": 1, "notes.text": 2}, "default_language": "english"}),
    TextIndex.of({"weights": {"$**": 1}, "default_language": "german"}),
]
WORDS = ("running", "runs", "the", "Häuser", "haus", "green", "x-ray", "apples", "apple")
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
searches = st.lists(
    st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS).map(lambda w: f"-{w}"), texts.map(lambda t: f'"{t}"')),
    max_size=3,
).map(" ".join)
filters = st.one_of(
    st.builds(lambda search: {"$text": {"$search": search}}, searches),
    st.builds(lambda search, a: {"$text": {"$search": search}, "a": a}, searches, st.integers(0, 2)),
    st.builds(lambda search, a: {"$or": [{"$text": {"$search": search}}, {"a": a}]}, searches, st.integers(0, 2)),
    st.builds(lambda search: {"$text": {"$search": search, "$caseSensitive": True}}, searches),
)
records = st.fixed_dictionaries(
    {},
    optional={
        "title": texts,
        "a": st.integers(0, 2),
        "notes": st.lists(st.fixed_dictionaries({"text": texts}), max_size=2),
        "language": st.sampled_from(["english", "german", "klingon"]),
    },
)


@given(
    st.lists(st.tuples(filters, st.sampled_from(INDEXES), st.booleans()), max_size=8),
    st.lists(records, min_size=1, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_candidates_include_every_answer(
    choices: list[tuple[dict[str, Any], TextIndex, bool]], documents: list[dict[str, Any]]
) -> None:
    index = QueryIndex()
    kept: list[tuple[Filter, Any]] = []
    for source, text_index, stays in choices:
        compiled = compile_query(source, text_index)
        item = Filter(compiled.identity, b"", compiled.matches)
        index.add(item, access_paths(compiled.root))
        if stays:
            kept.append((item, compiled.matches))
        else:
            index.remove(item)
    for document in documents:
        candidates = set(index.candidates(document))
        for item, matches in kept:
            assert item in candidates or not matches(document)
    for item, _ in kept:
        index.remove(item)
    assert (len(index), index.always, index._texts, index._paths) == (0, 0, {}, {})
