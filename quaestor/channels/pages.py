"""Pages of results: the seam between runs and brokers. The results of a run never change, so a page of runs is immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ResultRow:
    """Result of a run.

    number: of the row in its run; with channel and run, its idempotency key.
    record: JSON.
    subscriptions: ids of the subscriptions that it is for, as they were at the run.
    """

    number: int
    record: str
    subscriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunPage:
    """Results of one run for one broker or subscription. run: its instant, microseconds since 1970."""

    run: int
    rows: tuple[ResultRow, ...]


class ResultPages(Protocol):
    """Reader of the results of channels. Methods raise ConfigurationError for an unknown channel, DependencyError."""

    def after(self, channel: str, broker: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """Return the results of a broker in the runs after a run, whole runs only, oldest first.

        limit: rows after which no further run is begun.
        """
        ...

    def of_subscription(self, channel: str, subscription: str, after_run: int, limit: int) -> Sequence[RunPage]:
        """Return the results of a subscription in the runs after a run, as `after` does."""
        ...

    def has_subscription(self, channel: str, subscription: str) -> bool:
        """Return whether a channel has a subscription now. A removed one may still have results."""
        ...

    def newest(self, channel: str) -> int:
        """Return the newest run of a channel; 0: no run yet."""
        ...

    def newest_filled(self, channel: str) -> int:
        """Return the newest run of a channel that has results; 0: no run yet."""
        ...

    def oldest(self, channel: str) -> int:
        """Return the first run whose results are kept; 0: nothing was dropped yet."""
        ...
