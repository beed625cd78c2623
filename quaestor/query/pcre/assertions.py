"""Assertions about a position by an escape, for RE2 and for `regex`: word boundaries, the ends of the text."""

from __future__ import annotations

from typing import Final

WORD: Final = "[A-Za-z0-9_]"
_BOUNDARY: Final = f"(?:(?<!{WORD})(?={WORD})|(?<={WORD})(?!{WORD}))"
_NO_BOUNDARY: Final = f"(?:(?<!{WORD})(?!{WORD})|(?<={WORD})(?={WORD}))"
ASSERTIONS: Final = {
    "b": ("\\b", _BOUNDARY),
    "B": ("\\B", _NO_BOUNDARY),
    "A": ("\\A", "\\A"),
    "G": ("\\A", "\\A"),
    "Z": ("\\z", "$"),
    "z": ("\\z", "\\Z"),
}
"""Texts for RE2 and for `regex`, by letter."""
