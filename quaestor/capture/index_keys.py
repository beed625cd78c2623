"""Keys of indexes, for reads whose order is left to the database. By them it may order what a query finds.

Listed when a namespace is read like that for the first time, and again and again after that. An index that came or went in
between is reported like a view that changed: what was registered before is given up.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from quaestor.planning.index_order import ANY_FIELD, UNKNOWN

MAX_FOLLOWED: Final = 1_000
"""Namespaces whose indexes are followed; of others they are not known."""

Keys = tuple[tuple[str, ...], ...]


class IndexKeys:
    """Keys of indexes by namespace, but for that on `_id`, at most a poll old. Thread-safe."""

    def __init__(self, client: MongoClient[dict[str, Any]]) -> None:
        self._client = client
        self._known: dict[str, Keys] = {}
        self._lock = threading.Lock()

    @property
    def followed(self) -> int:
        """The number of namespaces that every poll lists."""
        return len(self._known)

    def known(self, namespace: str) -> Keys | None:
        """The keys as last listed; None if they never were."""
        return self._known.get(namespace)

    def follow(self, namespace: str) -> Keys:
        """List the keys now and in every poll from now on. Blocking; never raises: what cannot be listed is UNKNOWN."""
        keys = self._listed(namespace)
        with self._lock:
            if namespace not in self._known and len(self._known) >= MAX_FOLLOWED:
                return UNKNOWN
            return self._known.setdefault(namespace, keys)

    def poll(self) -> frozenset[str]:
        """List again what is followed. Returns the namespaces whose keys changed. Blocking; never raises."""
        changed = set()
        for namespace in list(self._known):
            keys = self._listed(namespace)
            with self._lock:
                before, self._known[namespace] = self._known[namespace], keys
            if keys != before:
                changed.add(namespace)
        return frozenset(changed)

    def _listed(self, namespace: str) -> Keys:
        database, _, name = namespace.partition(".")
        try:
            listed = list(self._client[database][name].list_indexes())
        except PyMongoError:
            return UNKNOWN
        keys = (tuple(map(str, index["key"])) for index in listed if not index.get("hidden"))
        return tuple(
            sorted((ANY_FIELD,) if len(key) == 1 and "$**" in key[0] else key for key in keys if key != ("_id",))
        )
