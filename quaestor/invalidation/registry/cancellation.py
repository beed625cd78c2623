"""Cancellation of registrations that no response relies on: this process and the grid forget them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quaestor.event_layer import codec, streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.model import Cancellation
from quaestor.settings import Settings


class Cancellations:
    """Sender of cancellations to their query partitions, with a short delay, because no caller waits.

    Safe from several threads.
    """

    def __init__(self, registrations: ProcessRegistrations, settings: Settings) -> None:
        self._shared = registrations.shared
        self._view = registrations.view
        self._sender = registrations.sender
        self._settings = settings

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """Cancel the registrations of one response, except those shared with others. Unknown or finished ones are ignored."""
        self._send(self._shared.remove(registration_ids, unshared=True))

    def cancel_expired(self, *, now_ms: int) -> None:
        """Cancel the registrations that no copy needs any more."""
        self._send(self._shared.remove(self._shared.expired(now_ms)))

    def cancel_rounds(self, query_id: str, registration_ids: Sequence[str]) -> None:
        """Cancel exactly the named rounds: another round takes their place, or none."""
        self._send({query_id: registration_ids})

    def _send(self, by_query: Mapping[str, Sequence[str]]) -> None:
        shape = self._view.shape
        if shape is None:
            return
        for query_id, ids in by_query.items():
            cancellation = Cancellation(tenant=self._settings.owner, query_id=query_id, registration_ids=tuple(ids))
            partition = query_partition(query_id, shape.query_partitions)
            stream = streams.queries(self._settings.deployment, partition, shape.generation)
            self._sender.send_later(stream, codec.encode_query_event(cancellation))
