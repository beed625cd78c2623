"""Cache of recent plans.

A handler sends the same queries again and again, and a plan is a pure function of its query.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import bson
from bson.errors import BSONError

from quaestor.model import Query
from quaestor.planning.followed_query import stands_for, views_of
from quaestor.planning.plan import QueryPlan, plan_query
from quaestor.planning.plan_shapes import PlanTemplate, shape_of
from quaestor.query.encoding import OPTIONS

_MOST: Final = 1_000
_LARGEST: Final = 2_048
"""Largest query in bytes whose plan is kept; a plan takes a few times as much."""
_known: dict[bytes, QueryPlan] = {}
_MOST_SHAPES: Final = 256
_NEVER_SEEN: Final = object()
_SEEN_ONCE: Final = object()
_shapes: dict[Hashable, PlanTemplate | object | None] = {}
"""Templates by shape; None: every query of the shape is planned in full."""
_MOST_LATEST: Final = 256
_latest: dict[int, tuple[Query, QueryPlan]] = {}
"""Plans by the identity of the query: a registered query is looked up about five times in a row."""


def plan_of(query: Query, *, keep: bool = True) -> QueryPlan:
    """Return the plan of this query, like plan_query, whose errors it raises. Thread-safe.

    O(size of the query), little for a repeated query.

    keep: whether a plan that is made now is remembered. The template of its shape is remembered in either case.
    """
    latest = _latest.get(id(query))
    if latest is not None and latest[0] is query:
        return latest[1]
    try:
        name = bson.encode(
            {
                "": [
                    query.namespace, query.operation.value, query.filter, list(query.sort), query.skip, query.limit,
                    query.projection, list(query.pipeline), query.distinct_key, query.collation, query.let, query.text_index,
                    query.widened, list(query.index_keys), query.clock, list(views_of(query)),
                    stands_for(query) and str(stands_for(query)),
                ]
            },
            codec_options=OPTIONS,
        )  # fmt: skip
    except (BSONError, TypeError, ValueError, OverflowError):
        return plan_query(query)
    plan = _known.get(name)
    if plan is None:
        plan = plan_query(query) if len(name) > _LARGEST else _by_shape(query)
        if keep and len(name) <= _LARGEST:
            if len(_known) >= _MOST:
                _known.clear()
            _known[name] = plan
    if keep and len(name) <= _LARGEST:
        if len(_latest) >= _MOST_LATEST:
            _latest.clear()
        _latest[id(query)] = query, plan
    return plan


def _by_shape(query: Query) -> QueryPlan:
    """Return the plan of a query, from another plan of its shape if there is one.

    The second query of a shape makes the template: many shapes never come again.
    """
    shape = shape_of(query)
    if shape is None:
        return plan_query(query)
    template = _shapes.get(shape, _NEVER_SEEN)
    if isinstance(template, PlanTemplate):
        return template.filled(query)
    plan = plan_query(query)
    if template is _NEVER_SEEN:
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        _shapes[shape] = _SEEN_ONCE
    elif template is _SEEN_ONCE:
        _shapes[shape] = PlanTemplate.of(query, plan)
    return plan
