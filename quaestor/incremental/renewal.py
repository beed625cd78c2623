"""Renewal of a maintained result: when to read it again, with how much slack, and how often at most.

Pure: time is an argument. Source: Wingerath's thesis, section 3.3.2: query renewal, adaptive slack, poll frequency rate limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.errors import ConfigurationError
from quaestor.model import Query, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalRequest:
    """Request to read a result's queries again and pass the records to `renew`.

    query: query for the result's own records, rewritten (no offset, more than the limit).
    foreign: one query for each joined collection.
    at_least: the read must contain every write up to this version.
    not_before_ms: earliest time that the poll frequency limit allows.
    reason: a sentence for `explain`.
    """

    query: Query
    foreign: tuple[Query, ...]
    at_least: Version
    not_before_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalSettings:
    """Settings of renewal.

    slack: number of records to know behind the window at first; 0 renews on the first removal from a full window.
    most_slack: largest slack.
    frequent_ms: a renewal within this time after the last one counts as frequent.
    poll_interval_ms: at most one renewal in this time.
    most_waiting: images kept for replay during a renewal; beyond that number the renewal must be newer than they are.
    """

    slack: int = 10
    most_slack: int = 1_000
    frequent_ms: int = 30_000
    poll_interval_ms: int = 1_000
    most_waiting: int = 10_000

    def __post_init__(self) -> None:
        if not 0 <= self.slack <= self.most_slack:
            raise ConfigurationError(f"slack must lie in 0..most_slack ({self.most_slack}), not {self.slack}")
        for name in ("frequent_ms", "poll_interval_ms", "most_waiting"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must not be negative, but is {getattr(self, name)}")


class RenewalPace:
    """Adaptive slack and poll frequency limit of one result. Not thread-safe.

    slack: number of records to know behind the window. Doubles after frequent renewals, and halves (down to its first value)
        after ten times as long without one.
    interval_ms: at most one renewal in this time.
    """

    __slots__ = ("_polled_ms", "_settings", "_used_up_ms", "interval_ms", "slack")

    def __init__(self, settings: RenewalSettings) -> None:
        self._settings = settings
        self._used_up_ms: int | None = None
        self._polled_ms: int | None = None
        self.slack = settings.slack
        self.interval_ms = settings.poll_interval_ms

    @property
    def not_before_ms(self) -> int:
        """Time from which the next renewal may be made; 0 if there was none."""
        return 0 if self._polled_ms is None else self._polled_ms + self.interval_ms

    def used_up(self, at_ms: int) -> None:
        """Note that a write of that time used up the slack."""
        settings, last = self._settings, self._used_up_ms
        self._used_up_ms = at_ms if last is None else max(at_ms, last)
        if last is None:
            return
        if at_ms - last < settings.frequent_ms:
            self.slack = min(max(self.slack * 2, 1), settings.most_slack)
        elif at_ms - last >= 10 * settings.frequent_ms:
            self.slack = max(self.slack // 2, settings.slack)

    def polled(self, now_ms: int) -> None:
        """Note a read of the database, for any reason."""
        self._polled_ms = now_ms if self._polled_ms is None else max(now_ms, self._polled_ms)
