"""Results of channels in versioned tables, as small as the tests of brokers need them. Implements ResultPages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from quaestor.channels.pages import ResultRow, RunPage
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

SCHEMA = Schema(
    (
        Column("run", Type.BIGINT),
        Column("number", Type.BIGINT),
        Column("broker", Type.TEXT),
        Column("subscriptions", Type.TEXT),
        Column("record", Type.TEXT),
    )
)


class StoredPages:
    """Results below a catalogue. `publish` makes a run; `drop` ends the retention of old runs."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._oldest: dict[str, int] = {}

    def create(self, channel: str) -> None:
        """Make a channel."""
        self._catalogue.create(f"{channel}_results", SCHEMA)

    def publish(self, channel: str, run: int, rows: Sequence[tuple[str, Sequence[str], Any]]) -> None:
        """Publish a run: (broker, subscriptions, record) of each row."""
        self._catalogue.open(f"{channel}_results").append(
            [
                {
                    "run": run,
                    "number": number,
                    "broker": broker,
                    "subscriptions": json.dumps(list(subscriptions)),
                    "record": json.dumps(record),
                }
                for number, (broker, subscriptions, record) in enumerate(rows)
            ],
            progress={"runs": run},
        )

    def drop(self, channel: str, upto: int) -> None:
        """Drop the runs up to a run."""
        self._oldest[channel] = upto + 1

    def after(self, channel: str, broker: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """See ResultPages."""
        return self._pages(channel, after_run, limit, lambda row: row["broker"] == broker)

    def of_subscription(self, channel: str, subscription: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """See ResultPages."""
        return self._pages(channel, after_run, limit, lambda row: subscription in json.loads(row["subscriptions"]))

    def has_subscription(self, channel: str, subscription: str) -> bool:
        """See ResultPages. Here a subscription is there from its first result on, also after the end of its retention."""
        table = self._catalogue.open(f"{channel}_results")
        snapshot = table.snapshot()
        texts = table.scan(snapshot, 0, snapshot.instant).column("subscriptions").to_pylist()
        return any(subscription in json.loads(text) for text in texts)

    def newest(self, channel: str) -> int:
        """See ResultPages."""
        if f"{channel}_results" not in self._catalogue.names():
            raise ConfigurationError(f"no channel {channel!r}")
        return self._catalogue.open(f"{channel}_results").snapshot().progress.get("runs", 0)

    def newest_filled(self, channel: str) -> int:
        """See ResultPages. Each run has results."""
        return self.newest(channel)

    def oldest(self, channel: str) -> int:
        """See ResultPages."""
        return self._oldest.get(channel, 0)

    def _pages(
        self, channel: str, after_run: int, limit: int, concerns: Callable[[dict[str, Any]], bool]
    ) -> list[RunPage]:
        table = self._catalogue.open(f"{channel}_results")
        snapshot = table.snapshot()
        runs: defaultdict[int, list[ResultRow]] = defaultdict(list)
        for row in table.scan(snapshot, 0, snapshot.instant).sort_by([("run", "ascending")]).to_pylist():
            if row["run"] > max(after_run, self.oldest(channel) - 1) and concerns(row):
                runs[row["run"]].append(
                    ResultRow(row["number"], row["record"], tuple(json.loads(row["subscriptions"])))
                )
        pages: list[RunPage] = []
        for run, rows in runs.items():
            if sum(len(page.rows) for page in pages) >= limit:
                break
            pages.append(RunPage(run, tuple(rows)))
        return pages
