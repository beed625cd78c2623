"""Subscriptions' part in a cell: announcements of the stage go into the node, and its results go to the stage.

Payloads are collected. The cell's loop appends them, in order, before its position counts as reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from quaestor.errors import EventLayerError, QueryError
from quaestor.event_layer.codec import encode_image
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.subscription_matching import AnnouncementError, is_subscribed
from quaestor.model import AfterImage, WriteKind
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer
from quaestor.realtime.codec import decode_query_event, encode_matched, is_subscription, lease_end_ms
from quaestor.realtime.messages import (
    Announcement,
    CellProgress,
    CellReady,
    CellStarted,
    LeaseRenewal,
    MatchedEvent,
    MatchedWrite,
    MatchingLost,
    QueriesEnded,
)

T = TypeVar("T")
_TO_ALL: Final = (WriteKind.GAP, WriteKind.COLLECTION)


class SubscriptionEvents:
    """Messages between one cell and the stage of its query partition. Not thread-safe."""

    def __init__(self, node: MatchingNode, layer: EventLayer, stream: str, *, telemetry: EventLog) -> None:
        """Begin with nothing to send.

        stream: pipeline that the stage reads.
        """
        self._node = node
        self._cell = node.cell
        self._layer = layer
        self._stream = stream
        self._pending: list[bytes] = []
        self._telemetry = telemetry
        self._ticked: AfterImage | None = None

    def started(self) -> None:
        """Report that the cell begins, or begins anew: its node knows no announcement."""
        self._say(CellStarted(cell=self._cell))

    def send(self) -> None:
        """Append the collected messages. Raises EventLayerError; the next call appends the rest."""
        if self._pending:
            self._layer.append(self._stream, self._pending)
            self._pending.clear()

    def lease_of(self, payload: bytes) -> int:
        """Return the end of the lease of this query pipeline entry, which a starting stage must find; 0: it has none."""
        return (self._understood(lease_end_ms, payload) or 0) if is_subscription(payload) else 0

    def take_query_event(self, payload: bytes) -> int:
        """Process this entry of the query pipeline from the stage. Return the same as `lease_of`."""
        if is_subscription(payload):
            return self.lease_of(payload)
        event = self._understood(decode_query_event, payload)
        match event:
            case Announcement():
                self._announced(event)
            case LeaseRenewal():
                for query_id, token in event.queries:
                    if not self._node.subscriptions.keep(query_id, token, event.expires_at_ms):
                        self._lost(query_id, token, "not announced to this cell", final=False)
            case QueriesEnded():
                for query_id in event.query_ids:
                    self._node.subscriptions.end(query_id)
        return 0

    def processed(self, image: AfterImage, payload: bytes | None) -> None:
        """Report the subscribed queries that this write concerns, or a tick.

        payload: the image as it lies in the write pipeline, if it does.
        """
        standing = self._node.subscriptions
        if image.kind is WriteKind.TICK:
            self._ticked = image
            if standing:
                self._reached(image)
            return
        if image.kind in _TO_ALL:
            standing.take()
            if standing and is_subscribed(image):
                self._say(MatchedWrite(query_ids=None, image=image), encode_image(image))
            return
        query_ids = standing.take()
        if query_ids:
            self._say(MatchedWrite(query_ids=query_ids, image=image), payload or encode_image(image))
            for query in list(standing.crowded(query_ids)):
                standing.end(query.query_id)
                self._lost(query.query_id, query.token, "its membership has outgrown its announcement", final=False)

    def _announced(self, event: Announcement) -> None:
        try:
            members = None if event.members is None else [self._share(side) for side in event.members]
            replayed = self._node.subscriptions.announce(
                event.query_id,
                event.token,
                event.query,
                prior_state=event.memory,
                version=event.version,
                members=members,
                expires_at_ms=event.expires_at_ms,
            )
        except AnnouncementError as error:
            self._lost(event.query_id, event.token, str(error), final=error.final)
        except QueryError as error:
            self._lost(event.query_id, event.token, str(error), final=True)
        except Exception as error:  # one bad query must not stop the node
            self._telemetry.failure("matching", "cell.announcement_failed", repr(error), cell=str(self._cell))
            self._node.subscriptions.end(event.query_id)
            self._lost(event.query_id, event.token, f"matching failed: {error!r}", final=True)
        else:
            for image in replayed:
                self._say(MatchedWrite(query_ids=(event.query_id,), image=image), encode_image(image))
            self._say(CellReady(cell=self._cell, query_id=event.query_id, token=event.token))
            if self._ticked is not None and len(self._node.subscriptions) == 1:
                self._reached(self._ticked)

    def _share(self, side: tuple[bytes, ...]) -> bytes:
        if len(side) != self._node.shape.write_partitions:
            raise AnnouncementError("announced to a grid of another shape", final=False)
        return side[self._cell.write_partition]

    def _reached(self, tick: AfterImage) -> None:
        self._say(CellProgress(cell=self._cell, version=tick.version, fresh_as_of_ms=tick.wall_ms))

    def _lost(self, query_id: str, token: str, reason: str, *, final: bool) -> None:
        self._say(MatchingLost(cell=self._cell, query_id=query_id, token=token, reason=reason, final=final))

    def _understood(self, decode: Callable[[bytes], T], payload: bytes) -> T | None:
        try:
            return decode(payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "cell.query_event_unreadable", error, cell=str(self._cell))
            return None

    def _say(self, event: MatchedEvent, image: bytes = b"") -> None:
        self._pending.append(encode_matched(event, image))
