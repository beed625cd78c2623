"""One thread that appends to query pipelines what an app process has to say: everything that waits goes out in one round trip."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from quaestor.errors import EventLayerError, RegistrationRefusedError
from quaestor.invalidation.registry.activation import Activation
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer


@dataclass(slots=True)
class _Outgoing:
    stream: str
    payload: bytes
    pending: Activation | None = None


class QuerySender:
    """send() may be called from any thread. Order is kept within a stream; what cannot be appended is lost, and counted."""

    def __init__(self, layer: EventLayer, telemetry: EventLog) -> None:
        self._layer = layer
        self._telemetry = telemetry
        self._waiting: queue.SimpleQueue[_Outgoing | None] = queue.SimpleQueue()

    def send(self, stream: str, payload: bytes, pending: Activation | None = None) -> None:
        """pending: who waits for an answer, and is told at once if this could not be sent."""
        item = _Outgoing(stream, payload, pending)
        if self._layer.immediate:
            self._append(stream, [item])
        else:
            self._waiting.put(item)

    def end(self) -> None:
        """run() returns when what waits now has been sent."""
        self._waiting.put(None)

    def run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            with suppress(queue.Empty):
                while True:
                    batch.append(self._waiting.get_nowait())
            by_stream: dict[str, list[_Outgoing]] = {}
            for item in batch:
                if item is not None:
                    by_stream.setdefault(item.stream, []).append(item)
            for stream, items in by_stream.items():
                self._append(stream, items)
            if None in batch:
                return

    def _append(self, stream: str, items: Sequence[_Outgoing]) -> None:
        try:
            self._layer.append(stream, [item.payload for item in items])
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "registry.send_failed", error)
            for item in items:
                if item.pending is not None:
                    item.pending.finish(RegistrationRefusedError(f"the event layer did not answer: {error}"))
