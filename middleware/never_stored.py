"""Requests whose answers always forbid storage. Their handlers run untracked.

No entry can depend on such a handler's look-ups. Hence it sees the scope as it is, which costs less than a recording view. As
soon as an answer could be stored, the request is tracked again. That first answer is not stored, because its run was not tracked.
Requests with conditions are always tracked, because their handlers may depend on conditions.
"""

from __future__ import annotations

from typing import Final

from quaestor.middleware.latest_keys import LatestKeys

WORD_OF_ORIGIN: Final = frozenset({"no-store", "no-cache", "private"})
"""Reasons that the answer itself gives."""
UNNOTICED: Final = "unnoticed"
"""Reason of an answer that could be stored, but whose handler ran untracked."""


class NeverStored(LatestKeys):
    """Memory of such requests by cache key. Learnt when an answer forbids storage, forgotten when one does not."""
