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
from quaestor.query.encoding import OPTIONS

MOST_BYTES: Final = 1024 * 1024
"""Of a result that is worth it; reading a larger one again costs more than it is likely to save."""
_PLAIN: Final = TypeRegistry()
_BYTES: Final = 16


class ResultDigest:
    """Digest of one result, fed batch by batch. It gives up on what is too large, or on a value that BSON alone cannot say."""

    __slots__ = ("_hash", "_left")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=_BYTES)
        self._left = MOST_BYTES

    def add(self, reply: Mapping[str, Any]) -> None:
        """Take in one reply of the server. O(its size)."""
        if self._left < 0:
            return
        try:
            for document in _content(reply):
                raw = (
                    document.raw
                    if isinstance(document, RawBSONDocument)
                    else bson.encode(document, codec_options=OPTIONS)
                )
                self._left -= len(raw)
                if self._left < 0:
                    return
                self._hash.update(raw)
        except Exception:  # a type of the client's own: whatever its codec raises
            self._left = -1

    def value(self) -> bytes | None:
        """The digest of all that was added; None if there is none."""
        return None if self._left < 0 else self._hash.digest()


def _content(reply: Mapping[str, Any]) -> Iterable[Any]:
    cursor = reply.get("cursor")
    if cursor is not None:
        batch: Iterable[Any] = cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
        return batch
    return ({name: reply[name] for name in ("n", "values") if name in reply},)


def may_be_compared(query: Query) -> bool:
    """Whether the result of a query may be read again, to be compared: one that is likely to be judged by more writes than change
    it, and that is known with all its options."""
    if query.widened is not None:
        return False
    if query.operation is Operation.AGGREGATE or query.collation is not None or query.let is not None:
        return True
    return bool(query.projection) and shown_by(query) is None


def loses_nothing(options: CodecOptions[Any] | None) -> bool:
    """Whether a client with these options shows what the database said; None: they are not known. One with decoders of its own
    may show two different values as one."""
    return options is not None and options.type_registry == _PLAIN
