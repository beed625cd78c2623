"""Regular expressions: what they tell the index, and what they cost at most."""

from __future__ import annotations

import pytest
from bson import Regex

from quaestor.errors import MalformedQueryError, QueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query import compile_query
from quaestor.query.regex import Pattern, pattern


@pytest.mark.parametrize(
    ("source", "options", "prefix"),
    [
        ("^abc", "", "abc"),
        ("\\Aabc$", "", "abc"),
        ("^abc.*d", "", "abc"),
        ("^abc?", "", "ab"),
        ("^abc+", "", "abc"),
        ("^a{2}b", "", "a"),
        ("^\\Qa.b\\Ec", "", "a.bc"),
        ("^a\\.b", "", "a.b"),
        ("^a b #c\n", "x", "ab"),
        ("^(abc)", "", ""),
        ("^abc|d", "", ""),
        ("^abc", "i", ""),
        ("^abc", "m", ""),
        ("abc", "", ""),
        ("^é", "", "é"),
        ("^", "", ""),
    ],
)
def test_the_prefix_is_what_every_match_starts_with(source: str, options: str, prefix: str) -> None:
    assert pattern(source, options).prefix == prefix


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("(a+)+$", "a" * 50_000 + "!"),
        ("(a|a)*b", "a" * 50_000),
        ("(.*)(.*)(.*)(.*)x$", "y" * 20_000),
        ("a?" * 30 + "a" * 30, "a" * 29),
    ],
)
def test_patterns_made_to_explode_are_decided(source: str, text: str) -> None:
    """With a backtracking engine none of these would return within a lifetime."""
    assert not pattern(source, "").occurs(text)


def test_a_pattern_that_only_backtracking_can_match_is_cut_off() -> None:
    """The matcher raises that it does not know; its callers treat the record as matching."""
    query = compile_query({"a": {"$regex": "^(?=(a|aa|b)+c)(a|aa|b)+$(?!x)"}})
    with pytest.raises(UncertainMatchError, match="may match"):
        query.matches({"a": "a" * 200 + "!" + "a"})
    assert query.matches({"a": "x"}) is False


def test_look_around_and_references_are_evaluated() -> None:
    assert compile_query({"a": Regex("^(?!draft)\\w+$")}).matches({"a": "final"})
    assert not compile_query({"a": Regex("^(?!draft)\\w+$")}).matches({"a": "draft1"})
    assert compile_query({"a": Regex("(\\w)\\1")}).matches({"a": "hello"})


@pytest.mark.parametrize(
    "source", ["(", "a)", "[a", "a**", "*a", "a{2,1}", "\\", "(?<n", "[z-a]", "(?<=a+)b", "a\0b", "(a)\\2"]
)
def test_patterns_that_pcre_refuses_are_malformed(source: str) -> None:
    with pytest.raises(MalformedQueryError, match="regular expression"):
        compile_query({"a": {"$regex": source}})


@pytest.mark.parametrize("source", ["(?R)", "a(?1)(b)", "\\C", "\\R", "\\X", "a(*SKIP)b", "(?C1)a", "(?|(a)|(b))\\1"])
def test_patterns_that_no_engine_here_shares_with_pcre_are_unsupported(source: str) -> None:
    with pytest.raises(UnsupportedQueryError) as raised:
        compile_query({"a": {"$regex": source}})
    assert "regular expression" in raised.value.reason


def test_a_pattern_deeper_than_the_stack_is_refused_without_harm() -> None:
    """PCRE stops at 249 parentheses; the stack may give out earlier, which is then said."""
    assert pattern("(" * 40 + "a" + ")" * 40, "").occurs("a")
    with pytest.raises(QueryError, match="nested"):
        pattern("(" * 400 + ")" * 400, "")


def test_equal_patterns_are_shared() -> None:
    assert Pattern.of_value(Regex("a+b", "i")) is Pattern.of_value("a+b", "i")


def test_a_stored_expression_matches_itself_alone() -> None:
    query = compile_query({"a": Regex("x", "i")})
    assert query.matches({"a": Regex("x", "i")})
    assert not query.matches({"a": Regex("x")})
    assert not compile_query({"a": {"$eq": Regex("x")}}).matches({"a": "x"})


@pytest.mark.parametrize(
    ("source", "text", "matched"),
    [
        ("ß", "\u1e9e", True),
        ("[\u00df-\u00ff]", "\u1e9e", True),
        ("k", "\u212a", True),
        ("i", "\u0131", False),
        ("\u10d0", "\u1c90", False),
        ("\\w", "\u017f", False),
        ("[^\\w]", "\u017f", True),
        ("[[:upper:]]", "a", True),
        ("[^k]", "\u212a", False),
        ("ss", "ß", False),
    ],
)
def test_case_is_ignored_as_in_unicode_7(source: str, text: str, matched: bool) -> None:
    """Matches equal those of a mongod 6.0, with any version of Unicode in the engines here."""
    assert pattern(source, "i").occurs(text) is matched


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("(?=a)b*a", ""),
        ("(?=a)^a", "m"),
        ("((?=a))^a", "m"),
        ("(?!b)(?=a)^a", "m"),
        ("(?=[a])^a", "m"),
        ("(?=a).*A", "i"),
        ("(?=a+b)^\\Qa\\E", "m"),
        ("(?=(?=a))x?a", ""),
        ("(?:(?=a)b*a|(?=a)c*a)", ""),
    ],
)
def test_patterns_whose_first_character_pcre_8_mistakes_are_left_to_mongod(source: str, options: str) -> None:
    """mongod 6.0 finds nothing in "a", though each of them matches."""
    with pytest.raises(UnsupportedQueryError, match="first character"):
        pattern(source, options)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("(?=.*a)a", "s"),
        ("(?=.*?a)a", "s"),
        ("(?s)(?=.*a)a", ""),
        ("((?=(x|.*a))a)", "s"),
        ("(?=a|.*b)b|c", "s"),
    ],
)
def test_patterns_that_pcre_8_mistakes_for_anchored_ones_are_left_to_mongod(source: str, options: str) -> None:
    """mongod 6.0 searches some of these at the start of a value only."""
    with pytest.raises(UnsupportedQueryError, match="anchored"):
        pattern(source, options)


@pytest.mark.parametrize(
    ("source", "options"), [("(?=.*a)a", ""), ("b(?=.*a)", "s"), ("^(?=.*a)b", "s"), ("(?!.*c)b", "s")]
)
def test_look_ahead_that_pcre_8_does_not_mistake_for_an_anchor_is_evaluated(source: str, options: str) -> None:
    assert pattern(source, options).occurs("ba")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("(?=a)a", ""), ("(?=a)a+", ""), ("(?=.*a)^a", "m"), ("^(?=a)b*a", ""), ("(?=a)(?=b*)(?!b)a", ""), ("(?=a)[ab]", ""),
        ("(?=[ab])^a", "m"), ("x?(?=a)^a", "m"), ("(?!b)^a", "m"),
    ],
)  # fmt: skip
def test_look_ahead_that_pcre_8_does_not_mistake_is_evaluated(source: str, options: str) -> None:
    assert pattern(source, options).occurs("a")
