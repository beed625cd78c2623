"""The first character of a match as leading look-ahead tells it, of which PCRE 8 makes too much.

If nothing else is known, PCRE 8 takes the character with which a leading look-ahead begins for the first one of every match, and
searches for the last literal that every match needs *behind* it. Where both are the same character of a text, as in `(?=a)b*a`
or, with the option m, in `(?=a)^a`, it finds nothing in "a". Other versions need not do so; such patterns are left to the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class First:
    """The first character of a piece of a pattern.

    character: the piece is this literal, in lower case; "" if it is none of ASCII's.
    begins: literals with which its branches begin.
    asserted: characters with which look-ahead at the beginning of a branch begins.
    ahead: it is look-ahead for something.
    passed: it is any other condition on a place, which PCRE goes past.
    """

    character: str = ""
    begins: frozenset[str] = _NOTHING
    asserted: frozenset[str] = _NOTHING
    ahead: bool = False
    passed: bool = False

    def as_look_ahead(self) -> First:
        """The first character of look-ahead for this."""
        return First(asserted=self.begins | self.asserted, ahead=True)


PASSED: Final = First(passed=True)


def literal(character: str) -> First:
    """The first character of a literal in a pattern."""
    return First(character=character.lower() if character.isascii() else "")


def any_of(branches: Iterable[First]) -> First:
    """The first character of alternatives. On the safe side: PCRE wants the same character of all of them."""
    branches = tuple(branches)
    return First(
        begins=_NOTHING.union(*(branch.begins for branch in branches)),
        asserted=_NOTHING.union(*(branch.asserted for branch in branches)),
    )


class Opening:
    """The beginning of one branch, piece by piece."""

    __slots__ = ("_done", "_first")

    def __init__(self) -> None:
        self._first: First | None = None
        self._done = False

    def see(self, piece: First, lowest: int) -> None:
        """Take the next piece.

        lowest: how often it is there at least.
        """
        if self._done or piece.passed:
            return
        if self._first is None:
            self._first = piece if lowest else First()
            self._done = not self._first.ahead
        elif not piece.ahead:
            if piece.character and lowest:
                self._first = First()  # a literal right behind look-ahead is the first character itself
            self._done = True

    def first(self) -> First:
        """The first character of the branch, as far as it was seen."""
        found = self._first or First()
        return First(begins=frozenset(filter(None, (found.character,))), asserted=found.asserted)
