"""The judgement of a record by a search: whether it matches, and its score. The score is mongod's (`{$meta: "textScore"}`).

A record must hold one of the wanted words, none of the unwanted ones, every phrase and no forbidden phrase. Phrases are
searched as they are written, letter by letter, not by words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.query.text.folding import lower, without_diacritics
from quaestor.query.text.index import TextIndex
from quaestor.query.text.language import Language, language
from quaestor.query.text.search import terms_of, words_of

_WHOLE_FIELD: Final = 1.1
"""A term that is the whole of a field counts a tenth more."""


class Search:
    """A search of one text index. `source` and `index` identify it; pure and thread-safe."""

    __slots__ = ("_case", "_diacritics", "_terms", "_words", "index", "source")

    def __init__(self, source: dict[str, Any], index: TextIndex) -> None:
        """source: $search, and $language, $caseSensitive, $diacriticSensitive if given, valid. Raises as `language`."""
        self.source = source
        self.index = index
        self._case: bool = source.get("$caseSensitive", False)
        self._diacritics: bool = source.get("$diacriticSensitive", False)
        spoken = language(source.get("$language", index.default_language))
        language(index.default_language)
        self._words = words_of(source["$search"])
        self._terms = terms_of(self._words, spoken, case=self._case, diacritics=self._diacritics)

    @property
    def keys(self) -> frozenset[str]:
        """The words that are looked up, stemmed: a record without any of them does not match."""
        return self._terms.keys

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Whether a record matches. O(length of its texts).

        Raises UncertainMatchError if it is in a language that is not evaluated.
        """
        if not self._terms.keys:
            return False
        texts = self.index.texts(document)
        if not any(not self._terms.keys.isdisjoint(spoken.terms(text)) for spoken, text, _ in texts):
            return False
        if (self._case or self._diacritics) and not self._holds(texts, self._terms.wanted):
            return False
        if self._terms.unwanted and self._holds(texts, self._terms.unwanted):
            return False
        return all(self._says(texts, phrase) for phrase in self._words.phrases) and not any(
            self._says(texts, phrase) for phrase in self._words.forbidden
        )

    def score(self, document: Mapping[str, Any]) -> float:
        """Return the score of a record; it has a meaning only if the record matches."""
        return sum(self._score(text, spoken, weight) for spoken, text, weight in self.index.texts(document))

    def _score(self, text: str, spoken: Language, weight: float) -> float:
        terms = spoken.terms(text)
        total = 0.0
        for term in self._terms.keys:
            count = terms.count(term)
            if not count:
                continue
            # 1 + 1/2 + 1/4 + ...: every further occurrence counts half of the one before.
            frequency = 2.0 - 0.5 ** (count - 1)
            share = 0.5 * count / len(terms) + 0.5
            whole = _WHOLE_FIELD if len(text.encode()) == len(term.encode()) and text.lower() == term.lower() else 1.0
            total += weight * frequency * share * whole
        return total

    def _holds(self, texts: list[tuple[Language, str, float]], terms: frozenset[str]) -> bool:
        return any(
            not terms.isdisjoint(
                spoken.terms(text, keep_stops=True, keep_case=self._case, keep_diacritics=self._diacritics)
            )
            for spoken, text, _ in texts
        )

    def _says(self, texts: list[tuple[Language, str, float]], phrase: str) -> bool:
        needle = self._folded(phrase)
        return any(needle in self._folded(text) for _, text, _ in texts)

    def _folded(self, text: str) -> str:
        folded = text if self._case else lower(text)
        return folded if self._diacritics else without_diacritics(folded)
