"""Maintenance plan of one query: what is read to begin with, which stages follow one another, what the result is.

Made once from the query; `dataflow.py` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from quaestor.incremental.changes import Row, Stage
from quaestor.incremental.sorting import WindowRules
from quaestor.model import Document, Query
from quaestor.query.paths import Matcher


class PriorState(StrEnum):
    """Source of a record's state before a write: whether it counted, and with what."""

    MEMBERSHIP = "membership"
    """What every record contributes is remembered. Works with any collection; images may come more than once, and may
    already be contained in what the result was built from."""
    BEFORE_IMAGES = "before-images"
    """The write says it; nothing is remembered for a record. For counts, groups, distinct values and unordered finds; windows
    and joins hold their records in any case and go by membership. Needs exact images before and after every write
    (`changeStreamPreAndPostImages`), each once, and a snapshot read to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignSide:
    """Joined collection of a maintained query.

    matches: which of its records can be partners.
    query: reads those.
    """

    namespace: str
    matches: Matcher
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Maintenance:
    """Plan by which the result of one query is maintained.

    prior_state: how it is known what a record was before a write.
    stages: make a new stage each, in order; empty for plain filters.
    lookups: the joined collection of each stage that is a `$lookup`, by its place among the stages.
    own: reads what the result is built from, without slack.
    condition: the filter that says which records of the namespace concern it.
    matches: the same, compiled.
    window: None for a result without order.
    sliding: the window knows only a stretch of what matches.
    present: what is shown of a row where there is no window.
    records: rows are records of the namespace, by their `_id`.
    compact: `own` yields contributions by group, with how many records make each, not records.
    kept: False if the rows are not kept anywhere.
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

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces whose writes concern the result."""
        return frozenset({self.query.namespace, *(side.namespace for side in self.lookups.values())})

    def bootstrap(self, slack: int) -> Query:
        """The query that reads what the result is built from: offset, window and so much slack behind it, or all that matches."""
        if self.window is None or not self.sliding:
            return self.own
        return replace(self.own, limit=self.window.end + slack)

    def foreign(self) -> tuple[Query, ...]:
        """The queries that read the joined collections, one for each."""
        queries: dict[str, Query] = {}
        for side in self.lookups.values():
            known = queries.get(side.namespace)
            queries[side.namespace] = (
                side.query if known is None else replace(known, filter={"$or": [known.filter, side.query.filter]})
            )
        return tuple(queries.values())
