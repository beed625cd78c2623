"""Resolution of a query to be subscribed to: what its collection adds to it, and whether it can be maintained at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import bson

from quaestor.errors import UnsupportedQueryError
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.query_fields import query_fields
from quaestor.incremental import plan_maintenance
from quaestor.model import CapturedRead, Query

_MOST_BYTES: Final = 256 * 1024
"""Of a query: it is repeated whenever its lease is extended."""


class Resolver(Protocol):
    """Resolver of what a query does not say of its collection: text index, default collation."""

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """Reads with what was missing, and why some cannot be followed."""


async def resolved(query: Query, resolver: Resolver | None) -> Query:
    """The query with what its collection adds to it. Raises UnsupportedQueryError if it cannot be followed."""
    if resolver is None:
        return query
    read = CapturedRead(query=query, read_at=0, ids=None)
    reads, reasons = await resolver.resolve([read])
    if reasons:  # a database that is looked at for the first time is known by the second
        reads, reasons = await resolver.resolve([read])
    if reasons:
        raise UnsupportedQueryError(f"{query.namespace} cannot be followed: {', '.join(reasons)}")
    if [each.query.namespace for each in reads] != [query.namespace]:
        raise UnsupportedQueryError(f"{query.namespace} is a view; follow the collection below it by a pipeline")
    return reads[0].query


def require_maintainable(query: Query) -> None:
    """Raise QueryError if the query is malformed, too large, or its result cannot be maintained."""
    plan_maintenance(query)
    size = len(bson.encode(query_fields(query), codec_options=BSON_OPTIONS))
    if size > _MOST_BYTES:
        raise UnsupportedQueryError(f"the query has {size} bytes; one of at most {_MOST_BYTES} can be followed")
