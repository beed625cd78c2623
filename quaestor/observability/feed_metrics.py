"""Metrics of feeds."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class FeedMetrics:
    """Records that sources send.

    records: by feed and outcome.
    refused: requests that were answered 429, by feed.
    batch_s: duration of writing a batch.
    """

    def __init__(self, families: Families) -> None:
        self.records = families.counters(
            "feed_records", "records of feeds", feed=None, outcome=vocabularies.FEED_RECORDS
        )
        self.refused = families.counters("feed_refused", "requests that a feed was too busy for", feed=None)
        self.batch_s = families.histogram("feed_batch_seconds", "duration of writing a batch of a feed")
