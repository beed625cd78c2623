"""Broadcast of invalidations by name: an app process tells all processes which registrations and labels it outdates.

The broadcast goes through the notification pipeline, like every other invalidation.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread

from quaestor.clock import Clock
from quaestor.event_layer import codec, streams
from quaestor.invalidation.registry.notification_reader import LOOK_BACK_MS
from quaestor.model import Invalidated, MatchType, Notification, OutsideGrid
from quaestor.ports import EventLayer


class Broadcast:
    """Sender of notifications to all processes of a tenant, this one included.

    tenant: None: the only tenant of the deployment.
    trims: whether this sender trims the pipeline, because there is no grid that does.
    """

    def __init__(
        self, layer: EventLayer, *, deployment: str, tenant: str | None = None, clock: Clock, trims: bool = False
    ) -> None:
        self._layer = layer
        self._stream = streams.notifications(deployment, tenant)
        self._clock = clock
        self._trims = trims

    async def announce(self, names: Sequence[str]) -> None:
        """Send all processes the names that are invalid: ids of registrations, labels of entries. Raises EventLayerError."""
        invalidated = Invalidated(
            registration_ids=tuple(names),
            query_id="",
            match_type=MatchType.MATCH,
            version=0,
            key=None,
            written_at_ms=self._clock(),
            source=OutsideGrid.NAME,
        )
        await self.tell([invalidated])

    async def tell(self, notifications: Sequence[Notification]) -> None:
        """Send these notifications to all processes in one round trip. Raises EventLayerError."""
        await anyio.to_thread.run_sync(
            self._append, [codec.encode_notification(notification) for notification in notifications]
        )

    def _append(self, payloads: Sequence[bytes]) -> None:
        self._layer.append(self._stream, payloads)
        if self._trims:
            self._layer.trim(self._stream, before_ms=self._clock() - 2 * LOOK_BACK_MS)
