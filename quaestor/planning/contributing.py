"""Contributing records of a result: records that decide a result without being shown, and are needed to judge writes.

A count shows none of its counted records, a page none of its skipped ones, and a distinct no holder of its values. A
projection without `_id` hides the members, and one without the sort's fields hides where the last one stands. A computing
projection hides its inputs. Before-images show such records only for single writes, and MongoDB records images only where they
are enabled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import bson

from quaestor.model import Contributors, Document, Operation, Query, Registration, Version
from quaestor.planning.member_digests import member_digest
from quaestor.planning.plan import QueryPlan
from quaestor.planning.plan_parts import Result, Window
from quaestor.planning.rules import rules_of
from quaestor.query.aggregation import projects
from quaestor.query.encoding import OPTIONS

_ID: dict[str, int] = {"_id": 1}
_MOST_DIGESTED: Final = 200


def contributing(plan: QueryPlan, registration: Registration, *, images: bool, most: int) -> Query | None:
    """Return the find that reads the records which contribute to a registered result; None if they would not help.

    images: the collection records pre- and post-images.
    most: upper bound of the records; a find that would need more is None, or finds `most + 1`.
    """
    if plan.place.rank is not None or plan.query.text_index is not None or plan.condition is None:
        return None
    if not plan.by_predicate:
        return None if images or plan.result is Result.RECORDS else _inputs(plan, most=most)
    if plan.result is Result.RECORDS:
        return _window(plan, registration, images=images, most=most)
    find = _find(plan, limit=most + 1, projection=_ID)
    if plan.result is Result.VALUES:
        field = (plan.query.distinct_key or "").split(".", 1)[0]
        return replace(find, projection={**_ID, field: 1})
    if plan.result is not Result.COUNT or (images and not bounded(plan.query)):
        return None
    return find


def _inputs(plan: QueryPlan, *, most: int) -> Query | None:
    """Return the find of all records that may count for a widened result, with the fields it reads; None if it reads all."""
    if plan.relevant.visible.hidden is not None or not plan.condition:
        return None
    fields = dict.fromkeys((path.split(".", 1)[0] for path in plan.relevant.visible.shown), 1)
    return _find(plan, limit=most + 1, projection=_ID | fields)


def bounded(query: Query) -> bool:
    """Whether a count stops at a limit, or begins after an offset."""
    return query.operation is Operation.COUNT and bool(query.skip or query.limit)


def contributors_of(
    plan: QueryPlan, registration: Registration, records: list[Document], *, version: Version, images: bool, most: int
) -> Contributors | None:
    """Return the contributors, from the records that `contributing` found at this version; None if they are not sufficient.

    The records must include the members that a result shows: where the order leaves members open, another read may find others.
    """
    complete = len(records) <= most
    if not plan.by_predicate and not complete:
        return None
    if plan.result is not Result.RECORDS:
        capped = plan.query.limit and plan.query.skip + plan.query.limit <= most and bounded(plan.query)
        if not complete and not capped:
            return None
        return Contributors(version=version, records=tuple(records[:most]), complete=complete)
    if not complete:
        return None
    members = registration.members
    if unplaced(plan):
        return _matching(plan, registration, records, version=version)
    shown = records[plan.query.skip :]
    if members is not None and [record["_id"] for record in shown] != list(members):
        return None
    ordered = members is not None or any(path == "_id" for path, _ in plan.query.sort)
    placed = ordered and _hides_order(plan) and 0 < len(shown) <= _MOST_DIGESTED
    ends = range(plan.query.skip, len(records)) if placed else {plan.query.skip, len(records) - 1}
    fields = {path.split(".", 1)[0] for path, _ in plan.query.sort} | {"_id"}
    reduced = tuple(
        {name: record[name] for name in (fields if place in ends else ("_id",)) if name in record}
        for place, record in enumerate(records)
    )
    digests: tuple[bytes, ...] = ()
    if not images and _digested(plan, registration):
        rules = rules_of(plan)
        digests = tuple(member_digest(rules, record) for record in records)
    return Contributors(version=version, records=reduced, complete=True, digests=digests, placed=placed)


def unplaced(plan: QueryPlan) -> bool:
    """Whether records are skipped in no order, so that the skipped ones are unknown."""
    return plan.window is Window.OFFSET and not plan.query.sort


def _matching(
    plan: QueryPlan, registration: Registration, records: list[Document], *, version: Version
) -> Contributors | None:
    """Return all matching records; a window without an order shows some of them."""
    keys = {_bytes(record["_id"]) for record in records}
    shown = {_bytes(member) for member in registration.members or ()}
    behind = max(0, len(records) - plan.query.skip)
    expected = min(behind, plan.query.limit) if plan.query.limit else behind
    if len(shown) != expected or not shown <= keys:
        return None
    return Contributors(version=version, records=tuple(records), complete=True)


def _bytes(key: Any) -> bytes:
    return bson.encode({"": key}, codec_options=OPTIONS)


def describe_contributors(plan: QueryPlan) -> str | None:
    """Return a description, for people, of the data kept about records that contribute to such a result; None: none."""
    query = plan.query
    if plan.place.rank is not None or query.text_index is not None or plan.condition is None:
        return None
    if not plan.by_predicate:
        known = plan.result is not Result.RECORDS and plan.relevant.visible.hidden is None and plan.condition
        return (
            "ids and digests of the records that may count, unless the collection records pre-images" if known else None
        )
    if plan.result is Result.COUNT:
        if bounded(query):
            return "ids of the records counted or skipped, and how many are to spare"
        return "ids of the records counted, unless the collection records pre-images"
    if plan.result is Result.VALUES:
        return "ids of the records that hold the values, and which"
    if plan.window is Window.OFFSET and query.sort:
        return "ids of the records skipped, and where the page begins and ends"
    if unplaced(plan):
        return "ids of the matching records, and digests of what the filter reads of them"
    if _digestible(plan) and (plan.window is Window.NONE or any(path == "_id" for path, _ in query.sort)):
        digests = "digests of what is shown of each record, unless the collection records pre-images"
        return f"{digests}, and where each stands" if _hides_order(plan) else digests
    if _hides_order(plan) and plan.window is not Window.UNORDERED:
        return "where each record stands, since what they are ordered by is hidden"
    if plan.window is Window.BOUNDARY and query.projection:
        return "where the last record stands, if the projection hides it"
    if plan.window in (Window.NONE, Window.UNORDERED) and plan.at_most != 1 and not projects(query.projection, "_id"):
        return "ids of the matching records, of which the projection does not tell who is shown"
    return None


def _digestible(plan: QueryPlan) -> bool:
    """Whether digests distinguish updates that paths do not: the result shows computed values, not made of the whole record."""
    return plan.display.computed and plan.relevant.fields.hidden is None and plan.window is not Window.UNORDERED


def _digested(plan: QueryPlan, registration: Registration) -> bool:
    """Whether digests of its members are kept. Their fields are read once more, so this holds for few members only."""
    members = plan.query.limit if registration.members is None else len(registration.members)
    return _digestible(plan) and 0 < members <= _MOST_DIGESTED


def _hides_order(plan: QueryPlan) -> bool:
    """Whether a member's sort key may change unseen: the result hides it, shows it in part, or computes from it."""
    paths = [path for path, _ in plan.query.sort if path != "_id"]
    return plan.by_predicate and plan.at_most != 1 and not all(map(plan.shows, paths))


