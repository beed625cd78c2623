"""What a cell has to say, by tenant: each has a notification pipeline of its own, and heartbeats reach all of them.

**Order.** The heartbeat that vouches for a moment is appended after everything that was found before, in whatever pipeline. Apps
of the tenant that is named like the deployment find heartbeats in their own pipeline, those of others in a shared one.
What could not be appended stays and is sent again: at least once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quaestor.invalidation.event_layer import streams
from quaestor.invalidation.event_layer.codec import encode_notification
from quaestor.invalidation.event_layer.tenancy import by_tenant, tenant_of
from quaestor.model import Heartbeat, Invalidated, Notification
from quaestor.ports import EventLayer


class CellOutbox:
    """Not thread-safe."""

    def __init__(self, layer: EventLayer, deployment: str) -> None:
        self._layer = layer
        self._deployment = deployment
        self._own = streams.notifications(deployment)
        self._heartbeats = streams.heartbeats(deployment)
        self._pending: dict[str, list[bytes]] = {}
        self._known: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def streams(self) -> list[str]:
        """Every pipeline that this cell has written to lately, the default tenant's first."""
        return [self._own, self._heartbeats, *self._known]

    def say(self, notifications: Iterable[Notification]) -> None:
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
        """Raises EventLayerError; what was not appended is appended by the next call."""
        last = (self._own, self._heartbeats)
        for stream in sorted(self._pending, key=lambda name: last.index(name) if name in last else -1):
            self._layer.append(stream, self._pending[stream])
            del self._pending[stream]

    def trim(self, *, before_ms: int, now_ms: int) -> None:
        """Of every pipeline that this cell has written to and that may still hold something."""
        for stream in self.streams:
            self._layer.trim(stream, before_ms=before_ms)
        for stream, said_ms in list(self._known.items()):
            if not said_ms:
                self._known[stream] = now_ms
            elif said_ms < before_ms:
                del self._known[stream]

    def _put(self, tenant: str, notification: Notification) -> None:
        stream = streams.notifications(self._deployment, tenant)
        self._pending.setdefault(stream, []).append(encode_notification(notification))
        if stream != self._own:
            self._known[stream] = 0
