"""Pages of results from the result tables of channels, each group with the members that it had at the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow.compute as pc

from quaestor.channels.pages import ResultPages, ResultRow, RunPage
from quaestor.channels.runs.results import MEMBERS_AT, RECORD, ROW, RUN, Results
from quaestor.channels.subscriptions import Subscriptions, dataset_name
from quaestor.tables.catalogue import Catalogue

_MOST_PRESENT: Final = 10_000
"""Subscriptions whose presence is remembered."""


class StoredPages(ResultPages):
    """Reader of the results of channels. Use from any thread."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._subscriptions: dict[str, Subscriptions] = {}
        self._present: dict[tuple[str, str], int] = {}

    def newest(self, channel: str) -> int:
        """See ResultPages."""
        return Results(self._catalogue, channel).progress().run or 0

    def newest_filled(self, channel: str) -> int:
        """See ResultPages."""
        return Results(self._catalogue, channel).newest_filled()

    def oldest(self, channel: str) -> int:
        """See ResultPages."""
        return Results(self._catalogue, channel).oldest()

    def after(self, channel: str, broker: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """See ResultPages."""
        return list(self._pages(channel, after_run, limit, broker=broker))

    def of_subscription(self, channel: str, subscription: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """See ResultPages."""
        return list(self._pages(channel, after_run, limit, subscription=subscription))

    def has_subscription(self, channel: str, subscription: str) -> bool:
        """See ResultPages. Readers that wait ask again and again: only changes since the last time are read."""
        subscriptions = self._subscriptions_of(channel)
        key = subscriptions.dataset.partitions[0].table.location, subscription
        instant = subscriptions.present_at(subscription, self._present.get(key, -1))
        if instant is None:
            self._present.pop(key, None)
            return False
        if len(self._present) >= _MOST_PRESENT:
            self._present.clear()
        self._present[key] = instant
        return True

    def all(self, channel: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """Return the results of all brokers in the runs after a run, as `after` does."""
        return list(self._pages(channel, after_run, limit))

    def _pages(
        self, channel: str, after_run: int, limit: int, *, broker: str | None = None, subscription: str | None = None
    ) -> Iterator[RunPage]:
        results = Results(self._catalogue, channel)
        count = 0
        for run, entries in groupby(_listed(results, after_run, broker), key=lambda row: row[RUN]):
            if count >= limit:
                return
            page = RunPage(run, tuple(self._rows(channel, list(entries), subscription)))
            count += len(page.rows)
            if page.rows:
                yield page

    def _rows(
        self, channel: str, entries: Sequence[Mapping[str, Any]], subscription: str | None
    ) -> Iterator[ResultRow]:
        members = self._members(channel, entries)
        for entry in entries:
            ids = members.get(entry["target"], (entry["target"],))
            if subscription is None:
                yield ResultRow(entry[ROW], entry[RECORD], ids)
            elif subscription in ids:
                yield ResultRow(entry[ROW], entry[RECORD], (subscription,))

    def _members(self, channel: str, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, tuple[str, ...]]:
        """Return the members of the groups of a run; a target that is no group is a subscription itself."""
        groups = dict.fromkeys(entry["target"] for entry in entries)
        return self._subscriptions_of(channel).members(entries[0][MEMBERS_AT], list(groups))

    def _subscriptions_of(self, channel: str) -> Subscriptions:
        location = self._catalogue.open(dataset_name(channel)).table.location
        if location not in self._subscriptions:
            self._subscriptions[location] = Subscriptions(self._catalogue, channel, ())
        return self._subscriptions[location]


def _listed(results: Results, after_run: int, broker: str | None) -> Iterator[Mapping[str, Any]]:
    """Yield the results of the runs after a run, run by run: a run may have several files."""
    for rows in results.runs(after_run):
        if broker is not None:
            rows = rows.filter(pc.equal(rows.column("broker"), broker))
        yield from rows.sort_by([(RUN, "ascending"), (ROW, "ascending")]).to_pylist()
