"""Removals from this process's memory: which entries have left it lately, why, and how they were answered then.

For metrics alone; nothing is decided by it. An answer that is made anew after an invalidation and is the same as before was
invalidated for nothing, as far as its client is concerned: the false invalidations of the running product.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from quaestor.model import CachedResponse

REMEMBERED = 10_000
"""About 2 MB; what left before the youngest so many is taken for never seen."""


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
        """Note how precisely the invalidation was judged that an entry has left for.

        precision: one of vocabularies.PRECISION; "withdrawn": it was no invalidation.
        """
        departed = self._departed.get(hash(key))
        if departed is not None and departed.why == "invalidated":
            if precision == "withdrawn":
                departed.why = precision
            else:
                departed.precision = precision

    def why(self, key: str) -> str:
        """The reason why this key is missing: one of vocabularies.LEFT, or "absent"."""
        departed = self._departed.get(hash(key))
        return "absent" if departed is None else departed.why

    def returned(self, response: CachedResponse) -> tuple[str, bool] | None:
        """Note that an answer was made anew: how precisely the old one's invalidation was judged, and whether both are the same.

        None if it was not missing because of an invalidation.
        """
        departed = self._departed.pop(hash(response.key), None)
        if departed is None or departed.why != "invalidated":
            return None
        return departed.precision, (departed.status, departed.etag) == (response.status, response.etag)
