"""Digests of results, as they were read: whoever reads the same result again finds the same digest.

A digest is of everything that is returned, in order, as BSON. It is no checksum but a cryptographic hash, because what is stored
may come from anybody, and two results with one digest would be taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import bson
from bson.codec_options import CodecOptions, TypeRegistry
from bson.raw_bson import RawBSONDocument

from quaestor.model import Operation, Query
from quaestor.planning.projected import shown_by
from quaestor.query.aggregation import projects
from quaestor.query.encoding import OPTIONS

MOST_BYTES: Final = 1024 * 1024
"""Of a result that is worth it; reading a larger one again costs more than it is likely to save."""
_PLAIN: Final = TypeRegistry()
_BYTES: Final = 16


class ResultDigest:
    """Digest of one result, fed batch by batch. A result that is too large has none, nor has a value that BSON alone cannot say.

    query: a number is counted by whatever command, and the values of a distinct have no order. A view and its collection share no
        digest: an index may show other values of the collection.
    """

    __slots__ = ("_hash", "_left", "_operation")

    def __init__(self, query: Query) -> None:
        self._operation = query.operation
        self._hash = blake2b(query.namespace.encode(), digest_size=_BYTES)
        self._left = MOST_BYTES

    def add(self, reply: Mapping[str, Any]) -> None:
        """Take in one reply of the server. O(its size)."""
        if self._left < 0:
            return
        try:
            for document in _content(reply, self._operation):
                raw = _raw(document)
                self._left -= len(raw)
                if self._left < 0:
                    return
                self._hash.update(raw)
        except Exception:  # a type of the client's own: whatever its codec raises
            self._left = -1

    def value(self) -> bytes | None:
        """The digest of all that was added; None if there is none."""
        return None if self._left < 0 else self._hash.digest()


def _raw(document: Any) -> bytes:
    if isinstance(document, bytes):
        return document
    return (
        bytes(document.raw) if isinstance(document, RawBSONDocument) else bson.encode(document, codec_options=OPTIONS)
    )


def _content(reply: Mapping[str, Any], operation: Operation) -> Iterable[Any]:
    cursor = reply.get("cursor")
    batch: Iterable[Any] = ()
    if cursor is not None:
        batch = cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
    if operation is Operation.COUNT:
        counted = [reply] if cursor is None else list(batch)
        return ({"n": int(counted[0]["n"]) if counted else 0},)
    if operation is Operation.DISTINCT and cursor is None:
        return sorted(bson.encode({"": value}, codec_options=OPTIONS) for value in reply["values"])
    return batch


def may_be_compared(query: Query) -> bool:
    """Whether the result of a query may be read again, to be compared.

    True if more writes are likely to count than change it, and all options of the query are known. Such finds skip records, show
    some of many in no order, or hide the `_id`. Their reply leaves open which record a write adds or removes. A filter that names
    `_id`s does not.
    """
    if query.widened is not None:
        return False
    if query.operation is not Operation.FIND or query.collation is not None or query.let is not None:
        return True
    leaves_open = query.skip or (query.limit and not sorts(query)) or not projects(query.projection, "_id")
    if leaves_open and "_id" not in query.filter:
        return True
    return bool(query.projection) and shown_by(query) is None


def sorts(query: Query) -> bool:
    """Whether a find has an order that its records decide."""
    return bool(query.sort) and [path for path, _ in query.sort] != ["$natural"]


def loses_nothing(options: CodecOptions[Any] | None) -> bool:
    """Whether a client with these options shows what the database said; None: they are not known. One with decoders of its own
    may show two different values as one."""
    return options is not None and options.type_registry == _PLAIN
