"""Counts of subscriptions: of a user, for the quota, and at a broker, before it is dropped."""

from __future__ import annotations

import threading
from typing import Final

from quaestor.channels.membership import NUMBER, Membership
from quaestor.channels.subscriptions import USER, dataset_name
from quaestor.continuous.arrow_sql import selected
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue

MOST_SUBSCRIPTIONS: Final = 10_000


class SubscriptionCounts:
    """Counts of the subscriptions of channels. A count reads only what is new since the last one. A subscription takes 20 bytes.

    most: subscriptions that a user may have on a channel.
    """

    def __init__(self, catalogue: Catalogue, *, most: int = MOST_SUBSCRIPTIONS) -> None:
        self._catalogue = catalogue
        self._most = most
        self._states: dict[str, Membership] = {}
        self._lock = threading.Lock()

    def check_quota(self, channel: str, user: str) -> None:
        """Raise ConfigurationError if a user has as many subscriptions on a channel as are allowed.

        The operator, whose name is empty, has no quota. Requests at one moment may exceed the quota by their number.
        """
        if user and (owned := self._counted(channel, USER).get(user, 0)) >= self._most:
            raise ConfigurationError(
                f"{user!r} has {owned} subscriptions on channel {channel!r}, the most that are allowed: remove some of them"
            )

    def at_broker(self, channel: str, broker: str) -> int:
        """Return the number of a channel's subscriptions at a broker."""
        return self.by_broker(channel).get(broker, 0)

    def by_broker(self, channel: str) -> dict[str, int]:
        """Return the number of a channel's subscriptions at each broker, by name."""
        return self._counted(channel, "broker")

    def any(self, channel: str) -> bool:
        """Return whether a channel has subscriptions."""
        return bool(self.by_broker(channel))

    def _counted(self, channel: str, column: str) -> dict[str, int]:
        """Return the numbers of subscriptions by the values of a column."""
        table = self._catalogue.open(dataset_name(channel))
        with self._lock:
            membership = self._states.setdefault(table.table.location, Membership(table, [USER], with_paused=True))
        snapshot = table.snapshot()
        members = membership.at(snapshot, snapshot.instant)
        query = f"""SELECT {column} AS name, sum(members)::BIGINT AS n FROM groups JOIN parameters USING ({NUMBER})
            GROUP BY ALL"""
        rows = selected(query, {"groups": members.groups, "parameters": members.parameters})
        return dict(zip(rows.column("name").to_pylist(), rows.column("n").to_pylist(), strict=True))
