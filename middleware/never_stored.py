"""Requests whose answers their origin does not let anybody store, so that nothing that their handler asks for can decide about an
entry: it is shown the scope as it is, which costs less than to notice what it looks at.

That holds as long as the answers go on saying so. The first one that could be stored is not, because nobody has noticed what it
depends on, and from then on everything is noticed again. Requests with conditions are not among them: what the handler would have
said about those is noticed too.
"""

from __future__ import annotations

from typing import Final

REMEMBERED: Final = 4_096
WORD_OF_ORIGIN: Final = frozenset({"no-store", "no-cache", "private"})
"""Reasons that stand in the answer itself."""
UNNOTICED: Final = "unnoticed"
"""As the reason why an answer is not stored: it could have been, but nobody has noticed what its handler asked for."""


class NeverStored:
    """Memory of these requests by cache key; the oldest are forgotten. Use from one event loop."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._keys: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def learn(self, key: str) -> None:
        """Note that the answer under a key said that nobody is to store it."""
        if key not in self._keys:
            if len(self._keys) >= self._limit:
                del self._keys[next(iter(self._keys))]
            self._keys[key] = None

    def forget(self, key: str) -> None:
        """Note that an answer under a key did not say so."""
        self._keys.pop(key, None)