def _placed(plan: QueryPlan, registration: Registration) -> bool:
    """Whether the place of each of its members has to be known; for few members only."""
    members = plan.query.limit if registration.members is None else len(registration.members)
    return _hides_order(plan) and 0 < members <= _MOST_DIGESTED


def _window(plan: QueryPlan, registration: Registration, *, images: bool, most: int) -> Query | None:
    query = plan.query
    digested = not images and _digested(plan, registration)
    if not _worth_reading(plan, registration) and not digested and not _placed(plan, registration):
        return None
    if not _repeatable(plan, registration):
        return None
    windowed = query.limit and plan.window is not Window.UNORDERED and not unplaced(plan)
    limit = query.skip + query.limit if windowed else most + 1
    paths = [path for path, _ in query.sort] + [*(plan.relevant.fields.shown if digested else ())]
    paths += plan.relevant.placing.shown if unplaced(plan) else ()
    fields = dict.fromkeys((path.split(".", 1)[0] for path in paths), 1)
    return None if limit > most + 1 else _find(plan, limit=limit, projection=_ID | fields)


def _worth_reading(plan: QueryPlan, registration: Registration) -> bool:
    """Whether the reply leaves open the skipped records, the members, or the place of the last one."""
    if plan.window is Window.OFFSET:
        return True
    if registration.members is None:
        return plan.at_most != 1  # otherwise the filter shows which writes may concern it
    return registration.last is None and _full(plan, registration)


def _repeatable(plan: QueryPlan, registration: Registration) -> bool:
    """Whether another read shows the contributors: among equals the database may choose others each time."""
    if any(path == "_id" for path, _ in plan.query.sort) or plan.window is Window.NONE:
        return True
    if plan.window is Window.UNORDERED:
        return registration.members is None  # any matching record may be a member
    if unplaced(plan) and plan.relevant.placing.hidden is not None:
        return False
    return registration.members is not None  # the same members, or the read shows nothing


def _full(plan: QueryPlan, registration: Registration) -> bool:
    limit = 0 if plan.window is Window.NONE else plan.query.limit
    return bool(limit) and registration.members is not None and len(registration.members) >= limit


def _find(plan: QueryPlan, *, limit: int, projection: Document) -> Query:
    sort = plan.query.sort if plan.result is Result.RECORDS else ()
    return Query(
        namespace=plan.query.namespace,
        operation=Operation.FIND,
        filter=plan.condition or {},
        sort=sort,
        limit=limit,
        projection=projection,
    )
