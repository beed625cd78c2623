"""What a stage sends: collected while entries are worked off, then one append to each pipeline. Order is kept in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.errors import EventLayerError
from quaestor.ports import EventLayer
from quaestor.realtime.codec import encode_query_event, encode_result
from quaestor.realtime.messages import Failed, QueryEvent, ResultMessage, StillStanding, Subscription, Unsubscription

_KEPT_AT_ONCE: Final = 1_000


class Outbox:
    """max_bytes: of a message to subscribers. Not thread-safe."""

    def __init__(self, layer: EventLayer, queries: str, results: str, *, max_bytes: int) -> None:
        self._layer = layer
        self._max_bytes = max_bytes
        self._waiting: dict[str, list[bytes]] = {queries: [], results: []}
        self._queries = self._waiting[queries]
        self._results = self._waiting[results]

    def to_cells(self, event: QueryEvent) -> None:
        """Onto the query pipeline."""
        self._queries.append(encode_query_event(event))

    def keep(self, queries: Sequence[tuple[str, str]], *, expires_at_ms: int) -> None:
        """Tell the cells to go on with these: (query id, token)."""
        for first in range(0, len(queries), _KEPT_AT_ONCE):
            some = tuple(queries[first : first + _KEPT_AT_ONCE])
            self.to_cells(StillStanding(queries=some, expires_at_ms=expires_at_ms))

    def refuse(self, subscription: Subscription, reason: str) -> None:
        """Tell one subscription that it is over, and the next stage that it is not to be taken over."""
        ids = (subscription.id,)
        self.to_cells(Unsubscription(query_id=subscription.query_id, subscription_ids=ids))
        self.to_subscribers(Failed(query_id=subscription.query_id, subscription_ids=ids, reason=reason))

    def to_subscribers(self, message: ResultMessage) -> str | None:
        """Returns why it cannot be sent; None if it will be."""
        try:
            payload = encode_result(message)
        except EventLayerError as error:
            return str(error)
        if len(payload) > self._max_bytes:
            return f"a result of {len(payload)} bytes; at most {self._max_bytes} are sent: narrow the query"
        self._results.append(payload)
        return None

    def send(self) -> None:
        """Raises EventLayerError; what could not be sent waits for the next time."""
        for stream, payloads in self._waiting.items():
            if payloads:
                self._layer.append(stream, payloads)
                payloads.clear()

    def clear(self) -> None:
        for payloads in self._waiting.values():
            payloads.clear()
