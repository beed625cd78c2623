"""The definition of a text index: the searched strings of a record, their weights, and their language."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query.bson_order import STRING, type_bracket
from quaestor.query.paths import as_document, is_array, is_document
from quaestor.query.text.language import Language, language

DEFINITION: Final = ("weights", "default_language", "language_override", "textIndexVersion")
"""The keys of an index's definition that are used here."""
_EVERYTHING: Final = "$**"
_VERSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIndex:
    """A text index.

    weights: (path, weight) by path.
    everything: all strings are searched; a string without a weight of its own has weight 1.
    default_language: of records that name none.
    override: the field in which a record or a part of it names its language.
    """

    weights: tuple[tuple[str, float], ...]
    everything: bool = False
    default_language: str = "english"
    override: str = "language"

    @staticmethod
    def of(definition: Mapping[str, Any]) -> TextIndex:
        """Return the index of a definition from `list_indexes`. Raises UnsupportedQueryError for versions before 3 (MongoDB
        3.2)."""
        if definition.get("textIndexVersion", _VERSION) != _VERSION:
            raise UnsupportedQueryError(f"a text index of version {definition['textIndexVersion']}")
        weights = definition.get("weights", {})
        return TextIndex(
            weights=tuple(sorted((path, float(weight)) for path, weight in weights.items() if path != _EVERYTHING)),
            everything=_EVERYTHING in weights,
            default_language=definition.get("default_language", "english"),
            override=definition.get("language_override", "language"),
        )

    def texts(self, document: Mapping[str, Any]) -> list[tuple[Language, str, float]]:
        """Return every searched string of a record, with its language and weight. O(size of the record).

        Raises UncertainMatchError if part of it is in a language that is not evaluated.
        """
        try:
            return list(self._texts(document, language(self.default_language), "", False))
        except (MalformedQueryError, UnsupportedQueryError) as error:
            raise UncertainMatchError(str(error)) from error

    def _texts(
        self, document: Mapping[str, Any], spoken: Language, parent: str, in_array: bool
    ) -> Iterator[tuple[Language, str, float]]:
        if not in_array and self.override in document:
            spoken = language(document[self.override])
        for name, value in document.items():
            if self.everything and name == self.override:
                continue
            path = name if not parent else parent if in_array else f"{parent}.{name}"
            if is_document(value):
                if self.everything or self._leads(path):
                    yield from self._texts(as_document(value), spoken, path, False)
                continue
            weight = self._weight(path)
            if weight is None:
                continue
            if is_array(value):
                if not in_array or self.everything:
                    yield from self._texts(as_document(value), spoken, path, True)
            elif isinstance(value, str) and type_bracket(value) == STRING and (self.everything or self._is(path)):
                yield spoken, value, weight

    def _weight(self, path: str) -> float | None:
        """Return the weight of the first path not below this one; None if neither it nor anything under it is searched."""
        position = bisect_left(self.weights, (path,))
        if self.everything:
            return self.weights[position][1] if position < len(self.weights) else 1.0
        if position == len(self.weights):
            return None
        weighted_path, weight = self.weights[position]
        return weight if weighted_path == path or weighted_path.startswith(f"{path}.") else None

    def _is(self, path: str) -> bool:
        position = bisect_left(self.weights, (path,))
        return position < len(self.weights) and self.weights[position][0] == path

    def _leads(self, path: str) -> bool:
        position = bisect_left(self.weights, (f"{path}.",))
        return position < len(self.weights) and self.weights[position][0].startswith(f"{path}.")
