"""Answers with results of channels: pages that never change, the newest run, and the end of retention."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quaestor.channels.pages import ResultPages, RunPage
from quaestor.continuous.delivery.batch import moment
from quaestor.errors import ConfigurationError

_Pages = Callable[[int, int], Sequence[RunPage]]


@dataclass(frozen=True, slots=True)
class Page:
    """Answer with results.

    is_final: whether the same request always has the same answer, as long as the results are kept.
    upto: last run that the page covers.
    """

    body: bytes
    is_final: bool
    upto: int


class Reading:
    """Reading of results. Methods raise ConfigurationError for an unknown channel, DependencyError if the storage fails."""

    def __init__(self, pages: ResultPages) -> None:
        self._pages = pages

    def for_broker(self, channel: str, broker: str, *, after: int, limit: int, upto: int | None = None) -> Page:
        """Return the results for a broker in the runs after a run, and up to another one; None: up to the newest.

        limit: number of rows after which no further run is begun.
        """
        return self._page(channel, lambda run, rows: self._pages.after(channel, broker, run, rows), after, limit, upto)

    def for_subscription(
        self, channel: str, subscription: str, *, after: int, limit: int, upto: int | None = None
    ) -> Page:
        """Return the results for a subscription, as `for_broker` does.

        Raises ConfigurationError for a page without results of an unknown subscription. A removed one has its kept results.
        """

        def pages(run: int, rows: int) -> Sequence[RunPage]:
            results = self._pages.of_subscription(channel, subscription, run, rows)
            if not results and run == after and not self._pages.has_subscription(channel, subscription):
                raise ConfigurationError(f"channel {channel!r} has no subscription {subscription!r}")
            return results

        return self._page(channel, pages, after, limit, upto)

    def newest(self, channel: str) -> int:
        """Return the newest run of a channel; 0: there was none."""
        return self._pages.newest(channel)

    def _page(self, channel: str, pages: _Pages, after: int, limit: int, upto: int | None) -> Page:
        """Return a page. The newest run is read first: a run that comes meanwhile belongs to the next page."""
        newest, oldest = self._pages.newest(channel), self._pages.oldest(channel)
        last = newest if upto is None else min(upto, newest)
        runs = [page for page in pages(after, limit) if page.run <= last]
        rows = sum(len(page.rows) for page in runs)
        reached = runs[-1].run if rows >= limit else max(after, last)
        complete = reached >= last or not [page for page in pages(reached, 1) if page.run <= last]
        fields: dict[str, Any] = {
            "channel": channel,
            "after": after,
            "runs": [run_of(page) for page in runs],
            "next": max(after, last) if complete else reached,
            "complete": complete,
        }
        if oldest and after + 1 < oldest:
            fields["from"] = {"run": oldest, "time": moment(oldest)}
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        is_final = "from" not in fields and (not complete or (upto is not None and upto <= newest))
        return Page(body, is_final, int(fields["next"]))


def run_of(page: RunPage) -> dict[str, Any]:
    """Return a run as plain data."""
    return {
        "run": page.run,
        "time": moment(page.run),
        "results": [
            {"number": row.number, "subscriptionIds": list(row.subscriptions), "result": json.loads(row.record)}
            for row in page.rows
        ],
    }
