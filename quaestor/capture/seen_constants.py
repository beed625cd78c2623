"""Memory of constants: for each one, whether it may still follow the clock, or is a literal.

A constant is searched for parts of the present time when it is first seen. Each coincidence bounds the answer's life by the
end of its unit. At each later sight only the coincidences remain that hold again. Without any, the constant is a literal and is
not searched again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from quaestor.capture.clock_coincidences import Coincidence, Coincidences
from quaestor.capture.constants import Constant

MOST_REMEMBERED: Final = 20_000
_TOKENS: Final = re.compile(r"[^\W_]+")
_PIECES: Final = re.compile(r"[0-9]+|[^\W\d_]+")
_LEAST_CONTAINED: Final = 4
"""Characters of a text that belongs to the request wherever it occurs there; a shorter one has to be a token."""


class _Possible(NamedTuple):
    """The remaining hypotheses about a constant.

    names: coincidences that have held at every sight.
    until_ms: when the first of them ends.
    """

    names: frozenset[Coincidence]
    until_ms: int


_LITERAL: Final = _Possible(frozenset(), 0)


class SeenConstants:
    """Memory of the constants of one process, bounded: the oldest are forgotten first. Thread-safe.

    searching: whether constants are searched at all.
    """

    def __init__(self, most: int = MOST_REMEMBERED, *, searching: bool = True) -> None:
        self.searching = searching
        self._most = most
        self._possible: dict[tuple[Hashable, Constant], _Possible] = {}
        self._lock = threading.Lock()

    def ends_ms(
        self, route: Hashable, constants: Iterable[Constant], *, started_ms: int, now_ms: int, asked: AskedText
    ) -> Iterator[int]:
        """Iterate over the moments at which constants that may hold parts of the present time are over. Up to now_ms: at once.

        route: of the query: the same constant on another route is a different one.
        started_ms, now_ms: the request's.
        asked: the request's own text, which is no hidden input.
        """
        possible = self._possible
        for constant in constants if self.searching else ():
            key = (route, constant)
            known = possible.get(key)
            if known is _LITERAL or constant.text in asked:
                continue
            if known is not None and now_ms < known.until_ms:
                yield known.until_ms  # all of them hold until then
                continue
            coincidences = Coincidences(
                constant.text, constant.kind, started_ms=started_ms, now_ms=now_ms, asked=asked.tokens
            )
            ends_ms = coincidences.ends_ms
            if known is not None:
                ends_ms = {name: end_ms for name, end_ms in ends_ms.items() if name in known.names}
            until_ms = min(ends_ms.values(), default=None)
            if not coincidences.dropped:
                self._remember(key, _LITERAL if until_ms is None else _Possible(frozenset(ends_ms), until_ms))
            if until_ms is not None:
                yield until_ms

    def _remember(self, key: tuple[Hashable, Constant], possible: _Possible) -> None:
        with self._lock:
            self._possible.pop(key, None)
            self._possible[key] = possible
            if len(self._possible) > self._most:
                del self._possible[next(iter(self._possible))]


class AskedText:
    """Text of a request: its path, its query and the fields that its handler asked for."""

    __slots__ = ("_parts", "_text", "_tokens")

    def __init__(self, *parts: str) -> None:
        self._parts = parts
        self._text: str | None = None
        self._tokens: frozenset[str] | None = None

    @property
    def text(self) -> str:
        """The whole text, also without its percent-encoding, in lower case."""
        if self._text is None:
            joined = " ".join(self._parts)
            self._text = (f"{joined} {unquote_plus(joined)}" if "%" in joined or "+" in joined else joined).casefold()
        return self._text

    @property
    def tokens(self) -> frozenset[str]:
        """Its words and numbers."""
        if self._tokens is None:
            tokens = _TOKENS.findall(self.text)
            mixed = [token for token in tokens if not (token.isdigit() or token.isalpha())]
            self._tokens = frozenset((*tokens, *(piece for token in mixed for piece in _PIECES.findall(token))))
        return self._tokens

    def __contains__(self, constant: str) -> bool:
        constant = constant.casefold()
        return constant in self.tokens or (len(constant) >= _LEAST_CONTAINED and constant in self.text)
