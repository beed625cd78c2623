"""Digests of results: reading the same result again gives the same digest.

A digest covers everything that is returned, in order, as BSON. The hash is cryptographic, not a checksum: records may come
from strangers, and two results with one digest would count as equal.
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
"""Largest result that is digested; reading a larger one again costs more than it is likely to save."""
_PLAIN: Final = TypeRegistry()
_BYTES: Final = 16


class ResultDigest:
    """Digest of one result, fed batch by batch. A result that is too large, or holds a value outside BSON, has none.

    query: a count has the same digest from any command, and the values of a distinct are sorted. A view and its collection have
        different digests: an index may show other values of the collection.
    """

    __slots__ = ("_hash", "_left", "_operation")

    def __init__(self, query: Query) -> None:
        self._operation = query.operation
        self._hash = blake2b(query.namespace.encode(), digest_size=_BYTES)
        self._left = MOST_BYTES

    def add(self, reply: Mapping[str, Any]) -> None:
        """Add one reply of the server. O(its size)."""
        if self._left < 0:
            return
        try:
            for document in _content(reply, self._operation):
                raw = _raw(document)
                self._left -= len(raw)
                if self._left < 0:
                    return
                self._hash.update(raw)
        except Exception:  # any error of the client's own codec
            self._left = -1

    def value(self) -> bytes | None:
        """Return the digest of all that was added; None if there is none."""
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
    """Whether the result of a query may be read again for comparison.

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
    """Whether a client with these options decodes distinct values to distinct ones; None: unknown options. Custom decoders may
    map two different values to one."""
    return options is not None and options.type_registry == _PLAIN
