"""Index of the text searches, searched by the words of a record.

A record answers a `$text` only if one of its words, stemmed as its language demands, is one that the search looks up. So
a record's texts are taken apart once for each definition of a text index, and each word leads to the searches that want it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.invalidation.matching.compact_set import added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.planning.access_entries import Tokens
from quaestor.query.text import TextIndex


class TokenIndex:
    """Filters by the words that they search, in the texts of one text index. Incremental.

    filters: how many it keeps.
    """

    __slots__ = ("_by_word", "_index", "filters")

    def __init__(self, index: TextIndex) -> None:
        self._index = index
        self._by_word: dict[str, FilterSlot] = {}
        self.filters = 0

    def add(self, entry: Tokens, item: Filter) -> None:
        """Keep a filter under its words."""
        self.filters += 1
        for word in entry.words:
            self._by_word[word] = added(self._by_word.get(word), item)

    def remove(self, entry: Tokens, item: Filter) -> None:
        """Forget a filter that was added with these words."""
        self.filters -= 1
        for word in entry.words:
            slot = removed(self._by_word.get(word), item)
            if slot is None:
                self._by_word.pop(word, None)
            else:
                self._by_word[word] = slot

    def load(self, entry: Tokens) -> int:
        """Number of filters that share words with this one."""
        return sum(size(self._by_word.get(word)) for word in entry.words)

    def find(self, record: Mapping[str, Any], found: list[FilterSlot]) -> None:
        """Append the filters that want a word of the record to `found`. O(length of its texts).

        Raises UncertainMatchError for a language that is not evaluated.
        """
        words = {word for spoken, text, _ in self._index.texts(record) for word in spoken.terms(text)}
        by_word = self._by_word
        found.extend(by_word[word] for word in words if word in by_word)

    def everything(self) -> list[FilterSlot]:
        """Every filter here."""
        return list(self._by_word.values())
