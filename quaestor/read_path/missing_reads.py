"""Missing reads: reads of an earlier run of the same request that the latest run lacks. Pure, except for its memory.

A handler that answers out of a memo reads less than the run that filled the memo. Verification finds no difference, because the
repeated answer comes from the same memo; but its queries differ. Which queries a handler runs depends on the request, on the
results of its earlier queries, and on state that the cache cannot see. Suppose a query is missing, although every query that
both runs share had the same result. Then unseen state replaces it. If the result of the missing query has changed since, that
state may be older than the last write. No write would ever end its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from quaestor.ports import Registered

MISSING_READ: Final = "missing-read"
"""Reason why an answer is not stored."""
MOST_KEYS: Final = 4_096
"""Keys whose reads are remembered: the latest ones with reads of several collections."""
MOST_QUERIES: Final = 64
"""Distinct queries of an answer; answers with more are not remembered."""


@dataclass(slots=True)
class _Earlier:
    """Reads of the latest run for one key whose answer was stored.

    queries: namespace and registration by query id.
    until_ms: when this is forgotten, once a read has been missing; 0: none has.
    doubted: verification has found a read missing, so changes no longer matter.
    """

    queries: dict[str, tuple[str, str]]
    until_ms: int = 0
    doubted: bool = False


class MissingReads:
    """Memory of the reads for each key. Every call is O(queries of one answer), changed() O(names). Use from one event loop.

    hold_ms: how long a key is not stored because of a missing read.
    dead: whether a registration is known to be dead at this moment.
    """

    def __init__(self, *, hold_ms: int, dead: Callable[[str], bool]) -> None:
        self._hold_ms = hold_ms
        self._dead = dead
        self._earlier: dict[str, _Earlier] = {}
        self._relied_on: dict[str, int] = {}
        """Number of remembered runs by the registration that they rely on."""
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._earlier)

    def note(self, key: str, registered: Registered) -> None:
        """Remember the reads of an answer that was stored under a key."""
        self.forget(key)
        queries = _queries(registered)
        if len(queries) > MOST_QUERIES or len({namespace for namespace, _ in queries.values()}) < 2:
            return  # a handler that no longer reads its only collection has read nothing, and is not stored
        if len(self._earlier) >= MOST_KEYS:
            self.forget(next(iter(self._earlier)))
        self._earlier[key] = _Earlier(queries)
        for _, registration in queries.values():
            self._relied_on[registration] = self._relied_on.get(registration, 0) + 1

    def changed(self, registrations: Iterable[str]) -> None:
        """Note that these registrations are dead: a write has changed their results."""
        self._changed.update(registration for registration in registrations if registration in self._relied_on)

    def doubt(self, key: str, *, until_ms: int) -> None:
        """Note that a run for this key read less than the earlier one although nothing had changed. The key is not stored until
        `until_ms`, or until a run reads as much again."""
        earlier = self._earlier.get(key)
        if earlier is not None:
            earlier.until_ms, earlier.doubted = until_ms, True

    def missing(self, key: str, registered: Registered, now_ms: int) -> tuple[str, ...]:
        """Return the namespaces that only the earlier run read, if their results have changed since, but no result of a query
        in both runs has; sorted. The answer may then be older than those writes.

        Empty also if nothing is known.
        """
        earlier = self._earlier.get(key)
        if earlier is None:
            return ()
        namespaces = {query.namespace for query in registered.queries}
        gone: dict[str, list[str]] = {}
        for query_id, (namespace, registration) in earlier.queries.items():
            if namespace not in namespaces:
                gone.setdefault(namespace, []).append(registration)
            elif query_id not in registered.query_ids or (not earlier.doubted and self._has_changed(registration)):
                return ()  # the changed result may have led the handler elsewhere
        missing = sorted(name for name, ids in gone.items() if earlier.doubted or any(map(self._has_changed, ids)))
        if not missing:
            return ()
        earlier.until_ms = earlier.until_ms or now_ms + self._hold_ms
        if now_ms >= earlier.until_ms:
            self.forget(key)
            return ()
        return tuple(missing)

    def forget(self, key: str) -> None:
        """Forget the reads of a key."""
        earlier = self._earlier.pop(key, None)
        if earlier is None:
            return
        for _, registration in earlier.queries.values():
            left = self._relied_on[registration] - 1
            if left:
                self._relied_on[registration] = left
            else:
                del self._relied_on[registration]
                self._changed.discard(registration)

    def _has_changed(self, registration: str) -> bool:
        return registration in self._changed or self._dead(registration)


def _queries(registered: Registered) -> dict[str, tuple[str, str]]:
    """Return namespace and registration of each query, without the response's own registration. Empty if the registry does not
    report its queries."""
    ids = registered.ids[len(registered.ids) - len(registered.query_ids) :]
    return {
        query_id: (query.namespace, registration)
        for query_id, query, registration in zip(registered.query_ids, registered.queries, ids, strict=False)
    }
