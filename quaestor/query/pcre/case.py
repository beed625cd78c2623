"""Characters that differ in case alone: Unicode 7's simple case relation, as in mongod's PCRE 8.

Python has a later Unicode. Its relation was compared with a mongod 6.0 for every character that has a case; the differences are
listed here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from typing import Final

from quaestor.query.pcre.characters import LAST, Ranges, union

_FAMILIES: Final = {
    member: frozenset(family)
    for family in (
        *("Kk\u212a", "Ss\u017f", "\u00c5\u00e5\u212b", "\u00b5\u039c\u03bc", "\u00df\u1e9e", "\u0392\u03b2\u03d0"),
        *("\u0395\u03b5\u03f5", "\u0398\u03b8\u03d1\u03f4", "\u0345\u0399\u03b9\u1fbe", "\u039a\u03ba\u03f0"),
        *("\u03a0\u03c0\u03d6", "\u03a1\u03c1\u03f1", "\u03a3\u03c2\u03c3", "\u03a6\u03c6\u03d5", "\u03a9\u03c9\u2126"),
        "\u1e60\u1e61\u1e9b",
    )
    for member in family
}
"""Characters with more than two cases, or with a case that Python's str methods do not reach."""

# fmt: off
_WITHOUT_CASE: Final[Ranges] = (
    (0x131, 0x131), (0x26A, 0x26A), (0x282, 0x282), (0x29D, 0x29D), (0x10D0, 0x10FF), (0x13A0, 0x13FD), (0x1C80, 0x1CBF),
    (0x1D8E, 0x1D8E), (0x2C2F, 0x2C2F), (0x2C5F, 0x2C5F), (0xA794, 0xA794), (0xA7AE, 0xA7AE), (0xA7B2, 0xA7F6),
    (0xAB53, 0xAB53), (0xAB70, 0xABBF), (0x104B0, 0x104FB), (0x10570, 0x105BC), (0x10C80, 0x10CF2), (0x16E40, 0x16E7F),
    (0x1E900, 0x1E943),
)
# fmt: on
"""Characters whose cases are younger than Unicode 7, and the dotless i."""
_ITERATED: Final = 512
_LAST_WITH_CASE: Final = 0x118DF
CASED: Final = 2_700
"""Number of characters that have a case, rounded up: the most look-ups for one range."""


def other_cases(character: str) -> tuple[str, ...]:
    """Return the characters that differ from this one in case alone, sorted."""
    if family := _FAMILIES.get(character):
        return tuple(sorted(family - {character}))
    if _has_no_case(character):
        return ()
    lower, upper = character.lower(), character.upper()
    candidates = {lower, upper, character.title(), lower.upper(), upper.lower()} - {character}
    return tuple(sorted(case for case in candidates if len(case) == 1 and not _has_no_case(case)))


def folded(ranges: Ranges) -> Ranges:
    """Return the characters with their other cases. O(their number), but never more than the number of characters with case."""
    return union((*ranges, *((ord(case), ord(case)) for low, high in ranges for case in _cases_within(low, high))))


def _cases_within(low: int, high: int) -> list[str]:
    codes: Sequence[int] = range(low, high + 1)
    if len(codes) > _ITERATED:
        cased = _cased()
        codes = cased[bisect_left(cased, low) : bisect_right(cased, high)]
    return [case for code in codes for case in other_cases(chr(code))]


@cache
def _cased() -> tuple[int, ...]:
    return tuple(code for code in range(_LAST_WITH_CASE + 1) if other_cases(chr(code)))


def _has_no_case(character: str) -> bool:
    code = ord(character)
    at = bisect_right(_WITHOUT_CASE, (code, LAST)) - 1
    return at >= 0 and code <= _WITHOUT_CASE[at][1]
