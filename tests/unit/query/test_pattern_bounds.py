"""Regular expressions from outside: what may be compiled for one query, for all of a process, and how long they may take."""

from __future__ import annotations

import re as standard
from typing import Any

import pytest
import re2
import regex as engine
from bson import Regex

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query import compile_query
from quaestor.query import regex as patterns
from quaestor.query.allowance import MOST_WORK, within_allowance
from quaestor.query.bounded_engine import BoundedEngine, SlowRuns
from quaestor.query.compiled_patterns import ENGINES_BYTES, WithinBytes
from quaestor.query.pcre.pieces import LARGEST_WORK, LONGEST, Options
from quaestor.query.pcre.translate import translate
from quaestor.query.regex import ENGINES, pattern

HOSTILE = [
    "(a{999}){998}\\1",
    "(a{100}){99}\\1",
    "(?=(ab{3}){3000})",
    "((((a{9}){9}){9}){9})\\1",
    "(?:[a-z]{9}){900}\\b(?=x)",
    "(a|b|c|d){2500}(?!x)",
    "[^a]{999}[^b]{999}",
    "(?:a{1000}b{1000}){0,2}c{1000}",
    "\\p{L}" * 24,
    "(?i)" + "[!-\uffff]" * 100,
    "(?:\\p{Lu}{3}){9}",
    "a?" * 600,
    "a." * (LONGEST // 2 + 1),
    "(?:" * 200 + "a{9}" + "){9}" * 200,
]
"""Each takes an engine milliseconds and megabytes, or much more."""
SLOW = "^(?=(a|aa|b)+c)(a|aa|b)+$(?!x)"
LATE = "a" * 200 + "!a"
"""A text that keeps the pattern above busy for longer than anybody waits."""


@pytest.mark.parametrize("source", HOSTILE, ids=lambda source: source[:24])
@pytest.mark.parametrize(
    "ask",
    [
        lambda source: {"a": {"$regex": source}},
        lambda source: {"a": Regex(source)},
        lambda source: {"a": {"$in": [1, Regex(source)]}},
        lambda source: {"a": {"$not": Regex(source)}},
        lambda source: {"a": {"$elemMatch": {"$regex": source}}},
        lambda source: {"$expr": {"$regexMatch": {"input": "$a", "regex": source}}},
        lambda source: {"$expr": {"$regexFind": {"input": "$a", "regex": source}}},
        lambda source: {"$jsonSchema": {"properties": {"a": {"pattern": source}}}},
        lambda source: {"$jsonSchema": {"patternProperties": {source: {}}}},
    ],
    ids=["$regex", "value", "$in", "$not", "$elemMatch", "$regexMatch", "$regexFind", "pattern", "patternProperties"],
)
def test_a_pattern_that_is_too_large_is_refused_before_any_engine_sees_it(
    source: str, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal holds wherever a filter may hold a pattern, and is arithmetic on the pattern's text."""
    filter_ = ask(source)
    compile_query({"a": Regex("warm(?=x)")})

    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("an engine compiles it")

    for module in (engine, re2):
        monkeypatch.setattr(module, "compile", compiled)
    with pytest.raises(UnsupportedQueryError) as raised:
        compile_query(filter_)
    assert raised.value.reason.startswith("a regular expression")


@pytest.mark.parametrize(
    ("source", "work"),
    [
        ("abc", 3),
        ("a{10}", 11),
        ("(a{10}){10}", 131),
        ("(?:ab|c){3,7}", 7 * 6 + 1),
        ("a*", 2),
        ("a{3,}", 5),
        ("\u00e9", 2),
        ("(a{65535}){9}", 9 * (65_536 + 2) + 1),
    ],
)
def test_repetitions_are_multiplied_out(source: str, work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quaestor.query.pcre.pieces.LARGEST_WORK", 10**9)
    assert translate(source, Options()).work == work


def test_common_searches_stay_exact() -> None:
    words = "|".join(f"word{number}" for number in range(90))
    for source in (
        "^.{1,500}$",
        f"\\b(?:{words})\\b",
        "^[\\w.+-]{1,64}@(?:[a-z0-9-]{1,63}\\.){1,8}[a-z]{2,24}$",
        "\\p{L}+",
    ):
        assert pattern(source, "i").work <= LARGEST_WORK
    hundred = {"$or": [{"name": {"$regex": f"name {number}", "$options": "i"}} for number in range(100)]}
    assert compile_query(hundred).matches({"name": "NAME 77"})


def test_many_of_them_count_together_and_equal_ones_once() -> None:
    """A thousand patterns of the largest size in one request would take as long as one without any bound."""
    large = [f"(a{{9}}){{200}}{number}" for number in range(10)]
    pattern(large[0], "")
    with pytest.raises(UnsupportedQueryError, match="together"):
        compile_query({"$or": [{"a": Regex(source)} for source in large]})
    assert compile_query({"$or": [{f"a{number}": Regex(large[0])} for number in range(50)]})
    assert compile_query({"a": Regex(large[1])}), "each alone is possible: the count begins anew with each query"
    assert 10 * pattern(large[0], "").work > MOST_WORK


def test_expressions_out_of_records_count_together_for_each_record() -> None:
    """`$regexMatch` may take its expression from the record, of which anybody may be the author."""
    query = compile_query(
        {
            "$expr": {
                "$anyElementTrue": {"$map": {"input": "$e", "in": {"$regexMatch": {"input": "b", "regex": "$$this"}}}}
            }
        }
    )
    with pytest.raises(UnsupportedQueryError, match="together"):
        query.matches({"e": [f"(a{{9}}){{200}}{number}" for number in range(10)]})
    with pytest.raises(UnsupportedQueryError, match="too large"):
        query.matches({"e": [HOSTILE[0]]})
    assert query.matches({"e": ["a", "b"]})


def test_compiled_patterns_stay_within_their_bytes_for_any_number_of_holders() -> None:
    """Thousands of predicates of a cell, each with its own pattern, keep no more. The engines keep nothing besides."""
    queries = [compile_query({"a": Regex(f"^(?!x{number})(a{{9}}){{400}}")}) for number in range(100)]
    assert ENGINES.used_bytes <= ENGINES_BYTES
    assert not engine.cache_all() or not any("x99" in str(key) for key in engine._main._cache)
    small: WithinBytes[Any] = WithinBytes(budget_bytes=3_000_000)
    saved, patterns.ENGINES = patterns.ENGINES, small  # type: ignore[misc]
    try:
        for query in queries * 2:
            assert not query.matches({"a": "b"})
            assert small.used_bytes <= 3_000_000
        assert len(small) < 10
    finally:
        patterns.ENGINES = saved  # type: ignore[misc]


def test_patterns_used_since_their_last_turn_stay() -> None:
    kept: WithinBytes[int] = WithinBytes(budget_bytes=100)
    for name in range(10):
        kept.get(name, lambda: (0, 10))
    for name in range(10, 200):
        kept.get(3, lambda: (0, 10))
        kept.get(name, lambda: (0, 10))
        assert kept.used_bytes <= 100
    assert kept.made == 200
    kept.get("too large for all", lambda: (0, 101))
    assert kept.used_bytes <= 100


def test_the_time_limit_is_one_for_a_record_and_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its texts and patterns ask for time."""
    limits: list[float] = []
    bounded = BoundedEngine(SLOW, slow_runs=SlowRuns())

    class Timed:
        pattern = SLOW

        def search(self, text: str, position: int, *, timeout: float) -> None:
            limits.append(timeout)
            clock[0] += 0.02

    clock = [0.0]
    monkeypatch.setattr("quaestor.query.bounded_engine.time.thread_time", lambda: clock[0])
    monkeypatch.setattr(bounded, "_compiled", Timed())
    evaluate = within_allowance(lambda texts: [bounded.search(text) for text in texts])
    with pytest.raises(UncertainMatchError, match="no time"):
        evaluate(["a"] * 10)
    assert limits == pytest.approx([0.05, 0.03, 0.01])
    limits.clear()
    evaluate(["a"])
    assert limits == [0.05], "the next record has its own"


def test_a_pattern_that_runs_out_of_time_again_is_not_tried_again_for_a_while() -> None:
    """The cost of such a pattern does not grow with its queries, registrations and records."""
    bounded = BoundedEngine(SLOW, slow_runs=SlowRuns())
    for _ in range(500):
        with pytest.raises(UncertainMatchError, match="may match"):
            bounded.search(LATE)
    assert bounded.runs <= 6
    for _ in range(1_200):
        try:
            bounded.search("b")
        except UncertainMatchError:
            continue
        break
    else:
        pytest.fail("it has to be tried again one day")


def test_slow_patterns_get_a_tenth_of_the_time_together() -> None:
    """A thousand different ones, each of which runs out of time once, do not take a cell away from the others."""
    now_s = [0.0]
    slow_runs = SlowRuns(lambda: now_s[0])
    for _ in range(100):
        slow_runs.took(0.001)
    assert slow_runs.left(), "what is quick is not counted"
    runs = 0
    for _ in range(10_000):
        now_s[0] += 0.01
        if slow_runs.left():
            runs += 1
            slow_runs.took(0.05)
    assert runs * 0.05 == pytest.approx(1 + 0.1 * 100, abs=0.2)


def test_python_s_own_cache_is_given_small_patterns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's cache counts patterns, not bytes, so it receives no large ones."""
    seen: list[str] = []
    real = standard.compile
    monkeypatch.setattr(patterns.re, "compile", lambda text: seen.append(text) or real(text))
    pattern("[a-z]" * 150, "")
    pattern("[a-z]" * 9 + "unheard of", "")
    assert [len(text) < 200 for text in seen] == [True]


def test_plain_text_may_be_as_long_as_mongod_takes_it() -> None:
    """Nothing is compiled for it; a byte more than mongod takes is refused as there."""
    text = "a" * 32_764
    assert compile_query({"a": {"$regex": text}}).matches({"a": f"b{text}"})
    assert not compile_query({"a": {"$regex": text}}).matches({"a": text[1:]})
    with pytest.raises(MalformedQueryError, match="more than 32,764 bytes"):
        compile_query({"a": {"$regex": text + "a"}})
