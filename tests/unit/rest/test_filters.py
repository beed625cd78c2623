"""Filters and sorts from strangers: refused before the database hears of them, with place and reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.errors import ConfigurationError
from quaestor.rest.filters import parse_filter, parse_sort
from quaestor.rest.limits import Limits
from quaestor.rest.operators import FILTER_OPERATORS
from quaestor.rest.problems import Problem

LIMITS = Limits(filter_bytes=4_000, filter_depth=6, filter_nodes=40, in_values=10, regex_characters=20, regexes=2)


def refusal(text: str, limits: Limits = LIMITS) -> Problem:
    with pytest.raises(Problem) as refused:
        parse_filter(text, limits)
    assert refused.value.status == 400
    assert refused.value.extra["parameter"] == "filter"
    return refused.value


REFUSED = [
    ("{", "filter-malformed", 1, None),
    ("[]", "filter-malformed", 0, ""),
    ('"x"', "filter-malformed", 0, ""),
    ('{"a": {"b": 1}, "a": 2}', "filter-malformed", 1, "/a"),
    ('{"$where": "sleep(1000)"}', "filter-operator", 1, "/$where"),
    ('{"a": 1, "$or": [{"b": 1}, {"$where": "1"}]}', "filter-operator", 28, "/$or/1/$where"),
    ('{"$expr": {"$function": {"body": "f", "args": [], "lang": "js"}}}', "filter-operator", 1, "/$expr"),
    ('{"a": {"$gte": 1, "$bogus": 2}}', "filter-operator", 18, "/a/$bogus"),
    ('{"$jsonSchema": {}}', "filter-operator", 1, "/$jsonSchema"),
    ('{"$text": {"$search": "x"}}', "filter-operator", 1, "/$text"),
    ('{"a": {"b": {"$where": 1}}}', "filter-operator", 13, "/a/b/$where"),
    ('{"a": {"$code": "x"}}', "filter-operator", 1, "/a"),
    ('{"a": {"$in": 5}}', "filter-malformed", 1, "/a"),
    ('{"x": 1, "$or": []}', "filter-malformed", 9, "/$or"),
    ('{"$and": [{"a": 1}, {"b": {"$size": -1}}]}', "filter-malformed", 21, "/$and/1/b"),
    ('{"a": {"$regex": "("}}', "filter-malformed", 1, "/a"),
    ('{"a": {"$mod": [0, 0]}}', "filter-malformed", 1, "/a"),
    ('{"a": {"$regex": "%s"}}' % ("x" * 21), "filter-too-large", 7, "/a/$regex"),
    ('{"a": {"$regularExpression": {"pattern": "%s", "options": ""}}}' % ("x" * 21), "filter-too-large", 1, "/a"),
    ('{"a": {"$regex": "a"}, "b": {"$regex": "b"}, "c": {"$regex": "c"}}', "filter-too-large", 51, "/c/$regex"),
    (json.dumps({"a": {"$in": list(range(11))}}), "filter-too-large", 7, "/a/$in"),
    (json.dumps({"a": list(range(60))}), "filter-too-large", 149, "/a/38"),
    ('{"a": {"b": {"c": {"d": {"e": {"f": {}}}}}}}', "filter-malformed", 36, None),
    (json.dumps({"a": "x" * 5000}), "filter-too-large", 4_000, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "position", "pointer"), REFUSED, ids=[text[:40] for text, *_ in REFUSED])
def test_a_refused_filter_is_refused_with_its_place(text: str, name: str, position: int, pointer: str | None) -> None:
    problem = refusal(text)
    assert (problem.name, problem.extra["position"], problem.extra.get("pointer")) == (name, position, pointer)


def test_the_operator_that_is_refused_is_named() -> None:
    assert "$where" in refusal('{"a": 1, "$nor": [{"$where": "1"}]}').detail


def test_code_is_refused_with_all_operators_allowed() -> None:
    limits = Limits(operators=FILTER_OPERATORS | {"$where", "$expr", "$function"})
    assert refusal('{"$where": "1"}', limits).name == "filter-operator"
    assert refusal('{"$expr": {"$function": {}}}', limits).name == "filter-operator"
    allowed = Limits(operators=FILTER_OPERATORS | {"$expr"})
    assert parse_filter('{"$expr": {"$eq": ["$a", "$b"]}}', allowed).document


def test_a_long_refusal_is_cut() -> None:
    text = json.dumps({"a": {"$size": "x" * 3_000}})
    assert len(refusal(text).detail) < 500


ACCEPTED: list[Any] = [
    {},
    {"a": None},
    {"a": {"$gte": 1, "$lt": 5}, "b.c": {"$in": ["x", None]}},
    {"$or": [{"a": 1}, {"$nor": [{"b": {"$exists": True}}]}]},
    {"a": {"$not": {"$regex": "^x", "$options": "i"}}},
    {"a": {"$elemMatch": {"b": 1, "c": {"$type": "string"}}}},
    {"place": {"$geoWithin": {"$center": [[0, 0], 3]}}},
    {"a": {"$ref": "other", "$id": 1}},
]


@pytest.mark.parametrize("filter_", ACCEPTED, ids=str)
def test_ordinary_filters_pass_as_they_are(filter_: Any) -> None:
    parsed = parse_filter(json.dumps(filter_), LIMITS)
    assert parsed.document == filter_
    assert not parsed.ordered


def test_near_orders_by_itself() -> None:
    assert parse_filter('{"place": {"$near": [1, 2]}}', LIMITS).ordered


@given(st.text(st.sampled_from('{}[]":,$abinorgexqt 01.'), max_size=60))
def test_garbage_is_a_filter_or_a_400_and_nothing_else(text: str) -> None:
    problem: Problem | None = None
    try:
        parse_filter(text, LIMITS)
    except Problem as refused:
        problem = refused
    assert problem is None or (problem.status == 400 and 0 <= problem.extra["position"] <= len(text))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("[]", 0),
        ('{"a": 2}', 1),
        ('{"a": true}', 1),
        ('{"a": {"$meta": "textScore"}}', 1),
        ('{"ok": 1, "$natural": 1}', 10),
        ('{"a..b": 1}', 1),
        ('{"": 1}', 1),
        (json.dumps({f"f{i}": 1 for i in range(9)}), 0),
    ],
)
def test_sorts_are_pairs_of_path_and_direction(text: str, position: int) -> None:
    with pytest.raises(Problem) as refused:
        parse_sort(text, LIMITS)
    assert refused.value.status == 400
    assert (refused.value.extra["parameter"], refused.value.extra["position"]) == ("sort", position)


def test_a_sort_keeps_its_order() -> None:
    assert parse_sort('{"b": -1, "a.c": 1}', LIMITS) == (("b", -1), ("a.c", 1))


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"skip": -1}, {"time_ms": "2"}, {"default_limit": 2000}, {"body_depth": 101}]
)
def test_limits_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        Limits(**wrong)
