"""Fields of a query in a payload. Fields that are None or empty are left out, except the filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.model import Operation, Query


def query_fields(query: Query) -> dict[str, Any]:
    fields = {
        "ns": query.namespace, "op": query.operation.value, "filter": query.filter, "sort": [*map(list, query.sort)],
        "skip": query.skip, "limit": query.limit, "projection": query.projection, "pipeline": list(query.pipeline),
        "distinct": query.distinct_key, "collation": query.collation, "let": query.let, "widened": query.widened,
        "text": query.text_index, "indexes": [*map(list, query.index_keys)],
        "clock": query.clock, "views": list(query.views), "for": query.stands_for and query.stands_for.value,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value not in (None, 0, []) or name == "filter"}


def query_of(fields: Mapping[str, Any]) -> Query:
    """Return the query in these fields. Raises KeyError, TypeError or ValueError if they are not the fields of a query."""
    return Query(
        namespace=fields["ns"],
        operation=Operation(fields["op"]),
        filter=fields["filter"],
        sort=tuple((path, direction) for path, direction in fields.get("sort", ())),
        skip=int(fields.get("skip", 0)),
        limit=int(fields.get("limit", 0)),
        projection=fields.get("projection"),
        pipeline=tuple(fields.get("pipeline", ())),
        distinct_key=fields.get("distinct"),
        collation=fields.get("collation"),
        let=fields.get("let"),
        text_index=fields.get("text"),
        index_keys=tuple(tuple(map(str, key)) for key in fields.get("indexes", ())),
        clock=fields.get("clock"),
        widened=fields.get("widened"),
        views=tuple(_view(view) for view in fields.get("views", ())),
        stands_for=Operation(fields["for"]) if "for" in fields else None,
    )


def _view(fields: Mapping[str, Any]) -> dict[str, Any]:
    view, definition = str(fields["view"]), str(fields["definition"])
    return {"view": view, "reads": [str(namespace) for namespace in fields["reads"]], "definition": definition}
