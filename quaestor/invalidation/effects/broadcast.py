"""Outdating by name reaches every process as any invalidation does: through the notification pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio.to_thread

from quaestor.clock import Clock
from quaestor.event_layer import codec, streams
from quaestor.invalidation.registry.notification_reader import LOOK_BACK_MS
from quaestor.model import Cell, Invalidated, MatchType
from quaestor.ports import EventLayer, Guarded
from quaestor.read_path.service import ReadPath

_NO_CELL = Cell(query_partition=0, write_partition=0)


class Broadcast:
    """Ties a read path to the event layer, in both directions.

    forget: see Effects.

    trims: nobody else trims the pipeline, because there is no grid.
    """

    def __init__(
        self,
        layer: EventLayer,
        read_path: ReadPath,
        *,
        deployment: str,
        tenant: str | None = None,
        clock: Clock,
        forget: Callable[[Sequence[str]], Sequence[Guarded]],
        trims: bool = False,
    ) -> None:
        self._layer = layer
        self._read_path = read_path
        self._stream = streams.notifications(deployment, tenant)
        self._clock = clock
        self._forget = forget
        self._trims = trims

    async def announce(self, names: Sequence[str]) -> None:
        """Tell every process that these registrations are dead and these labels outdated. Raises EventLayerError."""
        invalidated = Invalidated(
            registration_ids=tuple(names),
            query_id="",
            match_type=MatchType.MATCH,
            version=0,
            key=None,
            written_at_ms=self._clock(),
            cell=_NO_CELL,
        )
        await anyio.to_thread.run_sync(self._append, codec.encode_notification(invalidated))

    def _append(self, payload: bytes) -> None:
        self._layer.append(self._stream, [payload])
        if self._trims:
            self._layer.trim(self._stream, before_ms=self._clock() - 2 * LOOK_BACK_MS)

    def heard(self, names: Sequence[str]) -> Sequence[Guarded]:
        """What Effects calls with everything that died: labels are outdated here too, and what this process registered under
        them dies everywhere. On the event loop."""
        explicit = self._read_path.explicit
        registrations = explicit.outdate_here(names)
        if registrations:
            self._read_path.coalescing.spawn(explicit.tell(registrations))
        return self._forget(names)
