"""The first character of a match according to a leading look-ahead, which PCRE 8 mishandles.

If nothing else is known, PCRE 8 takes the first character of a leading look-ahead for the first character of every match. The
last literal that every match needs is then searched *behind* that character. If both are the same character of a text, as in
`(?=a)b*a` or, with the option m, in `(?=a)^a`, it finds nothing in "a". Other versions may differ; such patterns are left to
the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class First:
    """The first character of a piece of a pattern.

    character: the piece is this literal, in lower case; "" if it is no ASCII literal.
    begins: literals at the beginning of its branches.
    asserted: characters at the beginning of a look-ahead that begins a branch.
    ahead: the piece is a look-ahead.
    passed: the piece is any other condition on a position, which PCRE skips.
    """

    character: str = ""
    begins: frozenset[str] = _NOTHING
    asserted: frozenset[str] = _NOTHING
    ahead: bool = False
    passed: bool = False

    def as_look_ahead(self) -> First:
        """Return the first character of a look-ahead for this."""
        return First(asserted=self.begins | self.asserted, ahead=True)


PASSED: Final = First(passed=True)


def literal(character: str) -> First:
    """Return the first character of a literal in a pattern."""
    return First(character=character.lower() if character.isascii() else "")


def any_of(branches: Iterable[First]) -> First:
    """Return the first character of alternatives, on the safe side: PCRE requires the same character in all of them."""
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

        lowest: least number of repetitions.
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
        """Return the first character of the branch, as far as it was seen."""
        first = self._first or First()
        return First(begins=frozenset(filter(None, (first.character,))), asserted=first.asserted)
