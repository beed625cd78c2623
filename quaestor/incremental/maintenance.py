"""Maintenance plan of one query: the first reads, the sequence of stages, the form of the result.

The plan is made once from the query; `dataflow.py` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from quaestor.model import Document, Query
from quaestor.query.paths import Matcher

if TYPE_CHECKING:
    from quaestor.incremental.changes import Row, Stage
    from quaestor.incremental.sorting import WindowRules


class PriorState(StrEnum):
    """Source of a record's state before a write: whether it counted, and with which values."""

    MEMBERSHIP = "membership"
    """Every record's contribution is remembered. Works with any collection. Images may come more than once, and may already be
    contained in the first read."""
    BEFORE_IMAGES = "before-images"
    """The write holds the state; nothing is remembered for a record. For counts, groups, distinct values and unordered finds.
    Windows and joins hold their records in any case, and use membership. Needs exact images before and after every write
    (`changeStreamPreAndPostImages`), each once, and a snapshot for the first read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignSide:
    """Joined collection of a maintained query.

    matches: decides which of its records can be partners.
    query: reads these records.
    """

    namespace: str
    matches: Matcher
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """Recomputation of a query that cannot be maintained.

    reason: why it cannot, a sentence.
    ordered: the rows have an order.
    foreign: the records of other collections whose writes concern the result, one query for each read.
    """

    reason: str
    ordered: bool
    foreign: tuple[Query, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Maintenance:
    """Plan by which the result of one query is maintained.

    prior_state: source of a record's state before a write.
    stages: makers of the stages, in order; empty for plain filters.
    lookups: joined collection of each `$lookup` stage, by its place among the stages.
    own: reads the records of the result, without slack.
    condition: filter of the namespace's records that concern the result.
    matches: the same filter, compiled.
    window: None for a result without order.
    sliding: the window knows only a stretch of the matching records.
    present: form of a shown row without a window.
    records: rows are records of the namespace, by their `_id`.
    compact: `own` returns contributions by group with their numbers of records, instead of records.
    kept: False if the rows are not kept anywhere.
    recomputation: of a query that is read again after each concerned write; None: the result is maintained.
    """

    query: Query
    prior_state: PriorState
    matches: Matcher
    own: Query
    condition: Document
    stages: tuple[Callable[[], Stage], ...] = ()
    lookups: dict[int, ForeignSide] = field(default_factory=dict)
    window: WindowRules | None = None
    sliding: bool = False
    present: Callable[[Row], Any] = lambda row: row
    records: bool = True
    compact: bool = False
    kept: bool = True
    recomputation: Recomputation | None = None

    @property
    def namespaces(self) -> frozenset[str]:
        """Namespaces whose writes concern the result."""
        return frozenset({self.query.namespace, *(query.namespace for query in self.watched())})

    @property
    def ordered(self) -> bool:
        """Whether the rows have an order."""
        return self.window is not None if self.recomputation is None else self.recomputation.ordered

    def bootstrap(self, slack: int) -> Query:
        """Return the query for the first read: offset, window and the slack behind it, or all matching records."""
        if self.window is None or not self.sliding:
            return self.own
        return replace(self.own, limit=self.window.end + slack)

    def foreign(self) -> tuple[Query, ...]:
        """Return the queries that read the joined collections, one for each."""
        queries: dict[str, Query] = {}
        for side in self.lookups.values():
            known = queries.get(side.namespace)
            queries[side.namespace] = (
                side.query if known is None else replace(known, filter={"$or": [known.filter, side.query.filter]})
            )
        return tuple(queries.values())

    def watched(self) -> tuple[Query, ...]:
        """Return the records of other collections whose writes concern the result, as queries."""
        return self.foreign() if self.recomputation is None else self.recomputation.foreign
