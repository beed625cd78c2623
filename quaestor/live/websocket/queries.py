"""Queries of subscriptions: from a message and the rights of its sender to a query that the grid maintains."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.pipelines import permitted_pipeline
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.requests import Subscribe
from quaestor.model import Operation, Query
from quaestor.realtime.notices import DeliveryMode
from quaestor.rest.access import Action, addressable
from quaestor.rest.filters import parse_filter, parse_sort
from quaestor.rest.problems import not_found
from quaestor.rest.rights import Rights


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedResult:
    """Result that a subscription asks for. Equal ones are followed once in a process.

    bounded: whether a limit of the query bounds its rows.
    poll_interval_ms: the result is read again at most once in this time, if the client wants a limit of its own.
    """

    query: Query
    delivery: DeliveryMode
    bounded: bool
    poll_interval_ms: int | None = None


def wanted_result(message: Subscribe, *, database: str, rights: Rights, limits: SocketLimits) -> WantedResult:
    """The result that a message asks for, with what its sender may not see taken out by the filter.

    Raises ProtocolError or Problem: 400 for what is malformed, 404 for a collection that the sender may not read. 403 for other
    collections that a pipeline may not read.
    """
    if not addressable(message.bucket) or not rights.may(message.bucket, Action.READ):
        raise not_found()
    namespace = f"{database}.{message.bucket}"
    delivery, poll_ms = DeliveryMode(message.delivery), _poll_interval_ms(message.poll, limits.poll_interval_ms)
    collation = None if message.collation is None else message.collation.model_dump(exclude_none=True)
    if message.pipeline is not None:
        stages = permitted_pipeline(message.pipeline, database=database, rights=rights, limits=limits)
        query = Query(
            namespace=namespace, operation=Operation.AGGREGATE, filter={}, pipeline=stages, collation=collation
        )
        return WantedResult(query=query, delivery=delivery, bounded=False, poll_interval_ms=poll_ms)
    given = parse_filter(message.query, limits.query)
    sort = parse_sort(message.sort, limits.query) if message.sort else ()
    ordered = bool(sort or message.offset or message.limit or given.ordered)
    by_distance = given.ordered and not sort
    if ordered and not by_distance and not any(path == "_id" for path, _ in sort):
        sort = (*sort, ("_id", 1))
    offset, rows = message.offset or 0, limits.rows_of.get(message.bucket, limits.rows)
    if offset >= rows:
        raise ProtocolError(400, f"offset: {offset} is out of range; at most {rows - 1}")
    room = rows - offset
    query = Query(
        namespace=namespace,
        operation=Operation.FIND,
        filter=rights.guarded(given.document, "read"),
        sort=sort,
        skip=offset,
        limit=min(message.limit or room, room) if ordered else 0,
        collation=collation,
    )
    return WantedResult(query=query, delivery=delivery, bounded=ordered, poll_interval_ms=poll_ms)


def _poll_interval_ms(wanted_ms: int, unit_ms: int) -> int | None:
    """The wanted interval, raised to a doubling of the unit: subscriptions with few different intervals share their events."""
    interval_ms = unit_ms
    while interval_ms < wanted_ms:
        interval_ms *= 2
    return interval_ms if wanted_ms else None
