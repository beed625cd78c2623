"""Identity of a query: equal for equal queries, however they are written."""

from __future__ import annotations

from typing import Any

import bson
from xxhash import xxh128_hexdigest

from quaestor.errors import MalformedQueryError, QueryError
from quaestor.model import Document, Query
from quaestor.planning.followed_query import stands_for, views_of
from quaestor.query.encoding import OPTIONS
from quaestor.query.sorting import parse_sort


def _plain_sort(query: Query) -> list[list[Any]]:
    try:
        return [[path, direction] for path, direction in parse_sort(query.sort)]
    except QueryError:
        return [[path, direction] for path, direction in query.sort]


def essence_of(query: Query, *, collated: bool = False) -> Document:
    """Return the essence of a query: everything that distinguishes it from others, with its filter as it was written."""
    essence = {
        "namespace": query.namespace,
        "operation": query.operation.value,
        "filter": query.filter,
        "sort": _plain_sort(query),
        "skip": query.skip,
        "limit": query.limit,
        "projection": query.projection or None,
        "pipeline": list(query.pipeline),
        "distinct_key": query.distinct_key,
        "collation": query.collation if collated else None,
        "let": query.let,
        "widened": query.widened,
    }
    if query.text_index is not None:
        essence["text_index"] = query.text_index
    if query.index_keys:
        essence["index_keys"] = [list(key) for key in query.index_keys]
    if query.clock is not None:
        essence["clock"] = query.clock
    if views := views_of(query):
        essence["views"] = list(views)
    if (operation := stands_for(query)) is not None:
        essence["stands_for"] = operation.value
    return essence


def query_id_of(query: Query, essence: Document) -> str:
    """Return the id of a query. Raises MalformedQueryError if BSON cannot hold it."""
    try:
        return xxh128_hexdigest(bson.encode(essence, codec_options=OPTIONS))
    except (bson.errors.BSONError, OverflowError) as error:
        raise MalformedQueryError(f"the query on {query.namespace} holds a value outside BSON: {error}") from error
