"""Plans of queries that are recomputed: read again after a write that may concern them, instead of maintained.

The cells match such a query as widened: more writes count than change the result (planning/plan.py). The database executes
the query as it was asked. The difference of two readings becomes events. Rows need identities for that:

- the `_id` of a record or a group; a value of `distinct`
- the position, for a row without `_id`
- `[_id, n]` for the n-th further row with the same `_id`, counted from 1

Source: Wingerath's thesis, section 3.3.2: result recomputation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from quaestor.errors import QueryError, UnsupportedQueryError
from quaestor.incremental.events import Shown
from quaestor.incremental.maintenance import Maintenance, PriorState, Recomputation
from quaestor.incremental.planning import plan_maintenance, unambiguous
from quaestor.model import Document, Operation, Query
from quaestor.planning.followed_query import stands_for
from quaestor.planning.plan import QueryPlan, plan_query
from quaestor.planning.plan_parts import Result
from quaestor.query import aggregation, compile_query
from quaestor.query.bson_order import order_key
from quaestor.query.geo.near import near_of
from quaestor.query.text.operator import with_text_index

_VARYING: Final = frozenset(
    {"$where", "$function", "$accumulator", "$rand", "$sampleRate", "$$NOW", "$$CLUSTER_TIME", "$$USER_ROLES"}
)
"""Operators and variables whose value changes without a write."""
_ORDERING: Final = frozenset({"$sort", "$skip", "$limit", "$geoNear", "$bucket", "$bucketAuto", "$sortByCount"})
_DISORDERING: Final = frozenset({"$group", "$count", "$facet", "$unionWith", "$setWindowFields"})


def plan_following(query: Query, prior_state: PriorState = PriorState.MEMBERSHIP) -> Maintenance:
    """Return the plan by which the result of this query is followed: maintained if possible, otherwise recomputed.

    Raises:
        MalformedQueryError: mongod would refuse the query.
        UnsupportedQueryError: the result changes without writes, or the query writes; the message is the reason.
    """
    try:
        return plan_maintenance(query, prior_state)
    except UnsupportedQueryError as unsupported:
        return _recomputed(query, unsupported.reason)


def rows_of(maintenance: Maintenance, documents: Sequence[Any]) -> list[Shown]:
    """Return the rows of a reading of a recomputed query, in order. O(number of documents)."""
    query = maintenance.query
    operation = stands_for(query) or query.operation
    if operation is Operation.COUNT:
        counted = maintenance.own.operation is Operation.AGGREGATE
        number = len(documents) if not counted else documents[0]["n"] if documents else 0
        return [Shown(order_key(None), None, number)]
    rows: dict[Hashable, Shown] = {}
    for position, document in enumerate(documents):
        if operation is Operation.DISTINCT:
            identity = document = document if stands_for(query) is None else document["_id"]
        elif isinstance(document, Mapping) and "_id" in document:
            identity = document["_id"]
        else:
            identity = position
        name, further = identity, 0
        while (key := order_key(name)) in rows:
            further += 1
            name = [identity, further]
        rows[key] = Shown(key, name, document)
    return list(rows.values())


def _recomputed(query: Query, reason: str) -> Maintenance:
    _require_repeatable(query)
    plan = plan_query(query)
    own = query.namespace
    reads = [Query(namespace=own, operation=Operation.FIND, filter=_condition(plan))]
    reads += [
        Query(namespace=foreign.namespace, operation=Operation.FIND, filter=foreign.condition)
        for foreign in plan.foreign_reads
    ]
    return Maintenance(
        query=query,
        prior_state=PriorState.BEFORE_IMAGES,
        matches=lambda record: True,
        own=_executed(query),
        condition=reads[0].filter,
        records=plan.result is Result.RECORDS,
        recomputation=Recomputation(reason=reason, ordered=_is_ordered(query), foreign=tuple(reads[1:])),
    )


def _condition(plan: QueryPlan) -> Document:
    """Return the filter of the records whose writes count; {} for all. The cells can compile the filter."""
    if plan.condition is None or not plan.by_predicate:
        return {}
    try:
        compile_query(plan.condition)
    except QueryError:
        return {}
    return plan.condition


def _executed(query: Query) -> Query:
    """Return the query that the database executes: instead of a count one that a snapshot can answer."""
    near = _near(query)
    if query.operation is not Operation.COUNT:
        return query if near and not query.sort else unambiguous(query)
    if near:
        return replace(query, operation=Operation.FIND, projection={"_id": 1})
    stages: list[Document] = [{"$match": query.filter}]
    if query.skip:
        stages.append({"$skip": query.skip})
    if query.limit:
        stages.append({"$limit": query.limit})
    return replace(query, operation=Operation.AGGREGATE, filter={}, pipeline=(*stages, {"$count": "n"}))


def _is_ordered(query: Query) -> bool:
    if query.operation is Operation.FIND:
        return bool(query.sort or query.skip or query.limit) or _near(query)
    ordered = False
    for stage in query.pipeline:
        ordered = (ordered or bool(_ORDERING & stage.keys())) and not _DISORDERING & stage.keys()
    return ordered


def _near(query: Query) -> bool:
    """Whether the filter searches near a point, which gives the order of distance."""
    try:
        return near_of(compile_query(with_text_index(query.filter, query.text_index)).root) is not None
    except QueryError:
        return False


def _require_repeatable(query: Query) -> None:
    """Raise UnsupportedQueryError if two readings at one version may differ, or if the query writes."""
    for refusal in aggregation.refusals(query.pipeline):
        raise UnsupportedQueryError(f"{refusal.detail}: its result does not follow from writes")
    if any(path == "$natural" for path, _ in query.sort):
        raise UnsupportedQueryError("$natural: the order of storage")
    for name in _names([query.filter, list(query.pipeline), query.projection, query.let]):
        if name in _VARYING:
            raise UnsupportedQueryError(f"{name}: its result does not follow from writes")


def _names(value: Any) -> Iterable[str]:
    """Iterate over the names of operators and variables in a value."""
    if isinstance(value, str):
        if value.startswith("$$"):
            yield value.split(".", 1)[0]
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield name
            yield from _names(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _names(member)
