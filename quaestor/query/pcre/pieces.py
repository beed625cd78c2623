"""The pieces that make up a translation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from quaestor.errors import UnsupportedQueryError
from quaestor.query.pcre.first_character import First
from quaestor.query.pcre.required_text import Requirements

LARGEST_SIZE: Final = 65522
"""Bytes that the pieces of a pattern may take in PCRE's compiled form (link size 2, as in mongod)."""
LARGEST_WORK: Final = 5_000
"""Steps that the program of a pattern may have for an engine, repetitions multiplied out. Each step takes `regex` about 260 bytes
and 1.4 us to compile."""
LONGEST: Final = 1_000
"""Characters of a pattern: each takes a few us to translate, and up to 20 us to read in `regex`. mongod allows 32,764."""
_COUNTED: Final = 10**12
"""Larger numbers are shown as this number."""
DEEPEST: Final = 249
"""Deepest nesting of parentheses in PCRE."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
"""Valid names of groups in PCRE."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a regular expression: the letters i, m, s, x and U, and (*UCP): `\\w` and its like know all of Unicode."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    extended: bool = False
    ungreedy: bool = False
    unicode: bool = False


LETTERS: Final = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "x": "extended", "U": "ungreedy"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A translated piece.

    linear: for RE2.
    full: for `regex`.
    width: number of characters that it spans, None if that varies.

    literal: its only character, if it is a single one.
    quantifiable: PCRE allows a quantifier after it.
    size: bytes of PCRE's compiled form, which has a limit.
    work: steps of an engine's program, repetitions multiplied out.
    group: repeating it repeats its compiled form.
    first: its first character.
    character: its only literal, `without_case` if `caseless`; "" if it has more.
    required: requirements of a group.
    """

    linear: str
    full: str
    width: int | None = 1
    literal: str = ""
    quantifiable: bool = True
    size: int = 1
    work: int = 1
    group: bool = False
    first: First = field(default=First(), compare=False)
    character: str = ""
    caseless: bool = False
    required: Requirements = ()


@dataclass(slots=True)
class Shape:
    """The shape of a pattern: whether, and how far, it is an anchored literal."""

    starts: bool = False
    ends: bool = False
    text: list[str] = field(default_factory=list)
    open: bool = True
    simple: bool = True

    def see(self, piece: Piece, lowest: int, highest: int | None, *, at_start: bool) -> None:
        if not self.open or self.ends:
            self.simple = self.open = False
        elif piece.linear == "\\A" and at_start:
            self.starts = True
        elif piece.linear in ("\\z", "\\n?\\z") and lowest == 1 and piece.full == "$":
            self.ends = True
        elif piece.literal:
            if lowest:
                self.text.append(piece.literal)
            if lowest != 1 or highest != 1:
                self.simple = self.open = False
        else:
            self.simple = self.open = False


def require_work(steps: int) -> None:
    """Raise UnsupportedQueryError if a pattern of so many steps would be too large to compile."""
    if steps > LARGEST_WORK:
        raise UnsupportedQueryError(
            f"a regular expression too large to compile: {min(steps, _COUNTED):,} steps with its repetitions multiplied out, "
            f"more than {LARGEST_WORK:,}"
        )


def repeated_size(piece: Piece, lowest: int, highest: int | None) -> int:
    """Return the bytes of PCRE's compiled form of a piece with its quantifier."""
    if not piece.group:
        return piece.size + 4
    optional = 0 if highest is None else highest - lowest
    return max(lowest, 1) * piece.size + optional * (piece.size + 7)
