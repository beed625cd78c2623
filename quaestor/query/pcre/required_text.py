"""Required texts of a pattern: every match holds at least one of them, so an index may look for them.

A run of literal characters on the path of every match is required; of alternatives, one text each. Doubtful constructs
(look-around, conditions, back references) require nothing. Without regard to case only ASCII letters are taken into a text:
`without_case` folds exactly the characters that PCRE takes for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MOST: Final = 16
"""A pattern with more alternatives than this requires nothing."""
LONGEST: Final = 64
"""Longest required text in characters; the rest is left out."""
_SHORTEST: Final = 2


@dataclass(frozen=True, slots=True)
class RequiredText:
    """One required text.

    caseless: the text is folded, and is to be looked for in the value `without_case`.
    """

    text: str
    caseless: bool = False


RequiredTexts = tuple[RequiredText, ...]
"""At least one of these texts is in every match. Empty: nothing is known."""


def without_case(value: str) -> str:
    """Return the value with every character that PCRE takes for an ASCII letter, in any case, as its small letter."""
    folded = value.lower()
    return folded if folded.isascii() else folded.replace("\u017f", "s")


def any_required(branches: Iterable[RequiredTexts]) -> RequiredTexts:
    """Return the texts that alternatives require together: the texts of each, or none if one requires none."""
    required: dict[RequiredText, None] = {}
    for texts in branches:
        if not texts:
            return ()
        required.update(dict.fromkeys(texts))
    return tuple(required) if len(required) <= MOST else ()


class LiteralRuns:
    """The literal runs of one branch of a pattern, piece by piece, and the most selective texts among them."""

    __slots__ = ("_best", "_run")

    def __init__(self) -> None:
        self._run: list[tuple[str, bool]] = []
        self._best: RequiredTexts = ()

    def see_character(self, character: str, *, caseless: bool, lowest: int, highest: int | None) -> None:
        """Take a literal character.

        character: in lower case if caseless, and then an ASCII letter.
        lowest, highest: its repetitions.
        """
        if lowest:
            self._run.append((character, caseless))
        if lowest != 1 or highest != 1:
            self._close()
            if lowest:
                self._run.append((character, caseless))

    def see_other(self, required: RequiredTexts, *, lowest: int) -> None:
        """Take any other piece that has a width."""
        self._close()
        if lowest:
            self._consider(required)

    def required(self) -> RequiredTexts:
        """Return the texts that the branch requires."""
        self._close()
        return self._best

    def _close(self) -> None:
        run, self._run = self._run, []
        if not any(caseless for _, caseless in run):
            self._consider_text("".join(character for character, _ in run), caseless=False)
            return
        part = ""
        for character, _ in (*run, ("\u00ff", False)):
            if character.isascii():
                part += character.lower()
            else:
                self._consider_text(part, caseless=True)
                part = ""

    def _consider_text(self, text: str, *, caseless: bool) -> None:
        if len(text) >= _SHORTEST:
            self._consider((RequiredText(text[:LONGEST], caseless),))

    def _consider(self, texts: RequiredTexts) -> None:
        if texts and (not self._best or _rank(texts) > _rank(self._best)):
            self._best = texts


def _rank(texts: RequiredTexts) -> tuple[int, int]:
    return min(len(text.text) for text in texts), -len(texts)
