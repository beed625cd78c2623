"""Planner from a query to its maintenance. Sources: InvaliDB, PVLDB 2020, section 5.2; Wingerath's thesis, section 3.3.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from quaestor.errors import UnsupportedQueryError
from quaestor.incremental.aggregation import Grouping, GroupStage, parse_group
from quaestor.incremental.changes import Row, Stage
from quaestor.incremental.contributions import counted
from quaestor.incremental.expansion import ExpansionStage, distinct_values
from quaestor.incremental.maintenance import Maintenance, PriorState
from quaestor.incremental.pipeline import by_id, plan_pipeline
from quaestor.incremental.sorting import WindowRules
from quaestor.model import Document, Operation, Query
from quaestor.planning.followed_query import stands_for, views_of
from quaestor.query import CompiledQuery, compile_query, sort_key_function
from quaestor.query.allowance import one_query
from quaestor.query.geo.near import near_of
from quaestor.query.projection import projection
from quaestor.query.sorting import parse_sort
from quaestor.query.text.operator import with_text_index

_ORDERING: Final = frozenset({"$geoNear", "$bucket", "$bucketAuto"})
"""Stages whose rows have an order, beside `$sort`."""
_DISORDERING: Final = frozenset({"$group", "$count", "$unionWith"})


@one_query()
def plan_maintenance(query: Query, prior_state: PriorState = PriorState.MEMBERSHIP) -> Maintenance:
    """Return the maintenance plan that keeps the result of this query up to date.

    Raises:
        MalformedQueryError: mongod would refuse the query.
        UnsupportedQueryError: the query cannot be maintained; the message is the reason.
    """
    if query.widened is not None:
        raise UnsupportedQueryError(query.widened)
    if query.collation is not None and query.collation.get("locale") != "simple":
        raise UnsupportedQueryError("a collation: strings compare by rules of a language")
    if query.let is not None:
        raise UnsupportedQueryError("let: variables of the command")
    if views := views_of(query):
        raise UnsupportedQueryError(f"a stage reads the view {views[0]['view']}, which computes records")
    if (operation := stands_for(query)) is not None:
        raise UnsupportedQueryError(f"{operation.value} of the computed records of a view")
    if query.operation is Operation.AGGREGATE:
        return plan_pipeline(query, prior_state)
    compiled = compile_query(with_text_index(query.filter, query.text_index))
    if near_of(compiled.root) is not None and not query.sort:
        raise UnsupportedQueryError("$near without a sort of its own: the order by distance is not maintained")
    own = Query(namespace=query.namespace, operation=Operation.FIND, filter=query.filter, text_index=query.text_index)
    if query.operation is Operation.COUNT:
        return _count(query, prior_state, compiled, own)
    if query.operation is Operation.DISTINCT:
        return _distinct(query, prior_state, compiled, own)
    return _find(query, prior_state, compiled, own)


def unambiguous(query: Query) -> Query:
    """Return the query whose result is maintained: every order ends with `_id`, and every limit and offset has an order."""
    if query.operation is Operation.AGGREGATE:
        return replace(query, pipeline=_unambiguous(query.pipeline))
    if query.operation is Operation.FIND and (query.sort or query.limit or query.skip):
        return replace(query, sort=by_id(query.sort))
    return query


def _unambiguous(pipeline: tuple[Document, ...]) -> tuple[Document, ...]:
    stages: list[Document] = []
    ordered = False
    for stage in pipeline:
        name, argument = next(iter(stage.items()))
        if name == "$sort" and isinstance(argument, Mapping):  # MongoDB refuses others
            stages.append({"$sort": dict(by_id(tuple(argument.items())))})
            ordered = True
            continue
        if name in _ORDERING:
            ordered = True
        if name in ("$skip", "$limit") and not ordered:
            stages.append({"$sort": {"_id": 1}})
            ordered = True
        if name in _DISORDERING:
            ordered = False
        if name == "$lookup" and isinstance(argument, Mapping) and argument.get("pipeline"):
            stages.append({"$lookup": {**argument, "pipeline": list(_unambiguous(tuple(argument["pipeline"])))}})
            continue
        if name == "$sortByCount":
            stages += [{"$group": {"_id": argument, "count": {"$sum": 1}}}, {"$sort": {"count": -1, "_id": 1}}]
            ordered = True
            continue
        stages.append(stage)
    return tuple(stages)


def _find(query: Query, prior_state: PriorState, compiled: CompiledQuery, own: Query) -> Maintenance:
    if any(path == "$natural" for path, _ in query.sort):
        raise UnsupportedQueryError("$natural: the order of storage")
    present = _presentation(query.projection)
    if not (query.sort or query.limit or query.skip):
        kept = prior_state is PriorState.MEMBERSHIP
        return Maintenance(
            query=query,
            prior_state=prior_state,
            matches=compiled.matches,
            own=own,
            condition=query.filter,
            present=present,
            kept=kept,
        )
    key = sort_key_function(parse_sort(query.sort))
    return Maintenance(
        query=query,
        prior_state=PriorState.MEMBERSHIP,
        matches=compiled.matches,
        own=replace(own, sort=by_id(query.sort)) if query.limit else own,
        condition=query.filter,
        window=WindowRules(sort_key=key, present=present, skip=query.skip, limit=query.limit or None),
        sliding=bool(query.limit),
    )


def _presentation(specification: Mapping[str, Any] | None) -> Callable[[Row], Any]:
    if not specification:
        return _whole
    step = projection(specification)
    return lambda row: step(row, None)


def _whole(row: Row) -> Any:
    return row


def _count(query: Query, prior_state: PriorState, compiled: CompiledQuery, own: Query) -> Maintenance:
    parsed = parse_group({"_id": None, "n": {"$sum": 1}}, order=None)
    grouping = Grouping(group_id=parsed.group_id, fields=parsed.fields, always=True)
    skip, limit = query.skip, query.limit

    def number(row: Row) -> int:
        left = max(0, int(row["n"]) - skip)
        return min(limit, left) if limit else left

    compact = prior_state is PriorState.BEFORE_IMAGES
    return Maintenance(
        query=query,
        prior_state=prior_state,
        matches=compiled.matches,
        own=counted(query) if compact else replace(own, projection={"_id": 1}),
        condition=query.filter,
        stages=(lambda: GroupStage(grouping),),
        present=number,
        records=False,
        compact=compact,
    )


def _distinct(query: Query, prior_state: PriorState, compiled: CompiledQuery, own: Query) -> Maintenance:
    expand = distinct_values(query.distinct_key or "")
    grouping = parse_group({"_id": "$value"}, order=None)
    stages: tuple[Callable[[], Stage], ...] = (lambda: ExpansionStage(expand), lambda: GroupStage(grouping))
    return Maintenance(
        query=query,
        prior_state=prior_state,
        matches=compiled.matches,
        own=own,
        condition=query.filter,
        stages=stages,
        present=lambda row: row["_id"],
        records=False,
    )
