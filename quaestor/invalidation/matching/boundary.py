"""Boundary of a limited result: a record behind the last member does not change the result.

The boundary is the last member's sort key. Where the filter itself gives the order (`$near`, `$text` by score), it is the
distance or score. Quaestor and mongod both compute those in floating point, so a nearly equal distance does not count as
farther.
"""

from __future__ import annotations

from typing import Any, Final

from quaestor.errors import QueryError, UncertainMatchError
from quaestor.model import Document, Registration
from quaestor.planning.plan_cache import plan_of
from quaestor.planning.plan_parts import Window
from quaestor.planning.rules import Rules
from quaestor.query.ranking import Rank
from quaestor.query.sorting import sort_key

_RELATIVE: Final = 1e-6
_ABSOLUTE: Final = 1e-9


class Farthest:
    """Boundary of a result in the order of a rank (distance or score)."""

    __slots__ = ("_limit", "_rank")

    def __init__(self, rank: Rank, last: float) -> None:
        self._rank = rank
        self._limit = last + abs(last) * _RELATIVE + _ABSOLUTE

    def excludes(self, record: Document) -> bool:
        """Whether the record stands behind the boundary. Raises UncertainMatchError if it cannot be ranked."""
        return self._rank(record) > self._limit


def boundary_of(registration: Registration, rules: Rules) -> Any:
    """Return the boundary of a full window: a sort key, a `Farthest`, or None if every matching record counts."""
    last = registration.last
    if last is None or not rules.by_predicate or rules.window not in (Window.BOUNDARY, Window.OFFSET):
        return None
    if rules.sort:
        return sort_key(last, rules.sort)
    rank = plan_of(registration.query, keep=False).place.rank
    if rank is None:
        return None
    try:
        return Farthest(rank, rank(last))
    except (QueryError, UncertainMatchError):
        return None


def behind(boundary: Any, rules: Rules, record: Document) -> bool:
    """Whether the record stands behind the end of the window. A tie is not behind: the database may order equals freely."""
    if isinstance(boundary, Farthest):
        return boundary.excludes(record)
    return bool(sort_key(record, rules.sort) > boundary)
