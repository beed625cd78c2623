"""Aggregation pipelines: the stages that capture knows, their reads of other collections, and counts in the form of a
pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quaestor.model import Reason, Uncacheable

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


@dataclass(frozen=True, slots=True)
class Plain:
    """A pipeline that does no more than a find or a count."""

    filter: Mapping[str, Any]
    sort: Mapping[str, Any]
    skip: int
    limit: int
    projection: Mapping[str, Any] | None
    rest: tuple[Mapping[str, Any], ...]


_COUNTING = {"$group": {"_id": 1, "n": {"$sum": 1}}}
"""The stage with which `count_documents` ends its pipeline."""


def stages(pipeline: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Iterate over every stage as (name, argument), including the stages of nested pipelines."""
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
    """Iterate over the reasons why writes cannot invalidate the result of this pipeline."""
    for name, _ in stages(pipeline):
        if name in _REFUSED_STAGES:
            yield _REFUSED_STAGES[name]
        elif name not in READING_STAGES:
            yield Reason(Uncacheable.UNREADABLE, f"stage {name}")


def foreign_namespaces(pipeline: Sequence[Mapping[str, Any]], database: str) -> frozenset[str]:
    """Return the other collections that the pipeline reads, as `database.collection`."""
    namespaces = set()
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
            namespaces.add(f"{where}.{source}")
    return frozenset(namespaces)


def as_count(pipeline: Sequence[Mapping[str, Any]]) -> Plain | None:
    """Return the equivalent count, if the pipeline is exactly the one that the driver's `count_documents` sends."""
    plain = _plain(pipeline)
    if plain is None or plain.rest != (_COUNTING,) or plain.sort or plain.projection is not None:
        return None
    return plain if pipeline[0].keys() == {"$match"} else None


def as_find(pipeline: Sequence[Mapping[str, Any]]) -> Plain | None:
    """Return the equivalent find, if the pipeline only filters, sorts, skips, limits and shows or hides fields, in this order."""
    plain = _plain(pipeline)
    return None if plain is None or plain.rest else plain


def as_rows(pipeline: Sequence[Mapping[str, Any]]) -> Plain | None:
    """Return the find with the same records in the same order, each under its own `_id`; None if there is none.

    Its `rest` then only changes the shown fields of single records (`$project`, `$set`, `$unset`, `$lookup`, `$graphLookup`).
    Such stages may stand anywhere: the sort uses the records' own fields.
    """
    filters: list[Any] = []
    rest: list[Mapping[str, Any]] = []
    sort: Mapping[str, Any] = {}
    window = _Window()
    for stage in pipeline:
        if len(stage) != 1:
            return None
        ((name, argument),) = stage.items()
        if name in ("$skip", "$limit"):
            window = window.then(name, int(argument))
        elif _keeps_id(name, argument):
            rest.append(stage)
        elif window.cuts:
            return None
        elif name == "$match" and not rest:
            filters.append(argument)
        elif name == "$sort" and not sort and all(shows(rest, path) for path in argument):
            sort = argument
        else:
            return None
    if window.empty:
        return None
    return Plain(all_of(filters), sort, window.start, window.length, None, tuple(rest))


class _Window(NamedTuple):
    """The positions from `start` up to `end`, exclusive; None: to the last."""

    start: int = 0
    end: int | None = None

    def then(self, stage: str, number: int) -> _Window:
        if stage == "$skip":
            return self._replace(start=self.start + number)
        end = self.start + number
        return self._replace(end=end if self.end is None else min(end, self.end))

    @property
    def cuts(self) -> bool:
        return self.start > 0 or self.end is not None

    @property
    def empty(self) -> bool:
        return self.end is not None and self.end <= self.start

    @property
    def length(self) -> int:
        """Number of positions; 0: without end."""
        return 0 if self.end is None else self.end - self.start


def _keeps_id(name: str, argument: Any) -> bool:
    if name == "$unset":
        paths = [argument] if isinstance(argument, str) else argument
    elif not isinstance(argument, Mapping):
        return False
    elif name == "$project":
        return whole_id(argument)
    elif name in ("$set", "$addFields"):
        paths = list(argument)
    elif name in ("$lookup", "$graphLookup"):
        paths = [argument.get("as", "_id")]
    else:
        return False
    return all(isinstance(path, str) and path.split(".", 1)[0] != "_id" for path in paths)


def whole_id(projection: Mapping[str, Any] | None) -> bool:
    """Whether `_id`, if the projection shows it, is the record's own."""
    if not projection:
        return True
    if any(path.startswith("_id.") for path in projection):
        return False
    return isinstance(projection.get("_id", 1), bool | int | float)


def _plain(pipeline: Sequence[Mapping[str, Any]]) -> Plain | None:
    """Return the longest beginning that is a find, and the rest. None if a window in it is always empty."""
    rest = list(pipeline)

    def take(*stages: str) -> Any:
        return (
            next(iter(rest.pop(0).items()))
            if rest and len(rest[0]) == 1 and not rest[0].keys().isdisjoint(stages)
            else None
        )

    filters = []
    while (stage := take("$match")) is not None:
        filters.append(stage[1])
    stage = take("$sort")
    sort: Mapping[str, Any] = {} if stage is None else stage[1]
    while (stage := take("$match")) is not None:
        filters.append(stage[1])
    window = _Window()
    while (stage := take("$skip", "$limit")) is not None:
        window = window.then(stage[0], int(stage[1]))
    if window.empty:
        return None
    projection = None
    if rest and rest[0].keys() == {"$project"} and _only_switches(rest[0]["$project"]):
        projection = rest.pop(0)["$project"]
    return Plain(all_of(filters), sort, window.start, window.length, projection, tuple(rest))


def _only_switches(projection: Mapping[str, Any]) -> bool:
    return all(isinstance(value, bool | int | float) for value in projection.values())


def all_of(filters: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return one filter that holds where all of these hold."""
    some = [condition for condition in filters if condition]
    return {"$and": some} if len(some) > 1 else some[0] if some else {}


def shows(dressing: Sequence[Mapping[str, Any]], path: str) -> bool:
    """Whether records dressed by these stages certainly show this path as the collection has it."""
    field = path.split(".", 1)[0]
    return all(_leaves(*next(iter(stage.items())), field) for stage in dressing)


def _leaves(name: str, argument: Any, field: str) -> bool:
    if name == "$project":
        return projects(argument, field)
    if name == "$unset":
        paths = [argument] if isinstance(argument, str) else argument
    else:
        paths = [argument["as"]] if name in ("$lookup", "$graphLookup") else list(argument)
    return all(path.split(".", 1)[0] != field for path in paths)


def projects(projection: Mapping[str, Any] | None, field: str) -> bool:
    """Whether a projection certainly leaves this field of the record as it is."""
    if not projection:
        return True
    if isinstance(own := projection.get(field, field == "_id"), bool | int | float) and own:
        return not any(path.startswith(f"{field}.") for path in projection)
    switches = {
        path: value
        for path, value in projection.items()
        if not (isinstance(value, Mapping) and list(value) == ["$meta"] and path.split(".", 1)[0] != field)
    }
    if not all(isinstance(value, bool | int | float) for value in switches.values()):
        return False  # computed fields, $slice, $elemMatch: they may rename or cut the needed field
    if any(value for path, value in switches.items() if path != "_id"):
        return bool(switches.get(field))  # inclusion
    return all(path.split(".", 1)[0] != field for path in switches)  # exclusion
