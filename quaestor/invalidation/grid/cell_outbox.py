"""Outbox of a cell, by tenant: each tenant has its own notification pipeline, and heartbeats reach all tenants.

**Order.** The heartbeat that proves freshness as of a moment is appended after all earlier results, in every pipeline. Apps
of the tenant named like the deployment find heartbeats in their own pipeline, other apps in a shared one. A notification
that could not be appended stays and is sent again: at least once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import nlargest
from itertools import islice
from typing import Final

from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_notification
from quaestor.event_layer.tenancy import by_tenant, tenant_of
from quaestor.model import Heartbeat, Invalidated, Notification
from quaestor.ports import EventLayer

_MOST_GROWN: Final = 4
_LONGEST_AGO: Final = 4


class CellOutbox:
    """Notifications of one cell that are not appended yet. Not thread-safe."""

    def __init__(self, layer: EventLayer, deployment: str) -> None:
        self._layer = layer
        self._deployment = deployment
        self._own = streams.notifications(deployment)
        self._heartbeats = streams.heartbeats(deployment)
        self._pending: dict[str, list[bytes]] = {}
        self._known: dict[str, int] = {}
        self._grown: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def streams(self) -> list[str]:
        """The pipelines due for maintenance.

        The default tenant's pipelines come first. The others are chosen among those written to lately:
        most growth since the last turn, and oldest last turn.
        """
        grown = nlargest(_MOST_GROWN, self._grown, key=self._grown.__getitem__)
        return [self._own, self._heartbeats, *dict.fromkeys([*grown, *islice(self._known, _LONGEST_AGO)])]

    def add(self, notifications: Iterable[Notification]) -> None:
        """Sort these notifications by their tenant, behind those added before."""
        for notification in notifications:
            match notification:
                case Heartbeat():
                    payload = encode_notification(notification)
                    self._pending.setdefault(self._own, []).append(payload)
                    self._pending.setdefault(self._heartbeats, []).append(payload)
                case Invalidated():
                    tenants = by_tenant(notification.registration_ids, self._deployment)
                    for tenant, ids in tenants.items():
                        part = notification if len(tenants) == 1 else replace(notification, registration_ids=tuple(ids))
                        self._put(tenant, part)
                case _:
                    self._put(tenant_of(notification.registration_id, self._deployment), notification)

    def send(self) -> None:
        """Append everything, heartbeats last. Raises EventLayerError; the next call appends the rest."""
        last = (self._own, self._heartbeats)
        for stream in sorted(self._pending, key=lambda name: last.index(name) if name in last else -1):
            self._layer.append(stream, self._pending[stream])
            del self._pending[stream]

    def trimmed(self, streams: Iterable[str], *, before_ms: int, now_ms: int) -> None:
        """Note the maintenance of these pipelines. A pipeline trimmed past its last entry is forgotten.

        before_ms: older entries are gone (ms since the epoch).
        """
        for stream in streams:
            said_ms = self._known.pop(stream, None)
            self._grown.pop(stream, None)
            if said_ms is not None and (not said_ms or said_ms >= before_ms):
                self._known[stream] = said_ms or now_ms  # behind all others

    def _put(self, tenant: str, notification: Notification) -> None:
        stream = streams.notifications(self._deployment, tenant)
        payload = encode_notification(notification)
        self._pending.setdefault(stream, []).append(payload)
        if stream != self._own:
            self._known[stream] = 0
            self._grown[stream] = self._grown.get(stream, 0) + len(payload)
