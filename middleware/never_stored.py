"""Requests whose answers their origin does not let anybody store, so that nothing that their handler asks for can decide about an
entry: it is shown the scope as it is, which costs less than to notice what it looks at.

That holds as long as the answers go on saying so. The first one that could be stored is not, because nobody has noticed what it
depends on, and from then on everything is noticed again. Requests with conditions are not among them: what the handler would have
said about those is noticed too.
"""

from __future__ import annotations

from typing import Final

from quaestor.middleware.latest_keys import LatestKeys

WORD_OF_ORIGIN: Final = frozenset({"no-store", "no-cache", "private"})
"""Reasons that stand in the answer itself."""
UNNOTICED: Final = "unnoticed"
"""As the reason why an answer is not stored: it could have been, but nobody has noticed what its handler asked for."""


class NeverStored(LatestKeys):
    """Memory of these requests by cache key: learnt when an answer said that nobody is to store it, forgotten otherwise."""
