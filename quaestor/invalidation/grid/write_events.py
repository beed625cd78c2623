"""Effects of write pipeline entries on a cell: each entry is matched, and its invalidations are sent.

A write that cannot be matched counts as a change of its whole collection, an unreadable one as a gap. The cell then
invalidates too much, never too little. An early write is only a hint, because the write comes again: an early write that cannot
be read or matched is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from quaestor.clock import Clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.write_heads import write_head
from quaestor.invalidation.grid.cell_meter import CellMeter
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.checkpoint import CellPosition, CompletePoint
from quaestor.invalidation.grid.subscription_events import SubscriptionEvents
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import AfterImage, Invalidated, WriteKind
from quaestor.observability.event_log import EventLog
from quaestor.ports import StreamEntry

_NO_VERSION: Final = 0


class WriteEvents:
    """Consumer of one write pipeline. Not thread-safe. Results go into the outbox, in order.

    position: offset of the last processed entry.
    early_position: the same offset in the pipeline of early writes.
    complete: the last complete point up to there, None if none is known.
    """

    def __init__(
        self,
        node: MatchingNode,
        *,
        subscriptions: SubscriptionEvents,
        outbox: CellOutbox,
        meter: CellMeter,
        clock: Clock,
        telemetry: EventLog,
    ) -> None:
        self.position = offsets.START
        self.early_position = offsets.START
        self.complete: CompletePoint | None = None
        self._node = node
        self._subscriptions = subscriptions
        self._outbox = outbox
        self._meter = meter
        self._clock = clock
        self._telemetry = telemetry

    def restart(self, position: CellPosition) -> None:
        """Continue from here."""
        self.position, self.complete = position.writes, position.complete
        self.early_position = offsets.START

    def take(self, entry: StreamEntry) -> bool:
        """Match one entry; return whether it was a tick."""
        if self._passed_over(entry):
            return False
        known = self._node.watermark
        try:
            image = decode_image(entry.payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "cell.image_unreadable", error, cell=str(self._node.cell))
            self.invalidate_all()
            self.position = entry.offset
            return False
        ticked = image.kind is WriteKind.TICK
        if ticked:
            if image.version:
                self.complete = CompletePoint(entry.offset, image.version)
        elif image.version > known != _NO_VERSION:
            self.complete = CompletePoint(self.position, known)
        if invalidated := self._matched(image, entry.payload):
            self._outbox.add(invalidated)
        self.position = entry.offset
        return ticked

    def take_early(self, entries: Iterable[StreamEntry]) -> None:
        """Match early writes. Position, freshness and retained writes stay as they are."""
        for entry in entries:
            try:
                self._outbox.add(self._node.overtake(decode_image(entry.payload), now_ms=self._clock()))
            except Exception as error:
                self._telemetry.failure("matching", "cell.early_write_failed", error, cell=str(self._node.cell))
            self.early_position = entry.offset

    def invalidate_all(self) -> None:
        """Report that everything may have changed, because entries were lost. The next entry is a new beginning."""
        gap = AfterImage(namespace="*", kind=WriteKind.GAP, version=_NO_VERSION)
        for notification in self._node.process(gap, now_ms=self._clock()):
            self._outbox.add([replace(notification, written_at_ms=self._clock())])
        self._subscriptions.processed(gap, None)

    def _passed_over(self, entry: StreamEntry) -> bool:
        """Take in a write whose collection no query reads, without decoding it; return whether it was one."""
        head = write_head(entry.payload)
        if head is None:
            return False
        namespace, version, wall_ms = head
        known, now_ms = self._node.watermark, self._clock()
        if not self._node.pass_over(namespace, version, entry.payload, now_ms=now_ms):
            return False
        self._meter.matched(wall_ms=wall_ms, now_ms=now_ms)
        if version > known != _NO_VERSION:
            self.complete = CompletePoint(self.position, known)
        self.position = entry.offset
        return True

    def _matched(self, image: AfterImage, payload: bytes) -> list[Invalidated]:
        now_ms = self._clock()
        if image.kind is not WriteKind.TICK:
            self._meter.matched(wall_ms=image.wall_ms, now_ms=now_ms)
        try:
            invalidated = self._node.process(image, now_ms=now_ms, encoded=len(payload))
            self._subscriptions.processed(image, payload)
            return invalidated
        except Exception as error:  # one bad record must not stop the node
            self._telemetry.failure("matching", "cell.write_failed", error, cell=str(self._node.cell))
            # Its record may be unreadable, so none of it is taken over.
            instead = AfterImage(
                namespace=image.namespace, kind=WriteKind.COLLECTION, version=image.version, wall_ms=image.wall_ms
            )
            invalidated = self._node.process(instead, now_ms=self._clock())
            self._subscriptions.processed(instead, None)
            return invalidated
