"""A query with `$text` is exact as soon as it carries the definition of the text index, and widened without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.model import Operation, Query
from quaestor.planning.plan import plan_query
from quaestor.planning.plan_parts import Window
from quaestor.planning.relevant_fields import ALL
from quaestor.query import compile_query, rank_key
from quaestor.query.text import TextIndex
from quaestor.query.text.operator import with_text_index

DEFINITION: dict[str, Any] = {
    "v": 2,
    "key": {"_fts": "text", "_ftsx": 1},
    "name": "a_text",
    "weights": {"a": 1},
    "default_language": "english",
    "language_override": "language",
    "textIndexVersion": 3,
}
QUERY = Query(namespace="d.c", operation=Operation.FIND, filter={"$text": {"$search": "dogs"}})


def test_without_the_definition_every_write_counts() -> None:
    plan = plan_query(QUERY)
    assert (plan.match, plan.predicate) == ("widened", None)


def test_with_the_definition_the_words_decide() -> None:
    plan = plan_query(replace(QUERY, text_index=DEFINITION))
    assert plan.match == "exact"
    assert plan.predicate is not None
    assert plan.predicate.matches({"a": "a dog"})
    assert not plan.predicate.matches({"a": "a cat"})


def test_the_condition_of_the_plan_suffices_for_matching() -> None:
    """The condition is kept and compiled again later."""
    plan = plan_query(replace(QUERY, text_index=DEFINITION))
    assert plan.condition is not None
    assert compile_query(plan.condition).matches({"a": "dogged dogs"})


def test_another_index_is_another_query() -> None:
    query = replace(QUERY, text_index=DEFINITION)
    other = replace(QUERY, text_index={**DEFINITION, "default_language": "none"})
    assert plan_query(query).query_id != plan_query(other).query_id


def test_sorted_by_score_the_searched_texts_say_where_a_record_stands() -> None:
    by_score = replace(QUERY, text_index=DEFINITION, sort=(("s", {"$meta": "textScore"}),), limit=3)
    plan = plan_query(by_score)
    assert (plan.match, plan.window, plan.relevant.fields) == ("exact", Window.BOUNDARY, ALL)
    assert plan.place.ordering == ("a", "a.language", "language")
    assert plan.query_id != plan_query(replace(by_score, sort=())).query_id


def test_sorted_by_score_and_more_any_match_counts() -> None:
    """Any match also counts where the score depends on a record's whole text."""
    by_score = replace(QUERY, text_index=DEFINITION, sort=(("s", {"$meta": "textScore"}), ("a", 1)), limit=3)
    assert plan_query(by_score).window is Window.UNORDERED
    everything = {**DEFINITION, "weights": {"$**": 1}}
    assert plan_query(replace(by_score, sort=by_score.sort[:1], text_index=everything)).window is Window.UNORDERED


def test_rank_is_by_score() -> None:
    query = compile_query({"$text": {"$search": "dogs"}}, TextIndex.of(DEFINITION))
    rank = rank_key(query.root)
    assert rank is not None
    assert sorted([{"a": "a cat, two dogs and more"}, {"a": "dogs dogs"}, {"a": "dog"}], key=rank) == [
        {"a": "dogs dogs"},
        {"a": "dog"},
        {"a": "a cat, two dogs and more"},
    ]


def test_rank_is_by_distance() -> None:
    rank = rank_key(compile_query({"p": {"$near": [0, 0]}}).root)
    assert rank is not None
    assert sorted([{"p": [9, 9]}, {}, {"p": [1, 1]}], key=rank) == [{"p": [1, 1]}, {"p": [9, 9]}, {}]
    assert rank_key(compile_query({"p": 1}).root) is None


def test_both_ways_to_give_the_index_mean_the_same() -> None:
    filter_ = {"n": 1, "$or": [{"$text": {"$search": "dogs"}}, {"b": 2}]}
    written, by_definition = (
        compile_query(with_text_index(filter_, DEFINITION)),
        compile_query(filter_, TextIndex.of(DEFINITION)),
    )
    assert written.identity == by_definition.identity
    assert written.matches({"n": 1, "a": "dog"})
    assert by_definition.matches({"n": 1, "b": 2})


@pytest.mark.parametrize("language", ["russian", "ro", "turkish"])
def test_a_language_that_is_not_evaluated_is_unsupported(language: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        compile_query({"$text": {"$search": "x", "$language": language}}, TextIndex.of(DEFINITION))


def test_a_record_in_such_a_language_may_match() -> None:
    query = compile_query({"$text": {"$search": "x"}}, TextIndex.of(DEFINITION))
    with pytest.raises(UncertainMatchError):
        query.matches({"a": "x", "language": "russian"})


def test_an_old_version_of_the_index_is_unsupported() -> None:
    with pytest.raises(UnsupportedQueryError):
        TextIndex.of({**DEFINITION, "textIndexVersion": 2})


@pytest.mark.parametrize(
    "filter_",
    [
        {"$text": {}},
        {"$text": "dogs"},
        {"$text": {"$search": 5}},
        {"$text": {"$search": "x", "$language": "klingon"}},
        {"$text": {"$search": "x", "$caseSensitive": 1}},
        {"$text": {"$search": "x", "$more": 1}},
        {"$nor": [{"$text": {"$search": "x"}}]},
        {"$and": [{"$text": {"$search": "x"}}, {"$text": {"$search": "y"}}]},
        {"a": {"$elemMatch": {"$text": {"$search": "x"}}}},
    ],
)
def test_searches_that_mongod_refuses_are_malformed(filter_: dict[str, Any]) -> None:
    with pytest.raises(MalformedQueryError):
        compile_query(filter_, TextIndex.of(DEFINITION))
