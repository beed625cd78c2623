"""Pipelines whose stages read views, rewritten onto the collections below the views. Pure.

mongod runs the pipeline of a view before the stage's own. The rewritten stage does the same, where its syntax permits:

- `$unionWith`, and `$lookup` without fields: always
- `$lookup` with fields: mongod puts the equality behind the view, a rewritten stage before it. Both are the same if the view
  leaves `foreignField` as it is, and only filters, sorts and shapes records
- `$graphLookup`: if the view only filters

Any other stage stays. Its query then names the view, its definition and the collections below (`FollowedQuery`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import bson
from xxhash import xxh128_hexdigest

from quaestor.capture.text_indexes import holds_text
from quaestor.capture.views import Lookup, followed_down
from quaestor.model import Document, Query
from quaestor.planning.followed_query import followed
from quaestor.query import aggregation
from quaestor.query.encoding import OPTIONS

_BY_RECORD: Final = frozenset({"$project", "$set", "$addFields", "$unset"})
_READING: Final = frozenset({"$lookup", "$graphLookup", "$unionWith"})


def through_views(query: Query, lookup: Lookup) -> Query:
    """Return the query with its stages on collections, and with the views that stages still read. O(size of all pipelines).

    lookup: the definition of a namespace.
    """
    if not query.pipeline:
        return query
    database = query.namespace.partition(".")[0]
    pipeline = tuple(_stages(query.pipeline, database, lookup))
    views = tuple(_described(pipeline, database, lookup))
    if views:
        return followed(query, pipeline=pipeline, views=views)
    return query if pipeline == query.pipeline else replace(query, pipeline=pipeline)


def _stages(pipeline: Sequence[Document], database: str, lookup: Lookup) -> Iterator[Document]:
    for stage in pipeline:
        name, argument = next(iter(stage.items())) if len(stage) == 1 else ("", None)
        if name == "$facet" and isinstance(argument, Mapping):
            yield {name: {branch: list(_stages(inner, database, lookup)) for branch, inner in argument.items()}}
        elif name in _READING and isinstance(argument, str | Mapping):
            yield {name: _read(name, argument, database, lookup)}
        else:
            yield stage


def _read(name: str, argument: Any, database: str, lookup: Lookup) -> Any:
    """Return the argument of a reading stage on a collection; on the view, if its syntax permits nothing else."""
    key = "coll" if name == "$unionWith" else "from"
    source = argument if isinstance(argument, str) else None if "db" in argument else argument.get(key)
    inner = () if isinstance(argument, str) else tuple(argument.get("pipeline") or ())
    base, below = followed_down(f"{database}.{source}", lookup) if isinstance(source, str) else ("", ())
    rewritten: dict[str, Any] = {} if isinstance(argument, str) else dict(argument)
    is_view = isinstance(source, str) and base != f"{database}.{source}"
    if is_view and not _passes(name, argument, below):
        return argument
    if is_view and name == "$graphLookup":
        conditions = [stage["$match"] for stage in below]
        restriction = [*conditions, *filter(None, [argument.get("restrictSearchWithMatch")])]
        rewritten["restrictSearchWithMatch"] = aggregation.all_of(restriction)
    elif is_view or inner:
        rewritten["pipeline"] = list(_stages((*below, *inner), database, lookup))
    if is_view:
        rewritten[key] = base.partition(".")[2]
    return rewritten or argument


def _passes(name: str, argument: Any, below: Sequence[Document]) -> bool:
    """Whether the stage may read the collection and run the view's pipeline itself."""
    names = {next(iter(stage)) for stage in below}
    if name != "$unionWith" and any(holds_text(stage.get("$match", {})) for stage in below):
        return False  # a text search has to come first
    if name == "$graphLookup":
        return names <= {"$match"}
    if name == "$unionWith" or argument.get("foreignField") is None:
        return True
    shaping = [stage for stage in below if next(iter(stage)) in _BY_RECORD]
    path = argument["foreignField"]
    return names <= _BY_RECORD | {"$match", "$sort"} and isinstance(path, str) and aggregation.shows(shaping, path)


def _described(pipeline: Sequence[Document], database: str, lookup: Lookup) -> Iterator[Document]:
    """Iterate over the views that these stages read: name, collections below, identity of the definition."""
    for namespace in sorted(aggregation.foreign_namespaces(pipeline, database)):
        if followed_down(namespace, lookup)[0] != namespace:
            reads, definitions = _below(namespace, lookup)
            digest = xxh128_hexdigest(bson.encode({"": definitions}, codec_options=OPTIONS))
            yield {"view": namespace, "reads": sorted(reads), "definition": digest}


def _below(namespace: str, lookup: Lookup) -> tuple[set[str], list[Any]]:
    """Return the collections that a view reads, also through other views, and all pipelines on the way."""
    reads: set[str] = set()
    definitions: list[Any] = []
    seen: set[str] = set()
    waiting = [namespace]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        base, stages = followed_down(name, lookup)
        reads.add(base)
        definitions.append([name, base, list(stages)])
        waiting += sorted(aggregation.foreign_namespaces(stages, base.partition(".")[0]))
    return reads, definitions
