"""Letters as a text index (version 3) compares them: separators of words, and letters equal except for case or accent.

mongod has these properties as of Unicode 8; characters that Unicode has added since may be treated otherwise here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final
from unicodedata import normalize

from quaestor.first_use import FirstUse

if TYPE_CHECKING:
    import regex
else:
    regex = FirstUse("regex")


_SEPARATES: Final = (
    r"\p{White_Space}\p{Dash}\p{Hyphen}\p{Quotation_Mark}"
    r"\p{Terminal_Punctuation}\p{Pattern_Syntax}\p{Sentence_Terminal}"
)
_WORDS: Final = f"[^{_SEPARATES}]+"
_ENGLISH_WORDS: Final = f"(?:[^{_SEPARATES}]|')+"
_DIACRITIC: Final = r"\p{Diacritic}"
_ASCII_DIACRITICS: Final = str.maketrans("", "", "^`")


def words(text: str, *, english: bool) -> list[str]:
    """Return the words of a text as they stand. In English an apostrophe is part of a word. O(length)."""
    return _compiled(_ENGLISH_WORDS if english else _WORDS).findall(text)


def lower(text: str) -> str:
    """Return each character folded on its own: "ß" stays, "İ" stays."""
    return text.lower() if text.isascii() else "".join(map(_lower, text))


def without_diacritics(text: str) -> str:
    """Return each character without its accents; characters that are only accents disappear."""
    return text.translate(_ASCII_DIACRITICS) if text.isascii() else "".join(map(_plain, text))


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    """Return one of the patterns above, compiled. Many processes never search a text, so none is compiled before."""
    return regex.compile(pattern)


@lru_cache(maxsize=4096)
def _lower(character: str) -> str:
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character


@lru_cache(maxsize=4096)
def _plain(character: str) -> str:
    diacritic = _compiled(_DIACRITIC)
    if diacritic.match(character):
        return ""
    plain = normalize("NFC", diacritic.sub("", normalize("NFD", character)))
    return plain if len(plain) == 1 else character
