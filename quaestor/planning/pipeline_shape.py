"""Shape of a pipeline, by which it is planned: its leading filter, and whether it is equivalent to a find or a count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quaestor.model import Document, Query
from quaestor.query import aggregation


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """Shape of one pipeline.

    leading: the filter of the `$match` stages it begins with; None if it begins otherwise.
    rest: what follows them.

    as_find: the query as a find with the same records in the same order, if each record of the result is one of the
        collection's under its own `_id`; its operation and pipeline stay.
    shaping: what is done to each of them after that.
    counts: all it returns is how many records the filter lets through.
    """

    leading: Document | None
    rest: tuple[Document, ...]
    as_find: Query | None
    shaping: tuple[Document, ...]
    counts: bool

    @staticmethod
    def of(query: Query) -> PipelineShape:
        """The shape of this query's pipeline. Never raises: what mongod would refuse is no find. O(stages)."""
        rest = list(query.pipeline)
        filters: list[Document] = []
        while rest and list(rest[0]) == ["$match"] and isinstance(rest[0]["$match"], Mapping):
            filters.append(rest.pop(0)["$match"])
        names = [list(stage) for stage in rest]
        as_find, shaping = _as_find(query)
        return PipelineShape(
            leading=aggregation.all_of(filters) if filters else None,
            rest=tuple(rest),
            as_find=as_find,
            shaping=shaping,
            counts=names[-1:] == [["$count"]] and all(name == ["$sort"] for name in names[:-1]),
        )


def _as_find(query: Query) -> tuple[Query | None, tuple[Document, ...]]:
    try:
        rows = aggregation.as_rows(query.pipeline)
        if rows is None or not isinstance(rows.filter, Mapping):
            return None, ()
        sort = tuple(rows.sort.items())
    except (ValueError, TypeError, AttributeError, StopIteration):
        return None, ()
    projection = rows.rest[0]["$project"] if [list(stage) for stage in rows.rest] == [["$project"]] else None
    find = replace(query, filter=rows.filter, sort=sort, skip=rows.skip, limit=rows.limit, projection=projection)
    return find, rows.rest
