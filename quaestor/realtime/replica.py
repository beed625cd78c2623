"""Replica of a subscribed query's result in an app process: taken over from its stage once, then kept by the changes.

No I/O, not thread-safe.
"""

from __future__ import annotations

from typing import Any

from quaestor.incremental import ResultEvent
from quaestor.incremental.events import differences
from quaestor.realtime.messages import FullResult, ResultChange
from quaestor.realtime.notices import Step
from quaestor.realtime.rows import OutOfStepError, ResultRows


class Replica:
    """Replica of one result. Every change is applied once, in order, whatever is delivered again.

    known: whether there is a result.
    epoch, sequence: of the newest change that it contains.
    newest: version of the newest write that it may contain.
    """

    def __init__(self, subscription_id: str) -> None:
        self.known = False
        self.epoch = ""
        self.sequence = 0
        self.newest = 0
        self._subscription_id = subscription_id
        self._rows = ResultRows()

    @property
    def ordered(self) -> bool:
        """Whether the rows have an order."""
        return self._rows.ordered

    @property
    def step(self) -> Step:
        """Position of the result."""
        return Step(epoch=self.epoch, sequence=self.sequence, version=self.newest)

    def reset(self, subscription_id: str) -> None:
        """Distrust the known result: the next full result for this subscription replaces it, reported as differences."""
        self._subscription_id = subscription_id
        self.known, self.epoch, self.sequence = False, "", 0

    def rows(self) -> tuple[tuple[Any, Any], ...]:
        """Key and document of each row, in order if the query has one. O(their number)."""
        return tuple((row.id, row.document) for row in self._rows)

    def replace(self, full: FullResult) -> list[ResultEvent] | None:
        """Take over the full result if it is newer, and return the events that lead to it. None: it is not newer."""
        named = full.subscription_ids is not None and self._subscription_id in full.subscription_ids
        newer = (full.epoch, full.sequence) > (self.epoch, self.sequence)
        if not (newer if self.known else named):
            return None
        rows = ResultRows(full.rows, ordered=full.ordered)
        events = differences(list(self._rows), list(rows), ordered=full.ordered)
        self.known, self.epoch, self.sequence, self._rows = True, full.epoch, full.sequence, rows
        self.newest = max(self.newest, full.version)
        return events

    def apply(self, change: ResultChange) -> tuple[ResultEvent, ...]:
        """Apply one change; one that is contained already is passed over, and those of other epochs.

        Raises OutOfStepError if it does not follow on what is known; the full result is needed then.
        """
        if not self.known or change.epoch != self.epoch or change.sequence <= self.sequence:
            return ()
        if change.sequence != self.sequence + 1:
            raise OutOfStepError(f"step {change.sequence} does not follow on step {self.sequence}")
        for place, event in enumerate(change.events):
            try:
                self._rows.apply(event)
            except OutOfStepError as error:
                error.applied = change.events[:place]
                raise
        self.sequence = change.sequence
        self.newest = max(self.newest, change.version)
        return change.events
