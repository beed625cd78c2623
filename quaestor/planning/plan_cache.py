"""Cache of the plans that were made lately.

A handler asks the same queries again and again, and a plan is a pure function of its query.
"""

from __future__ import annotations

from typing import Final

import bson
from bson.errors import BSONError

from quaestor.model import Query
from quaestor.planning.plan import QueryPlan, plan_query
from quaestor.query.encoding import OPTIONS

_MOST: Final = 1_000
_LARGEST: Final = 2_048
"""Bytes of a query whose plan is kept; a plan takes a few times as much."""
_known: dict[bytes, QueryPlan] = {}


def plan_of(query: Query, *, keep: bool = True) -> QueryPlan:
    """The plan of this query, as by plan_query, whose errors it raises. Thread-safe.

    O(size of the query), little if it was asked before.

    keep: whether a plan that is made now is remembered.
    """
    try:
        name = bson.encode(
            {
                "": [
                    query.namespace, query.operation.value, query.filter, list(query.sort), query.skip, query.limit,
                    query.projection, list(query.pipeline), query.distinct_key, query.collation, query.let, query.text_index,
                    query.widened, list(query.index_keys),
                ]
            },
            codec_options=OPTIONS,
        )  # fmt: skip
    except (BSONError, TypeError, ValueError, OverflowError):
        return plan_query(query)
    plan = _known.get(name)
    if plan is None:
        plan = plan_query(query)
        if keep and len(name) <= _LARGEST:
            if len(_known) >= _MOST:
                _known.clear()
            _known[name] = plan
    return plan
