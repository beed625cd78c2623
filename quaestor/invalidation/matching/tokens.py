"""Index of the text searches, searched by the words of a record.

A record satisfies a `$text` only if one of its words, stemmed by its language, is a word of the search. A record's texts are
split into words once for each definition of a text index. Each word leads to the searches that contain it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.invalidation.matching.compact_set import added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.planning.access_entries import Tokens
from quaestor.query.text import TextIndex


class TokenIndex:
    """Filters by the words of their search, in the texts of one text index. Incremental.

    filters: number of filters.
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
        """Return the number of filters that share words with this one."""
        return sum(size(self._by_word.get(word)) for word in entry.words)

    def find(self, record: Mapping[str, Any], candidates: list[FilterSlot]) -> None:
        """Append the filters that search a word of the record to `candidates`. O(length of its texts).

        Raises UncertainMatchError for a language that is not evaluated.
        """
        words = {word for spoken, text, _ in self._index.texts(record) for word in spoken.terms(text)}
        by_word = self._by_word
        candidates.extend(by_word[word] for word in words if word in by_word)

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        return list(self._by_word.values())
