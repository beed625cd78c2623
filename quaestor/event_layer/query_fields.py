"""Fields of a query in a payload. Fields that are None or empty are left out, except the filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.model import Operation, Query
from quaestor.planning.followed_query import followed, stands_for, views_of


def query_fields(query: Query) -> dict[str, Any]:
    fields = {
        "ns": query.namespace, "op": query.operation.value, "filter": query.filter, "sort": [*map(list, query.sort)],
        "skip": query.skip, "limit": query.limit, "projection": query.projection, "pipeline": list(query.pipeline),
        "distinct": query.distinct_key, "collation": query.collation, "let": query.let, "widened": query.widened,
        "text": query.text_index, "indexes": [*map(list, query.index_keys)],
        "clock": query.clock, "views": list(views_of(query)),
    }  # fmt: skip
    if (operation := stands_for(query)) is not None:
        fields["for"] = operation.value
    return {name: value for name, value in fields.items() if value not in (None, 0, []) or name == "filter"}


def query_of(fields: Mapping[str, Any]) -> Query:
    """Return the query in these fields. Raises KeyError, TypeError or ValueError if they are not the fields of a query."""
    query = Query(
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
    )
    if "views" not in fields and "for" not in fields:
        return query
    operation = Operation(fields["for"]) if "for" in fields else None
    return followed(query, views=tuple(_view(view) for view in fields.get("views", ())), stands_for=operation)


def _view(fields: Mapping[str, Any]) -> dict[str, Any]:
    view, definition = str(fields["view"]), str(fields["definition"])
    return {"view": view, "reads": [str(namespace) for namespace in fields["reads"]], "definition": definition}
