"""Aggregation pipelines: which stages capture knows, what they read besides their own collection, and count in disguise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from quaestor.capture.snapshot import Reason
from quaestor.model import Uncacheable

READING_STAGES = frozenset(
    {
        "$addFields", "$bucket", "$bucketAuto", "$count", "$densify", "$facet", "$fill", "$geoNear", "$graphLookup",
        "$group", "$limit", "$lookup", "$match", "$project", "$redact", "$replaceRoot", "$replaceWith", "$set",
        "$setWindowFields", "$skip", "$sort", "$sortByCount", "$unionWith", "$unset", "$unwind", "$documents",
    }
)  # fmt: skip
"""Stages whose result is a function of the records of the collections they name.
https://www.mongodb.com/docs/manual/reference/operator/aggregation-pipeline/"""

_REFUSED_STAGES: Mapping[str, Reason] = {
    "$out": Reason(Uncacheable.WROTE, "$out writes"),
    "$merge": Reason(Uncacheable.WROTE, "$merge writes"),
    "$sample": Reason(Uncacheable.RANDOM, "$sample"),
    "$search": Reason(Uncacheable.UNREADABLE, "$search reads an index that follows writes with a delay"),
    "$searchMeta": Reason(Uncacheable.UNREADABLE, "$searchMeta reads an index that follows writes with a delay"),
    "$vectorSearch": Reason(Uncacheable.UNREADABLE, "$vectorSearch reads an index that follows writes with a delay"),
    "$changeStream": Reason(Uncacheable.UNREADABLE, "a change stream has no result to cache"),
}


class Count(NamedTuple):
    """What `count_documents` asked for before the driver turned it into a pipeline."""

    filter: Mapping[str, Any]
    skip: int
    limit: int


def stages(pipeline: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Every stage as (name, argument), those of nested pipelines included."""
    for stage in pipeline:
        for name, argument in stage.items():
            yield name, argument
            for nested in _nested(name, argument):
                yield from stages(nested)


def _nested(name: str, argument: Any) -> Iterator[Sequence[Mapping[str, Any]]]:
    if not isinstance(argument, Mapping):
        return
    if name == "$facet":
        yield from argument.values()
    elif name in ("$lookup", "$unionWith") and argument.get("pipeline"):
        yield argument["pipeline"]


def refusals(pipeline: Sequence[Mapping[str, Any]]) -> Iterator[Reason]:
    """Why the result of this pipeline cannot be invalidated by writes."""
    for name, _ in stages(pipeline):
        if name in _REFUSED_STAGES:
            yield _REFUSED_STAGES[name]
        elif name not in READING_STAGES:
            yield Reason(Uncacheable.UNREADABLE, f"stage {name}")


def foreign_namespaces(pipeline: Sequence[Mapping[str, Any]], database: str) -> frozenset[str]:
    """The other collections that the pipeline reads, as `database.collection`."""
    found = set()
    for name, argument in stages(pipeline):
        source: Any = None
        where = database
        if name == "$unionWith":
            source = argument.get("coll") if isinstance(argument, Mapping) else argument
        elif name in ("$lookup", "$graphLookup"):
            source = argument.get("from")
        if isinstance(source, Mapping):
            where, source = source.get("db", database), source.get("coll")
        if isinstance(argument, Mapping) and isinstance(argument.get("db"), str):
            where = argument["db"]
        if isinstance(source, str):
            found.add(f"{where}.{source}")
    return frozenset(found)


def as_count(pipeline: Sequence[Mapping[str, Any]]) -> Count | None:
    """The count that this pipeline is, if it is exactly what the driver's `count_documents` sends."""
    rest = list(pipeline)
    if len(rest) < 2 or rest.pop() != {"$group": {"_id": 1, "n": {"$sum": 1}}}:
        return None
    match = rest.pop(0)
    if list(match) != ["$match"]:
        return None
    skip = limit = 0
    if rest and list(rest[0]) == ["$skip"]:
        skip = rest.pop(0)["$skip"]
    if rest and list(rest[0]) == ["$limit"]:
        limit = rest.pop(0)["$limit"]
    return None if rest else Count(match["$match"], skip, limit)
