"""Outbox of a stage: messages collected while entries are worked off, then one append to each pipeline, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.errors import EventLayerError
from quaestor.ports import EventLayer
from quaestor.realtime.codec import encode_query_event, encode_result
from quaestor.realtime.messages import (
    LeaseRenewal,
    QueryEvent,
    ResultMessage,
    Subscription,
    SubscriptionsEnded,
    Unsubscription,
)

_RENEWED_AT_ONCE: Final = 1_000


class Outbox:
    """Messages of a stage that wait to be appended. Not thread-safe.

    max_bytes: of a message to subscribers.
    """

    def __init__(self, layer: EventLayer, queries: str, results: str, *, max_bytes: int) -> None:
        self._layer = layer
        self._max_bytes = max_bytes
        self._waiting: dict[str, list[bytes]] = {queries: [], results: []}
        self._queries = self._waiting[queries]
        self._results = self._waiting[results]

    def to_cells(self, event: QueryEvent) -> None:
        """Add a message for the query pipeline."""
        self._queries.append(encode_query_event(event))

    def renew_leases(self, queries: Sequence[tuple[str, str]], *, expires_at_ms: int) -> None:
        """Tell the cells to go on with these queries: (query id, token)."""
        for first in range(0, len(queries), _RENEWED_AT_ONCE):
            some = tuple(queries[first : first + _RENEWED_AT_ONCE])
            self.to_cells(LeaseRenewal(queries=some, expires_at_ms=expires_at_ms))

    def refuse(self, subscription: Subscription, reason: str) -> None:
        """Tell one subscription that it is over, and the next stage that it is not to be taken over."""
        ids = (subscription.id,)
        self.to_cells(Unsubscription(query_id=subscription.query_id, subscription_ids=ids))
        self.to_subscribers(SubscriptionsEnded(query_id=subscription.query_id, subscription_ids=ids, reason=reason))

    def to_subscribers(self, message: ResultMessage) -> str | None:
        """Add a message for the results pipeline. Returns why it cannot be sent; None if it will be."""
        try:
            payload = encode_result(message)
        except EventLayerError as error:
            return str(error)
        if len(payload) > self._max_bytes:
            return f"a result of {len(payload)} bytes; at most {self._max_bytes} are sent: narrow the query"
        self._results.append(payload)
        return None

    def send(self) -> None:
        """Append all that waits. Raises EventLayerError; what could not be sent waits for the next time."""
        for stream, payloads in self._waiting.items():
            if payloads:
                self._layer.append(stream, payloads)
                payloads.clear()

    def clear(self) -> None:
        """Drop all that waits."""
        for payloads in self._waiting.values():
            payloads.clear()
