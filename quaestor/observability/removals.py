"""Removals from this process's memory: the latest removed entries, the reasons, and their answers.

For metrics only; nothing is decided by it. An answer made anew after an invalidation may equal the old one. Its client then
got the invalidation for nothing. This measures the false invalidations of the running product.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from quaestor.model import CachedResponse

REMEMBERED = 10_000
"""Number of remembered removals, about 2 MB; an older removal counts as never seen."""


@dataclass(slots=True)
class _Departed:
    why: str
    status: int
    etag: bytes
    precision: str = "unknown"


class Removals:
    """Entries that have left memory, the youngest `limit` of them. Use from one event loop. Every call is O(1)."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._departed: OrderedDict[int, _Departed] = OrderedDict()

    def left(self, response: CachedResponse, why: str) -> None:
        """Note that an entry has left memory.

        why: one of vocabularies.LEFT.
        """
        name = hash(response.key)
        self._departed[name] = _Departed(why, response.status, response.etag)
        self._departed.move_to_end(name)
        if len(self._departed) > self._limit:
            self._departed.popitem(last=False)

    def judged(self, key: str, precision: str) -> None:
        """Note the precision of the invalidation that removed an entry.

        precision: one of vocabularies.PRECISION; "withdrawn": there was no invalidation.
        """
        departed = self._departed.get(hash(key))
        if departed is not None and departed.why == "invalidated":
            if precision == "withdrawn":
                departed.why = precision
            else:
                departed.precision = precision

    def why(self, key: str) -> str:
        """Return the reason why this key is missing: one of vocabularies.LEFT, or "absent"."""
        departed = self._departed.get(hash(key))
        return "absent" if departed is None else departed.why

    def returned(self, response: CachedResponse) -> tuple[str, bool] | None:
        """Note a new answer. Return the precision of the old one's invalidation, and whether both are the same.

        None if the answer was not missing because of an invalidation.
        """
        departed = self._departed.pop(hash(response.key), None)
        if departed is None or departed.why != "invalidated":
            return None
        return departed.precision, (departed.status, departed.etag) == (response.status, response.etag)
