"""Packages of extras that parts of the query language need: text search, geography, functions of decimals.

A package is loaded at its first use. A query is widened if its package is absent, or in a version with other results than
mongod's: its compilation raises UnsupportedQueryError with the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import UnsupportedQueryError
from quaestor.first_use import FirstUse


class OptionalPart(FirstUse):
    """The packages of one extra. The names of a module are attributes; loaded names are kept.

    module: loaded at the first use of a name.
    extra: of Quaestor's distribution.
    needs: the part of the query language, for the beginning of the reason.
    distributions: each with its only right version, or None if every version has mongod's results.
    """

    def __init__(self, module: str, *, extra: str, needs: str, distributions: Mapping[str, str | None]) -> None:
        super().__init__(module)
        self._extra = extra
        self._needs = needs
        self._distributions = distributions
        self._complete = False

    def require(self) -> None:
        """Check the packages, without loading them. Raises UnsupportedQueryError if one is absent or of another version."""
        if self._complete:
            return
        from importlib import metadata  # 20 ms, with all that it needs

        remedy = f"pip install 'quaestor[{self._extra}]'"
        for distribution, only in self._distributions.items():
            wanted = distribution if only is None else f"{distribution} {only}"
            try:
                installed = metadata.version(distribution)
            except metadata.PackageNotFoundError as error:
                raise UnsupportedQueryError(
                    f"{self._needs} needs {wanted}, which is not installed: {remedy}"
                ) from error
            if only is not None and installed != only:
                raise UnsupportedQueryError(
                    f"{self._needs} needs {wanted}; {installed} is installed, whose results differ from mongod's: {remedy}"
                )
        self._complete = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.require()
        return super().__getattr__(name)


s2: Final = OptionalPart("s2geometry", extra="geo", needs="a geographic query", distributions={"s2geometry": None})
"""Google's S2: places, distances and shapes on the sphere."""
stop_words: Final = OptionalPart(
    "stop_words", extra="text", needs="$text", distributions={"stop-words": "2018.7.23", "snowballstemmer": "1.2.1"}
)
"""Lists of stop words, and mongod's stemmers: Snowball's of 2015."""
libmp: Final = OptionalPart("mpmath.libmp", extra="decimal", needs="trigonometry", distributions={"mpmath": None})
"""Functions of Decimal128. Most trigonometry is of doubles, but any record may hold a decimal."""
