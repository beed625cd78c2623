"""Keys of indexes, for reads whose order is left to the database: it may order the result by any of them.

The keys are listed when a namespace has its first such read, and repeatedly after that. Change events of MongoDB 6.0 report that
an index came or went, and end the affected reads. But a read just after the event may still be planned with the old keys.
Therefore the listing reports the new keys, and reads with others are given up. Before 6.0 the listing alone reports the index.
While there are no reads and events report indexes, the keys are forgotten. The next read lists them anew.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from quaestor.planning.index_order import ANY_FIELD, UNKNOWN

MAX_FOLLOWED: Final = 1_000
"""Namespaces whose indexes are followed; the keys of further ones are unknown."""
_NO_COLLECTION: Final = 26

Keys = tuple[tuple[str, ...], ...]


class IndexKeys:
    """Keys of indexes by namespace, except the one on `_id`, at most a poll old. Thread-safe."""

    def __init__(self, client: MongoClient[dict[str, Any]]) -> None:
        self._client = client
        self._known: dict[str, Keys] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Follow no namespace any more: the next read of each lists its keys."""
        with self._lock:
            self._known.clear()

    def known(self, namespace: str) -> Keys | None:
        """Return the last listed keys; None if they were never listed."""
        return self._known.get(namespace)

    def follow(self, namespace: str) -> Keys:
        """List the keys now and in every poll from now on. Blocking; never raises: keys that cannot be listed are UNKNOWN."""
        keys = self._listed(namespace)
        with self._lock:
            if namespace not in self._known and len(self._known) >= MAX_FOLLOWED:
                return UNKNOWN
            return self._known.setdefault(namespace, keys)

    def poll(self) -> Mapping[str, tuple[Keys, Keys]]:
        """List the followed namespaces again. Returns those with changed keys, each with the keys before and after.

        Blocking; never raises.
        """
        changed: dict[str, tuple[Keys, Keys]] = {}
        for namespace in list(self._known):
            keys = self._listed(namespace)
            with self._lock:
                before = self._known.get(namespace)
                if before is not None:
                    self._known[namespace] = keys
            if before is not None and keys != before:
                changed[namespace] = before, keys
        return changed

    def _listed(self, namespace: str) -> Keys:
        database, _, name = namespace.partition(".")
        try:
            listed = self._listing(database, name)
        except OperationFailure as error:
            return () if error.code == _NO_COLLECTION else UNKNOWN
        except PyMongoError:
            return UNKNOWN
        # An index under construction comes as {spec, buildUUID}, and is not used yet.
        ready = [index for index in listed if "buildUUID" not in index and not index.get("hidden")]
        keys = (tuple(map(str, index["key"])) for index in ready)
        return tuple(
            sorted((ANY_FIELD,) if len(key) == 1 and "$**" in key[0] else key for key in keys if key != ("_id",))
        )

    def _listing(self, database: str, name: str) -> list[dict[str, Any]]:
        """Return the indexes, with unfinished ones marked, unless the client's Stable API or the server lacks that option."""
        try:
            reply = self._client[database].command("listIndexes", name, includeBuildUUIDs=True)
        except OperationFailure as error:
            if error.code == _NO_COLLECTION:
                raise
            reply = self._client[database].command("listIndexes", name)
        indexes: list[dict[str, Any]] = reply["cursor"]["firstBatch"]  # a collection has at most 64
        return indexes
