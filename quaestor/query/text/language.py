"""Languages of text indexes: their names, their stop words, their stems.

A language is here only if its stems and stop words were compared with a real mongod's and are the same. Queries in other
languages are widened. Stems are Snowball's of 2015, as in mongod: later versions stem some words differently.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.optional_parts import stop_words
from quaestor.query.text.folding import lower, without_diacritics, words

NONE: Final = "none"
_EXACT: Final = {
    "da": "danish",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nb": "norwegian",
    "nl": "dutch",
    "pt": "portuguese",
    "sv": "swedish",
}
_OTHERS: Final = {"ro": "romanian", "ru": "russian", "tr": "turkish"}
_NAMES: Final = {NONE: NONE, **_EXACT, **{name: name for name in _EXACT.values()}}
_KNOWN: Final = frozenset(_OTHERS) | frozenset(_OTHERS.values())
_STEMS_KEPT: Final = 65_536

_GERMAN_ENDINGS: Final = ("e", "em", "en", "er", "es")
"""Endings that mongod's German list has on "uns", and the library's list on "unser"."""


class Language:
    """A language of texts. Thread-safe.

    name: in mongod's spelling."""

    __slots__ = ("_english", "_stem", "_stops", "name")

    def __init__(self, name: str) -> None:
        if name != NONE:
            stop_words.require()
        self.name = name
        self._english = name == "english"
        self._stops = frozenset() if name == NONE else _stops(name)
        self._stem = _unchanged if name == NONE else lru_cache(maxsize=_STEMS_KEPT)(_Stem(name))

    def terms(
        self, text: str, *, keep_stops: bool = False, keep_case: bool = False, keep_diacritics: bool = False
    ) -> list[str]:
        """Return the stems of a text's words in order, for comparison. Stop words are recognised before stemming."""
        terms: list[str] = []
        for word in words(text, english=self._english):
            small = lower(word)
            if not keep_stops and small in self._stops:
                continue
            stem = self._stem(word if keep_case else small)
            terms.append(stem if keep_diacritics else without_diacritics(stem))
        return terms


class _Stem:
    """A stemmer with remembered results. A stemmer keeps state while it works, so each word is stemmed by a new object.

    The pure Python classes are taken by name. The package itself prefers another one (PyStemmer) if it is installed, whose
    stems may be of another version.
    """

    __slots__ = ("_stemmer",)

    def __init__(self, name: str) -> None:
        module = import_module(f"snowballstemmer.{name}_stemmer")
        self._stemmer = getattr(module, f"{name.capitalize()}Stemmer")

    def __call__(self, word: str) -> str:
        stem: str = self._stemmer().stemWord(word)
        return stem


def _unchanged(word: str) -> str:
    return word


@lru_cache(maxsize=32)
def _make(name: str) -> Language:
    return Language(name)


def language(name: Any) -> Language:
    """Return the language of this name or two-letter code, in any case.

    Raises MalformedQueryError if mongod does not know it, UnsupportedQueryError if it is not evaluated here, as without the
    extra `text`.
    """
    if not isinstance(name, str):
        raise MalformedQueryError(f"a language must be a string, not {name!r}")
    known = _NAMES.get(name.lower())
    if known is not None:
        return _make(known)
    if name.lower() in _KNOWN:
        raise UnsupportedQueryError(f"$text in {name!r}: a language whose stems are not evaluated")
    raise MalformedQueryError(f"unknown language {name!r}")


def _stops(name: str) -> frozenset[str]:
    listed = frozenset(word for word in stop_words.get_stop_words(name) if word)
    if name != "german":
        return listed
    return listed - {f"unser{ending}" for ending in _GERMAN_ENDINGS} | {"unse", "unsem", "unsen", "unses"}
