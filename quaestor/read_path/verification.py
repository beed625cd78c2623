"""Verification of a stored answer: what its handler answers when the same request is made again, compared with the entry. Pure.

An entry is right while its registrations live: then no write has changed what its handler read. If the same handler answers
otherwise meanwhile, it depends on something that nobody can see.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from quaestor.errors import QueryError
from quaestor.model import CapturedRead
from quaestor.planning.plan import plan_query

_COMPARED = frozenset({b"content-type", b"location", b"etag"})
_DIGEST_BYTES = 16
_GZIP = 31
"""zlib's name for the format. Its header holds the time of compression, so equal contents are not equal bytes."""
_PIECE_BYTES = 65_536
_LONGEST_UNPACKED_BYTES = 64 * 1024 * 1024


class Finding(StrEnum):
    """Finding of one verification. The value is its label in the metrics."""

    SAME = "same"
    EXCUSED = "excused"
    """It differs, and may: a write arrived in between, or it is not certain that none did."""
    DIVERGED = "diverged"
    """It differs although nothing that is known of has changed."""
    FAILED = "failed"
    """The handler did not answer, or with an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """All of an answer that verification compares; nothing of its content can be told from it.

    fields: content-type, location and etag as the handler set them, sorted.
    digest, size_bytes: of the body; unpacked, if it is a gzip.
    queries: ids of the queries that its handler ran.
    """

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    digest: str
    size_bytes: int
    queries: frozenset[str]


def fingerprint(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, reads: Iterable[CapturedRead]
) -> Fingerprint:
    """The fingerprint of an answer. O(body + queries).

    headers: names in lower case.
    """
    digest, size_bytes = _digest(body, packed=(b"content-encoding", b"gzip") in headers)
    return Fingerprint(
        status=status,
        fields=tuple(sorted(field for field in headers if field[0] in _COMPARED)),
        digest=digest,
        size_bytes=size_bytes,
        queries=frozenset(map(_query_id, reads)),
    )


def differences(stored: Fingerprint, again: Fingerprint) -> tuple[str, ...]:
    """Names of the parts in which two answers to the same request differ: status, body, queries, or a header field."""
    found = [name for name in ("status", "digest", "queries") if getattr(stored, name) != getattr(again, name)]
    fields = {name.decode("ascii") for name, _ in set(stored.fields) ^ set(again.fields)}
    return tuple("body" if name == "digest" else name for name in found) + tuple(sorted(fields))


def _query_id(read: CapturedRead) -> str:
    try:
        return plan_query(read.query).query_id
    except QueryError:
        return f"{read.query.operation.value} on {read.query.namespace}"


def _digest(body: bytes, *, packed: bool) -> tuple[str, int]:
    if packed:
        try:
            return _unpacked_digest(body)
        except (zlib.error, ValueError):
            pass  # no gzip after all: its bytes are what was sent
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest(), len(body)


def _unpacked_digest(body: bytes) -> tuple[str, int]:
    """Raises zlib.error for what is no gzip, ValueError for what unpacks to more than anybody wants to look at."""
    hashed, size_bytes = hashlib.blake2b(digest_size=_DIGEST_BYTES), 0
    unpacking = zlib.decompressobj(_GZIP)
    waiting = body
    while waiting and not unpacking.eof:
        piece = unpacking.decompress(waiting, _PIECE_BYTES)
        hashed.update(piece)
        size_bytes += len(piece)
        if size_bytes > _LONGEST_UNPACKED_BYTES:
            raise ValueError("unpacks to too much")
        waiting = unpacking.unconsumed_tail
    if not unpacking.eof:
        raise ValueError("ends too early")
    return hashed.hexdigest(), size_bytes
