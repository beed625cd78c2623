"""Index of the texts that regular expressions require, searched by the grams of a string.

Each text is kept under one of its grams (up to six characters): the gram with the fewest other texts at the time. A string's
grams lead to the texts that it may contain; a search returns only the texts that it does contain. The cost of a search grows
with the string and with its results, not with the number of texts. For few texts and a long string, each text is simply
searched in it. (An Aho-Corasick automaton would need one pass, but a rebuild whenever a query comes or goes.)
"""

from __future__ import annotations

from typing import Any, Final

from quaestor.invalidation.matching.compact_set import CompactSet, added, elements, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.query.bson_order import REGEX, STRING, bracket_of
from quaestor.query.pcre.required_text import RequiredText, RequiredTexts, without_case

_WIDTHS: Final = (6, 3)
_CHARACTERS_A_TEXT: Final = 400
"""Length of a string, in characters, that doubles the cost of searching one text in it; the base cost equals one gram look-up."""


class LiteralIndex:
    """Filters by required texts: a string must contain one of them. Incremental."""

    __slots__ = ("_as_written", "_caseless")

    def __init__(self) -> None:
        self._as_written = _Texts()
        self._caseless = _Texts()

    def __bool__(self) -> bool:
        return bool(self._as_written or self._caseless)

    def add(self, texts: RequiredTexts, item: Filter) -> None:
        """Keep a filter under these texts."""
        for text in texts:
            self._of(text).add(text.text, item)

    def remove(self, texts: RequiredTexts, item: Filter) -> None:
        """Forget a filter that was added with these texts."""
        for text in texts:
            self._of(text).remove(text.text, item)

    def load(self, texts: RequiredTexts) -> int:
        """Return the number of filters that share texts with this one."""
        return sum(size(self._of(text).slots.get(text.text)) for text in texts)

    def find_value(self, value: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters that a value may satisfy to `candidates`. A stored regular expression may satisfy each of them."""
        bracket = bracket_of(value.__class__)
        if bracket == STRING:
            text = str(value)
            if self._as_written:
                self._as_written.find(text, candidates)
            if self._caseless:
                self._caseless.find(without_case(text), candidates)
        elif bracket == REGEX:
            candidates.extend(self.everything())

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        return [*self._as_written.slots.values(), *self._caseless.slots.values()]

    def _of(self, required: RequiredText) -> _Texts:
        return self._caseless if required.caseless else self._as_written


class _Texts:
    """Texts by their grams.

    slots: filters by text.
    """

    __slots__ = ("_by_gram", "_grams", "_widths", "slots")

    def __init__(self) -> None:
        self.slots: dict[str, FilterSlot] = {}
        self._grams: dict[str, str] = {}
        self._by_gram: dict[str, str | CompactSet[str]] = {}
        self._widths: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.slots)

    def add(self, text: str, item: Filter) -> None:
        slot = self.slots.get(text)
        if slot is None:
            width = next((width for width in _WIDTHS if width <= len(text)), len(text))
            gram = min(sorted(_grams(text, width)), key=lambda shingle: size(self._by_gram.get(shingle)))
            self._grams[text] = gram
            self._by_gram[gram] = added(self._by_gram.get(gram), text)
            self._widths[width] = self._widths.get(width, 0) + 1
        self.slots[text] = added(slot, item)

    def remove(self, text: str, item: Filter) -> None:
        slot = removed(self.slots.get(text), item)
        if slot is not None:
            self.slots[text] = slot
            return
        if self.slots.pop(text, None) is None:
            return
        gram = self._grams.pop(text)
        texts = removed(self._by_gram.get(gram), text)
        if texts is None:
            self._by_gram.pop(gram, None)
        else:
            self._by_gram[gram] = texts
        self._widths[len(gram)] -= 1
        if not self._widths[len(gram)]:
            del self._widths[len(gram)]

    def find(self, value: str, candidates: list[FilterSlot]) -> None:
        slots = self.slots
        if len(slots) * (1 + len(value) / _CHARACTERS_A_TEXT) <= len(value) * len(self._widths):
            candidates.extend(slot for text, slot in slots.items() if text in value)
            return
        for width in self._widths:
            for gram in _grams(value, width) & self._by_gram.keys():
                candidates.extend(slots[text] for text in elements(self._by_gram[gram]) if text in value)


def _grams(text: str, width: int) -> set[str]:
    return {text[at : at + width] for at in range(len(text) - width + 1)}
