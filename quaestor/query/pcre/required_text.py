"""Required texts of a pattern: every match holds at least one of them, so an index may look for them.

A run of literal characters on the path of every match is required; of alternatives, one text each. The text that a positive
look-around requires is in the value too. Doubtful constructs (negative look-around, conditions, back references) require nothing.

Without regard to case a text holds the characters whose cases `without_case` all turns into the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST: Final = 64
"""A pattern with more alternatives than this requires nothing."""
MOST_RUNS: Final = 4
"""Number of requirements that are kept of a pattern, the most selective ones."""
LONGEST: Final = 64
"""Longest required text in characters; the rest is left out."""
_SHORTEST: Final = 2
_RARE: Final = 4
"""Shortest text, in characters, that is kept beside a better one: shorter ones are in too many values."""
_SIGMA: Final = "\u03a3"
"""The only character whose small letter depends on its neighbours."""


@dataclass(frozen=True, slots=True)
class RequiredText:
    """One required text.

    caseless: the text is folded, and is to be looked for in the value `without_case`.
    """

    text: str
    caseless: bool = False


RequiredTexts = tuple[RequiredText, ...]
"""At least one of these texts is in every match."""
Requirements = tuple[RequiredTexts, ...]
"""Every match meets each of these, the most selective first. Empty: nothing is known."""


def without_case(value: str) -> str:
    """Return the value with every character that PCRE takes for an ASCII letter, in any case, as its small letter."""
    folded = value.lower()
    return folded if folded.isascii() else folded.replace("\u017f", "s")


def folded_alike(cases: Sequence[str]) -> str:
    """Return the text that `without_case` makes of each of these characters, among any others; "" if there is no such text."""
    folded = {without_case(case) for case in cases}
    return folded.pop() if len(folded) == 1 and _SIGMA not in cases else ""


def any_required(branches: Sequence[Requirements]) -> Requirements:
    """Return the requirement of alternatives: the best texts of each together, or nothing if one of them requires nothing."""
    if len(branches) == 1:
        return branches[0]
    required: dict[RequiredText, None] = {}
    for requirements in branches:
        if not requirements:
            return ()
        required.update(dict.fromkeys(requirements[0]))
    return (tuple(required),) if len(required) <= MOST else ()


class LiteralRuns:
    """The literal runs of one branch of a pattern, piece by piece, and the requirements that they make."""

    __slots__ = ("_requirements", "_run")

    def __init__(self) -> None:
        self._run: list[tuple[str, bool]] = []
        self._requirements: dict[RequiredTexts, None] = {}

    def see_character(self, character: str, *, caseless: bool, lowest: int, highest: int | None) -> None:
        """Take a literal character.

        character: if caseless, the text that `without_case` makes of each of its cases.
        lowest, highest: its repetitions.
        """
        if lowest:
            self._run.append((character, caseless))
        if lowest != 1 or highest != 1:
            self._close()
            if lowest:
                self._run.append((character, caseless))

    def see_other(self, required: Requirements, *, lowest: int) -> None:
        """Take any other piece that has a width."""
        self._close()
        self.see_beside(required, lowest=lowest)

    def see_beside(self, required: Requirements, *, lowest: int) -> None:
        """Take a piece without a width, between two characters that stay neighbours."""
        if lowest:
            self._requirements.update(dict.fromkeys(required))

    def required(self) -> Requirements:
        """Return the requirements of the branch."""
        self._close()
        best, *others = sorted(self._requirements, key=_rank, reverse=True) or [()]
        return (best, *(texts for texts in others[: MOST_RUNS - 1] if _rank(texts)[0] >= _RARE)) if best else ()

    def _close(self) -> None:
        run, self._run = self._run, []
        if not any(caseless for _, caseless in run):
            self._consider_text("".join(character for character, _ in run), caseless=False)
            return
        part = ""
        for character, caseless in run:
            if text := character if caseless else folded_alike(character):
                part += text
            else:
                self._consider_text(part, caseless=True)
                part = ""
        self._consider_text(part, caseless=True)

    def _consider_text(self, text: str, *, caseless: bool) -> None:
        if len(text) >= _SHORTEST:
            self._requirements[(RequiredText(text[:LONGEST], caseless),)] = None


def _rank(texts: RequiredTexts) -> tuple[int, int]:
    return min(len(text.text) for text in texts), -len(texts)
