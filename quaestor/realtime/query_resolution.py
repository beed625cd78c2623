"""Resolution of a query to be subscribed to: what its collection adds to it, and whether it can be maintained at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import bson

from quaestor.errors import UnsupportedQueryError
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.query_fields import query_fields
from quaestor.incremental import plan_following
from quaestor.model import CapturedRead, Operation, Query

_MOST_BYTES: Final = 256 * 1024
"""Of a query: it is repeated whenever its lease is extended."""


class Resolver(Protocol):
    """Resolver of what a query does not say of its collection: text index, default collation."""

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """Reads with what was missing, and why some cannot be followed."""


async def resolved(query: Query, resolver: Resolver | None) -> tuple[Query, str | None]:
    """The query with what its collection adds to it, and why its result is read again after writes; None: it is maintained.

    A query on a view becomes a query on the collection below.

    Raises QueryError if the query is malformed, too large, or its result does not follow from writes.
    """
    query = query if resolver is None else await _completed(query, resolver)
    recomputation = plan_following(query).recomputation
    size = len(bson.encode(query_fields(query), codec_options=BSON_OPTIONS))
    if size > _MOST_BYTES:
        raise UnsupportedQueryError(f"the query has {size} bytes; one of at most {_MOST_BYTES} can be followed")
    return query, None if recomputation is None else recomputation.reason


async def _completed(query: Query, resolver: Resolver) -> Query:
    read = CapturedRead(query=query, read_at=0, ids=None)
    reads, reasons = await resolver.resolve([read])
    if reasons:  # a database that is looked at for the first time is known by the second
        reads, reasons = await resolver.resolve([read])
    if reasons:
        raise UnsupportedQueryError(f"{query.namespace} cannot be followed: {', '.join(reasons)}")
    own, *others = (each.query for each in reads)
    _require_equal_rows(query, own)
    widened = sorted(other.namespace for other in others if other.widened is not None)
    if widened:
        raise UnsupportedQueryError(
            f"{query.namespace}: a stage reads a view on {widened[0]}; put the stages of that view into the pipeline"
        )
    return own


def _require_equal_rows(query: Query, own: Query) -> None:
    """Raise if the query on the collection gives rows of another form than the query on the view."""
    if own.operation is not query.operation and query.operation not in (Operation.FIND, Operation.AGGREGATE):
        raise UnsupportedQueryError(
            f"{query.namespace} is a view with computed records; follow {query.operation.value} as a pipeline"
        )
