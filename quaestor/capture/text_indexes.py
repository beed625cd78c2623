"""Definitions of text indexes, for reads whose filter holds `$text`. The definition alone determines the result of such a read.

mongod 6.0 reports in its change stream when a text index comes, goes or is hidden (`change_events.py`). A definition that
is therefore safe if it is listed *after* the read was answered. Had it changed in between, the event would be newer than the
registration's `since`, and replaying it would invalidate. Older servers report nothing. There a definition has to be known
before the read; it is listed repeatedly, and its changes are reported like those of views.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from quaestor.capture.listing_errors import listing_error
from quaestor.errors import DatabaseError
from quaestor.model import Document, Operation, Query
from quaestor.query.text.index import DEFINITION

MAX_FOLLOWED: Final = 1_000
"""Namespaces whose definitions are followed where the server does not report changes."""
_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


class TextIndexes:
    """Definitions of text indexes: current look-ups, and remembered definitions that are listed repeatedly. Thread-safe."""

    def __init__(self, client: MongoClient[dict[str, Any]]) -> None:
        self._client = client
        self._known: dict[str, Document | None] = {}
        self._lock = threading.Lock()

    def now(self, namespace: str) -> Document | None:
        """Return the definition at this moment, reduced to its deciding parts; None if there is no text index. Blocking.

        Raises DatabaseError.
        """
        database, _, name = namespace.partition(".")
        try:
            listed = list(self._client.get_database(database, codec_options=_CODEC)[name].list_indexes())
        except PyMongoError as error:
            what = f"cannot list the indexes of {namespace}, so what $text searches is not known"
            raise listing_error(what, error, privilege="listIndexes") from error
        text_indexes = (reduced(index) for index in listed if "_fts" in index["key"] and not index.get("hidden"))
        return next(text_indexes, None)

    def follow(self, namespace: str) -> bool:
        """Have `poll` look for changes of this namespace's index from now on. Blocking.

        Returns whether the definition was known before, so that a read answered before this call was made with it.
        Raises DatabaseError, also if too many are followed already.
        """
        with self._lock:
            if namespace in self._known:
                return True
            if len(self._known) >= MAX_FOLLOWED:
                raise DatabaseError(
                    f"the text indexes of {MAX_FOLLOWED} collections are followed already, that of {namespace} cannot be; "
                    "MongoDB 6.0 or newer tells of changes by itself"
                )
        definition = self.now(namespace)
        with self._lock:
            self._known.setdefault(namespace, definition)
        return False

    def known(self, namespace: str) -> Document | None:
        """Return the last listed definition of a followed namespace."""
        return self._known.get(namespace)

    def poll(self) -> frozenset[str]:
        """List the followed namespaces again. Returns those with a changed definition. Blocking; never raises.

        A definition that could not be listed counts as changed and is forgotten, because its state is unknown.
        """
        changed = set()
        for namespace in list(self._known):
            try:
                definition = self.now(namespace)
            except DatabaseError:
                with self._lock:
                    del self._known[namespace]
                changed.add(namespace)
                continue
            with self._lock:
                before, self._known[namespace] = self._known[namespace], definition
            if definition != before:
                changed.add(namespace)
        return frozenset(changed)


def reduced(definition: Mapping[str, Any]) -> Document:
    """Return a text index from `list_indexes`, without its name and the options that decide nothing."""
    kept = {name: definition[name] for name in DEFINITION if name in definition}
    return kept | {"weights": dict(sorted(definition.get("weights", {}).items()))}


def searches(query: Query) -> bool:
    """Whether `$text` decides which records the query finds."""
    if query.operation is not Operation.AGGREGATE:
        return holds_text(query.filter)
    return any(holds_text(condition) for condition in _leading(query))


def _leading(query: Query) -> Iterator[Document]:
    for stage in query.pipeline:
        if stage.keys() != {"$match"}:
            return
        yield stage["$match"]


def holds_text(condition: Any) -> bool:
    """Whether a filter holds `$text`, where mongod allows it: at the top, in `$and` and in `$or`. O(size)."""
    if not isinstance(condition, Mapping):
        return False
    return "$text" in condition or any(
        holds_text(part) for name in ("$and", "$or") if isinstance(parts := condition.get(name), list) for part in parts
    )
