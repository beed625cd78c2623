"""Broadcast of invalidations by name: registrations and labels that an app process outdates itself reach every process as any
invalidation does, through the notification pipeline.
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
    """Sender to all processes of a tenant, this one included.

    tenant: None: the deployment's only one.
    trims: nobody else trims the pipeline, because there is no grid.
    """

    def __init__(
        self, layer: EventLayer, *, deployment: str, tenant: str | None = None, clock: Clock, trims: bool = False
    ) -> None:
        self._layer = layer
        self._stream = streams.notifications(deployment, tenant)
        self._clock = clock
        self._trims = trims

    async def announce(self, names: Sequence[str]) -> None:
        """Tell every process that these are invalid: ids of registrations, and labels of entries. Raises EventLayerError."""
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
        """Tell every process this, in one round trip. Raises EventLayerError."""
        await anyio.to_thread.run_sync(self._append, [codec.encode_notification(one) for one in notifications])

    def _append(self, payloads: Sequence[bytes]) -> None:
        self._layer.append(self._stream, payloads)
        if self._trims:
            self._layer.trim(self._stream, before_ms=self._clock() - 2 * LOOK_BACK_MS)
