"""Verification of a stored answer: the handler's answer to the repeated request, compared with the entry. Pure.

An entry is right while its registrations live: then no write has changed the reads of its handler. If the same handler answers
differently meanwhile, it depends on state that the cache cannot see.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from quaestor.errors import QueryError
from quaestor.model import CapturedRead, Operation, Query
from quaestor.planning.index_order import leaves_order_open
from quaestor.planning.plan_cache import plan_of
from quaestor.planning.timed_conditions import TimedCondition

_COMPARED = frozenset({b"content-type", b"location", b"etag"})
_DIGEST_BYTES = 16
_GZIP = 31
"""zlib's name for the format. Its header holds the time of compression, so equal contents may have different bytes."""
_PIECE_BYTES = 65_536
_LONGEST_UNPACKED_BYTES = 64 * 1024 * 1024


class Finding(StrEnum):
    """Finding of one verification. The value is its label in the metrics."""

    SAME = "same"
    EXCUSED = "excused"
    """The answer differs, and may: a write came in between, or its absence is not certain."""
    DIVERGED = "diverged"
    """The answer differs although nothing known has changed."""
    FAILED = "failed"
    """The handler did not answer, or answered with an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The parts of an answer that verification compares; its content cannot be recovered from them.

    fields: content-type, location and etag as the handler set them, sorted.
    digest, size_bytes: of the body; unpacked, if it is a gzip.
    queries: ids of the queries that its handler ran.
    chosen: of each find whose order the database chooses: the query's id, the number of records, and a digest of their ids.
    """

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    digest: str
    size_bytes: int
    queries: frozenset[str]
    chosen: frozenset[tuple[str, int, str]] = frozenset()


def fingerprint(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, reads: Iterable[CapturedRead]
) -> Fingerprint:
    """Return the fingerprint of an answer. O(body + queries).

    headers: names in lower case.
    """
    digest, size_bytes = _digest(body, packed=(b"content-encoding", b"gzip") in headers)
    by_query = [(_query_id(read), read) for read in reads]
    return Fingerprint(
        status=status,
        fields=tuple(sorted(field for field in headers if field[0] in _COMPARED)),
        digest=digest,
        size_bytes=size_bytes,
        queries=frozenset(query_id for query_id, _ in by_query),
        chosen=frozenset(
            (query_id, len(read.ids), _digest_of(repr(read.ids).encode()))
            for query_id, read in by_query
            if read.ids is not None and read.query.operation is Operation.FIND and leaves_order_open(read.query, None)
        ),
    )


def differences(stored: Fingerprint, again: Fingerprint) -> tuple[str, ...]:
    """Return the names of the parts in which two answers to the same request differ: status, body, queries, or a header field."""
    differing = [name for name in ("status", "digest", "queries") if getattr(stored, name) != getattr(again, name)]
    fields = {name.decode("ascii") for name, _ in set(stored.fields) ^ set(again.fields)}
    return tuple("body" if name == "digest" else name for name in differing) + tuple(sorted(fields))


def reads_more(stored: Fingerprint, again: Fingerprint) -> bool:
    """Whether the second answer was made of all the queries of the first, and of further ones. Starting programs read their memos
    once; a later read has renewed such a memo."""
    return stored.queries < again.queries


def chosen_otherwise(stored: Fingerprint, again: Fingerprint) -> bool:
    """Whether the database returned as many, but other records for the same queries, or in another order, where it has the
    choice. A new index may cause that without a write, and both answers are right."""
    counts, counts_again = ({choice[:2] for choice in made.chosen} for made in (stored, again))
    return stored.queries == again.queries and counts == counts_again and stored.chosen != again.chosen


def _query_id(read: CapturedRead) -> str:
    try:
        return plan_of(_at_a_fixed_time(read.query)).query_id
    except QueryError:
        return f"{read.query.operation.value} on {read.query.namespace}"


def _at_a_fixed_time(query: Query) -> Query:
    """Return a query that follows the clock as every run of its handler has it: its times are those of one fixed moment."""
    if query.clock is None:
        return query
    condition = TimedCondition(query.clock).at(0)
    if query.pipeline:
        return replace(query, pipeline=({"$match": condition}, *query.pipeline[1:]))
    return replace(query, filter=condition)


def _digest(body: bytes, *, packed: bool) -> tuple[str, int]:
    if packed:
        try:
            return _unpacked_digest(body)
        except (zlib.error, ValueError):
            pass  # no gzip after all: the body counts as it was sent
    return _digest_of(body), len(body)


def _digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _unpacked_digest(body: bytes) -> tuple[str, int]:
    """Raise zlib.error for a body that is no gzip, ValueError for one that unpacks to more than the limit."""
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
