"""Regular expressions put together from PCRE's constructs, and texts to look for them in."""

from __future__ import annotations

import random

from hypothesis import strategies as st

# fmt: off
COMMON = ["a", "b", "A", ".", "^", "$", "(", ")", "|", "*", "+", "?"]
CONSTRUCTS = [
    "1", "\\b", "\\B", "\\d", "\\w", "\\s", "\\D", "\\W", "\\S", "\\h", "\\v", "\\H", "\\V", "\\R", "\\N", "\\A", "\\z", "\\Z",
    "\\G", "\\n", "\\t", "\\x41", "\\x{e9}", "\\e", "\\cA", "\\061", "\\1", "\\2", "\\8", "\\11", "\\Qa.b\\E", "\\Q\\E", "\\E",
    "\\.", "\\-", "\\i", "\\_", "[ab]", "[^ab]", "[a-c]", "[^\\w]", "[\\s\\d]", "[]a]", "[^]a]", "[a\\]]", "[-a]", "[a-]",
    "[[:alpha:]]", "[[:^digit:]b]", "[[:upper:]]", "[[:lower:]]", "[\\b]", "[\\Qa-c\\E]", "[a-\\x63]", "[\\w-a]", "[é-ü]",
    "[^k]", "[s]", "(a)", "(?:a)", "(a|b)", "(?:|a)", "(?:", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{0,1}",
    "{,2}", "{2,1}", "{0}", "{", "}", "(?i)", "(?-i)", "(?m)", "(?s)", "(?x)", "(?i:", "(?im-s:", "(?=a)", "(?!a)", "(?<=a)",
    "(?=ab)", "(?<=ab)", "(?=.*ab)", "(?=(b|.*a))", "дя", "Дя", "σк",
    "(?<!b)", "(?<=a|bb)", "(?<=a*)", "(?>a*)", "(?#c)", "(?<n>a)", "(?P<m>b)", "\\k<n>", "(?P=n)", "\\g1", "\\g{-1}",
    "(?(1)a|b)", " ", "#", "#c\n", "é", "É", "k", "s", "K", "-", "_", "]", "\\p{Lu}", "\\pL", "\\P{L}", "[\\p{Lu}a]", "(?U)",
    "\\K", "\\a", "\\0", "\\xg", "\\x", "[a", "[z-a]", "(?z)", "\\c", "\\o{101}", "\\o", "\\u", "\\Qa", "[[.a.]]", "[[:foo:]]",
    "^*", "$+", "(?=a)*", "[[:a]", "[\\d-z]", "[a-\\d]", "\\X", "(*UCP)", "\\x{", "[:alpha:]",
]
LETTERS = ["a", "b", "A", "B", "1", "_", " ", "\n", "\r", "\t", "é", "É", "-", "."]
TEXTS = ["", *LETTERS, "ſ", "\u212a", "\x0b", "\x85", "\u2028", "[", "]", "{", "}", "(", ")", "\\", "k", "s", "^", "$", "#",
         "\xa0", "aa", "ab", "ba", "aab", "abab", "a\n", "\na", "a\nb", "\n\n", "a\r\n", "b\n", "1\n", "a b", "a#b",
         "дЯ", "ДЯ ab", "Σк", "ςК"]
# fmt: on
_random = random.Random(7)
TEXTS += ["".join(_random.choices(LETTERS, k=_random.randint(2, 6))) for _ in range(150)]


def closed(parts: list[str], close: bool) -> str:
    """The pattern, with the parentheses that are missing at the end, mostly."""
    pattern = "".join(parts)
    return pattern + ")" * max(0, pattern.count("(") - pattern.count(")")) if close else pattern


PATTERNS = st.builds(
    closed,
    st.lists(
        st.one_of(st.sampled_from(COMMON), st.sampled_from(CONSTRUCTS), st.sampled_from(CONSTRUCTS)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([True, True, True, False]),
)
EXPRESSIONS = st.tuples(PATTERNS, st.sampled_from(["", "", "i", "m", "s", "x", "im", "isx"]))

BETWEEN = ["a", "*", "+", "?", "{2}", "{", "(?#c)", "(?#", " ", "\n", "#", "#c\n", "\\E", "\\Q\\E", "(?x)", "(?-x)"]
REPEATS = st.tuples(
    st.lists(st.sampled_from(BETWEEN), min_size=1, max_size=5).map(lambda parts: "a" + "".join(parts)),
    st.sampled_from(["", "x"]),
)
"""Quantifiers, and what may or may not stand between one and its item, or its second character."""
