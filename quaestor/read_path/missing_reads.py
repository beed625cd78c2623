"""Missing reads: what an earlier run of the same request read, and the latest one did not. Pure, but for what it remembers.

A handler that answers out of a memo of its own reads less than the run that filled the memo. Made again, its answer comes
from the same memo, so verification finds no difference; but its queries tell. Which queries a handler runs is decided by the
request, by what its earlier queries found, and by what nobody can see. So if a query is missing although all that this run
has in common with the earlier one found what it had found then, something unseen stands in its place; and if the result of
that query has changed since, what stands there may be older than the last write. Nothing would ever end the entry that was
made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from quaestor.ports import Registered

MISSING_READ: Final = "missing-read"
"""As the reason why an answer is not stored."""
MOST_KEYS: Final = 4_096
"""Keys of which it is remembered what was read for them: those with reads of several collections, the latest ones."""
MOST_QUERIES: Final = 64
"""Distinct queries of an answer; what was made of more is not remembered."""


@dataclass(slots=True)
class _Earlier:
    """Reads of the latest run for one key whose answer was stored.

    queries: namespace and registration by query id.
    until_ms: once a read has been missing: when this is forgotten; 0: it has not.
    doubted: verification has seen that a read is missing, so it does not matter what has changed.
    """

    queries: dict[str, tuple[str, str]]
    until_ms: int = 0
    doubted: bool = False


class MissingReads:
    """Memory of what was read for each key. Every call is O(queries of one answer), changed() O(names). Use from one event loop.

    hold_ms: how long a key is not stored because of a read that does not come back.
    dead: whether a registration is known to be dead at this moment.
    """

    def __init__(self, *, hold_ms: int, dead: Callable[[str], bool]) -> None:
        self._hold_ms = hold_ms
        self._dead = dead
        self._earlier: dict[str, _Earlier] = {}
        self._relied_on: dict[str, int] = {}
        """How many of these rely on a registration."""
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._earlier)

    def note(self, key: str, registered: Registered) -> None:
        """Remember what an answer that was stored under a key was made of."""
        self.forget(key)
        queries = _queries(registered)
        if len(queries) > MOST_QUERIES or len({namespace for namespace, _ in queries.values()}) < 2:
            return  # whoever reads one collection only and stops reading it has read nothing, and is not stored
        if len(self._earlier) >= MOST_KEYS:
            self.forget(next(iter(self._earlier)))
        self._earlier[key] = _Earlier(queries)
        for _, registration in queries.values():
            self._relied_on[registration] = self._relied_on.get(registration, 0) + 1

    def changed(self, registrations: Iterable[str]) -> None:
        """Note that these are dead: a write has changed what they guard."""
        self._changed.update(one for one in registrations if one in self._relied_on)

    def doubt(self, key: str, *, until_ms: int) -> None:
        """Note that a run for this key read less than the earlier one though nothing had changed: until then, or until it reads
        as much again, it is not stored."""
        earlier = self._earlier.get(key)
        if earlier is not None:
            earlier.until_ms, earlier.doubted = until_ms, True

    def missing(self, key: str, registered: Registered, now_ms: int) -> tuple[str, ...]:
        """Namespaces that the earlier run for a key read and this one did not, whose reads have changed since, though nothing
        has that both have read; sorted. Then the answer may be older than those writes.

        Empty also where it is not known.
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
                return ()  # what it found there may have led elsewhere
        missing = sorted(name for name, ids in gone.items() if earlier.doubted or any(map(self._has_changed, ids)))
        if not missing:
            return ()
        earlier.until_ms = earlier.until_ms or now_ms + self._hold_ms
        if now_ms >= earlier.until_ms:
            self.forget(key)
            return ()
        return tuple(missing)

    def forget(self, key: str) -> None:
        """Forget what was read for a key."""
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
    """Namespace and registration of each query, without the registration that is the response's own. Empty if the registry does
    not say what it has registered."""
    ids = registered.ids[len(registered.ids) - len(registered.query_ids) :]
    return {
        query_id: (query.namespace, registration)
        for query_id, query, registration in zip(registered.query_ids, registered.queries, ids, strict=False)
    }
