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
from quaestor.planning.followed_query import followed, views_of

_MOST_BYTES: Final = 256 * 1024
"""Of a query: it is repeated whenever its lease is extended."""


class Resolver(Protocol):
    """Resolver of what a query does not say of its collection: text index, default collation."""

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """Reads with what was missing, and why some cannot be followed."""

    def through_views(self, query: Query) -> Query:
        """A resolved query with its stages on collections instead of views."""


async def resolved(query: Query, resolver: Resolver | None) -> tuple[Query, str | None]:
    """The query with what its collection adds to it, and why its result is read again after writes; None: it is maintained.

    A query on a view, or with stages that read one, becomes a query on the collections below.

    Raises QueryError if the query is malformed, too large, or its result does not follow from writes.
    """
    query = query if resolver is None else await _completed(query, resolver)
    recomputation = plan_following(query).recomputation
    size = len(bson.encode(query_fields(query), codec_options=BSON_OPTIONS))
    if size > _MOST_BYTES:
        raise UnsupportedQueryError(f"the query has {size} bytes; one of at most {_MOST_BYTES} can be followed")
    return query, None if recomputation is None else recomputation.reason


def reads_views(asked: Query, query: Query) -> bool:
    """Whether a query, resolved from the asked one, depends on the definition of a view."""
    return bool(views_of(query)) or (query.namespace, query.pipeline) != (asked.namespace, asked.pipeline)


async def _completed(query: Query, resolver: Resolver) -> Query:
    read = CapturedRead(query=query, read_at=0, ids=None)
    reads, reasons = await resolver.resolve([read])
    if reasons:  # a database that is looked at for the first time is known by the second
        reads, reasons = await resolver.resolve([read])
    if reasons:
        raise UnsupportedQueryError(f"{query.namespace} cannot be followed: {', '.join(reasons)}")
    own = resolver.through_views(reads[0].query)
    if own.operation is not query.operation and query.operation in (Operation.COUNT, Operation.DISTINCT):
        return followed(own, stands_for=query.operation)
    return own
