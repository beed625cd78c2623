"""Shape of a pipeline, which decides its plan: its leading filter, and whether it is equivalent to a find or a count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from quaestor.errors import QueryError
from quaestor.model import Document, Query
from quaestor.planning.filter_fields import filter_paths
from quaestor.query import aggregation
from quaestor.query.compiled import compile_query

_DRESSING: Final = frozenset({"$project", "$set", "$addFields", "$unset", "$lookup", "$graphLookup"})
_LEAVING: Final = frozenset({"$match", "$sort", "$unionWith"})
"""Stages that leave the records that pass through them unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """Shape of one pipeline.

    leading: the filter of the leading `$match` stages, and later conditions on fields that are still the record's own.
        Every record in the result passes it. None if there is none.
    rest: the stages after the leading ones.

    as_find: the query as a find with the same records in the same order; its operation and pipeline stay. None unless each
        record of the result is one of the collection's under its own `_id`.
    shaping: the stages that then change each of them.
    counts: the result is only the number of records that pass the filter.
    """

    leading: Document | None
    rest: tuple[Document, ...]
    as_find: Query | None
    shaping: tuple[Document, ...]
    counts: bool

    @staticmethod
    def of(query: Query) -> PipelineShape:
        """Return the shape of this query's pipeline. Never raises: a pipeline that mongod would refuse is no find. O(stages)."""
        stages = _filtered_early(query.pipeline)
        rest = list(stages)
        filters: list[Document] = []
        while rest and list(rest[0]) == ["$match"] and isinstance(rest[0]["$match"], Mapping):
            filters.append(rest.pop(0)["$match"])
        names = [list(stage) for stage in rest]
        filters += _hoisted(rest)
        as_find, shaping = _as_find(query, stages)
        return PipelineShape(
            leading=aggregation.all_of(filters) if filters else None,
            rest=tuple(rest),
            as_find=as_find,
            shaping=shaping,
            counts=bool(names) and _counts(rest[-1]) and all(map(_keeps_number, rest[:-1])),
        )


def filter_behind(stages: Sequence[Document], condition: Document, paths: Iterable[str] = ()) -> Document | None:
    """Return the filter on a collection's records that equals a filter behind these stages.

    None if the stages do more than filter, sort and show fields, or do not show the fields that the filter reads.

    paths: they have to be shown as well.
    """
    try:
        early = _filtered_early([*stages, {"$match": condition}])
        filters = [stage["$match"] for stage in early if list(stage) == ["$match"]]
        rest = [stage for stage in early if list(stage) != ["$match"]]
        if early[len(filters) :] != rest or not all(map(_keeps_number, rest)):
            return None
        dressing = [stage for stage in rest if list(stage) != ["$sort"]]
        if not all(aggregation.shows(dressing, path) for path in paths):
            return None
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    return aggregation.all_of(filters)


def _filtered_early(stages: Sequence[Document]) -> list[Document]:
    """Return stages with the same result and filters moved before sorts and unrelated stages. Never raises."""
    filters: list[Document] = []
    rest: list[Document] = []
    try:
        for position, stage in enumerate(stages):
            ((name, operand),) = stage.items()
            if name == "$match" and (not rest or _passes(operand, rest)):
                filters.append(stage)
            elif name == "$sort" or name in _DRESSING:
                rest.append(stage)
            else:
                return [*filters, *rest, *stages[position:]]
    except (ValueError, TypeError, AttributeError, KeyError):
        return list(stages)
    return [*filters, *rest]


def _passes(condition: Document, stages: Sequence[Document]) -> bool:
    """Whether a filter selects the same records before these stages."""
    dressing = [stage for stage in stages if list(stage) != ["$sort"]]
    paths = _paths(condition)
    return not condition or (bool(paths) and all(aggregation.shows(dressing, path) for path in paths))


def _counts(stage: Document) -> bool:
    """Whether a stage shows only the number of its records."""
    if list(stage) == ["$count"]:
        return True
    group = stage.get("$group")
    if not isinstance(group, Mapping) or len(group) < 2 or not _constant(group.get("_id")):
        return False
    sums = [value for name, value in group.items() if name != "_id"]
    return all(isinstance(value, Mapping) and list(value) == ["$sum"] and _number(value["$sum"]) for value in sums)


def _constant(value: Any) -> bool:
    return value is None or _number(value) or (isinstance(value, str) and not value.startswith("$"))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _keeps_number(stage: Document) -> bool:
    """Whether a stage keeps the number of records, and can fail on none of them."""
    ((name, operand),) = stage.items()
    if name == "$project":
        return isinstance(operand, Mapping) and all(isinstance(value, bool | int | float) for value in operand.values())
    return name in ("$sort", "$unset")


def _as_find(query: Query, stages: Sequence[Document]) -> tuple[Query | None, tuple[Document, ...]]:
    try:
        rows = aggregation.as_rows(stages)
        if rows is None or not isinstance(rows.filter, Mapping):
            return None, ()
        sort = tuple(rows.sort.items())
    except (ValueError, TypeError, AttributeError, StopIteration):
        return None, ()
    projection = rows.rest[0]["$project"] if [list(stage) for stage in rows.rest] == [["$project"]] else None
    find = replace(query, filter=rows.filter, sort=sort, skip=rows.skip, limit=rows.limit, projection=projection)
    return find, rows.rest


def _hoisted(stages: Sequence[Document]) -> Iterator[Document]:
    """Iterate over later conditions on fields that the stages before them leave as they are. Never raises."""
    dressing: list[Document] = []
    unwound: list[str] = []
    try:
        for stage in stages:
            ((name, operand),) = stage.items()
            if name == "$match":
                for part in _parts(operand):
                    if (paths := _paths(part)) and all(
                        aggregation.shows(dressing, path) and path.split(".", 1)[0] not in unwound for path in paths
                    ):
                        yield part
            elif name == "$unwind":
                unwound += _unwound(operand)
            elif name in _DRESSING:
                dressing.append(stage)
            elif name not in _LEAVING:
                return
    except (ValueError, TypeError, AttributeError, KeyError):
        return


def _parts(condition: Document) -> Iterator[Document]:
    for name, operand in condition.items():
        if name == "$and":
            for part in operand:
                yield from _parts(part)
        else:
            yield {name: operand}


def _paths(condition: Document) -> Iterable[str]:
    """Return the paths that a filter reads; none if they are unknown."""
    try:
        return filter_paths(compile_query(condition).root) or ()
    except QueryError:
        return ()


def _unwound(operand: Any) -> list[str]:
    """Return the fields that an `$unwind` writes."""
    if isinstance(operand, str):
        return [operand.removeprefix("$").split(".", 1)[0]]
    paths = (operand["path"].removeprefix("$"), operand.get("includeArrayIndex") or "")
    return [path.split(".", 1)[0] for path in paths]
