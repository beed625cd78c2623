"""Counts of subscriptions: of a user, for the quota, and at a broker, before it is dropped."""

from __future__ import annotations

import threading
from typing import Any, Final

import pyarrow.compute as pc

from quaestor.channels.subscriptions import dataset_name
from quaestor.channels.versions import LatestVersions
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type

MOST_SUBSCRIPTIONS: Final = 10_000
_NAMES: Final = ("subscription", "broker", "username")
_COLUMNS: Final = Schema(tuple(Column(name, Type.TEXT) for name in _NAMES), ("subscription",))


class SubscriptionCounts:
    """Counts of the subscriptions of channels. A count reads only what is new since the last one.

    most: subscriptions that a user may have on a channel.
    """

    def __init__(self, catalogue: Catalogue, *, most: int = MOST_SUBSCRIPTIONS) -> None:
        self._catalogue = catalogue
        self._most = most
        self._states: dict[str, LatestVersions] = {}
        self._lock = threading.Lock()

    def check_quota(self, channel: str, user: str) -> None:
        """Raise ConfigurationError if a user has as many subscriptions on a channel as are allowed.

        The operator, whose name is empty, has no quota. Requests at one moment may exceed the quota by their number.
        """
        if user and (owned := self._count(channel, "username", user)) >= self._most:
            raise ConfigurationError(
                f"{user!r} has {owned} subscriptions on channel {channel!r}, the most that are allowed: remove some of them"
            )

    def at_broker(self, channel: str, broker: str) -> int:
        """Return the number of a channel's subscriptions at a broker."""
        return self._count(channel, "broker", broker)

    def by_broker(self, channel: str) -> dict[str, int]:
        """Return the number of a channel's subscriptions at each broker, by name."""
        return {
            str(entry["values"]): entry["counts"]
            for entry in pc.value_counts(self._rows(channel)["broker"]).to_pylist()
        }

    def any(self, channel: str) -> bool:
        """Return whether a channel has subscriptions."""
        return bool(self._rows(channel).num_rows)

    def _count(self, channel: str, column: str, value: str) -> int:
        return int(pc.sum(pc.equal(self._rows(channel).column(column), value)).as_py() or 0)

    def _rows(self, channel: str) -> Any:
        table = self._catalogue.open(dataset_name(channel))
        with self._lock:
            latest = self._states.setdefault(table.table.location, LatestVersions(table, _COLUMNS))
        snapshot = table.snapshot()
        return latest.at(snapshot, snapshot.instant)
