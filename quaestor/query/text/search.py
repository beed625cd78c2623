"""The search string of `$text`: words, "phrases" and -negations. Manual: $text, Behavior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from quaestor.query.text.language import Language

_SPACES: Final = frozenset("\n\v\f\r ")
_MARKS: Final = frozenset('-"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Raw parts of a search.

    wanted and unwanted: sentences.
    phrases and forbidden: substrings that must (not) occur.
    """

    wanted: str
    unwanted: str
    phrases: tuple[str, ...]
    forbidden: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a search.

    keys: looked up in the index, always folded.
    wanted and unwanted: compared with the record under the search's options.
    """

    keys: frozenset[str]
    wanted: frozenset[str]
    unwanted: frozenset[str]


def words_of(search: str) -> Words:
    """Split a search string. The words of a phrase are also wanted one by one; a negation ends at the next space."""
    wanted: list[str] = []
    unwanted: list[str] = []
    phrases: list[str] = []
    forbidden: list[str] = []
    negated = quoted = False
    quote = 0
    for start, part, after_space in _parts(search):
        if part == "-":
            negated = negated or (not quoted and after_space)
        elif part == '"':
            if quoted:
                (forbidden if negated else phrases).append(search[quote + 1 : start])
                quoted = False
            else:
                quoted, quote = True, start
                negated = negated and not after_space
        elif not (quoted and negated):
            negated = negated and not after_space
            (unwanted if negated else wanted).append(part)
    return Words(
        wanted=" ".join(wanted), unwanted=" ".join(unwanted), phrases=tuple(phrases), forbidden=tuple(forbidden)
    )


def _parts(search: str) -> Iterator[tuple[int, str, bool]]:
    """Iterate over marks and runs of text, with their position and whether a space came before. A tab is not a space here."""
    position, after_space = 0, True
    while position < len(search):
        if search[position] in _SPACES:
            position, after_space = position + 1, True
            continue
        start = position
        position += 1
        if search[start] not in _MARKS:
            while position < len(search) and search[position] not in _SPACES | _MARKS:
                position += 1
        yield start, search[start:position], after_space
        after_space = False


def terms_of(words: Words, language: Language, *, case: bool, diacritics: bool) -> Terms:
    """Return the stems of a search.

    case, diacritics: whether they count.
    """
    keys = language.terms(words.wanted)
    return Terms(
        keys=frozenset(keys),
        wanted=frozenset(language.terms(words.wanted, keep_case=case, keep_diacritics=diacritics)),
        unwanted=frozenset(language.terms(words.unwanted, keep_case=case, keep_diacritics=diacritics)),
    )
