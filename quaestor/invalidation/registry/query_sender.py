"""Sender of what an app process says in query pipelines: one thread, and everything that waits goes out in one round trip."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from quaestor.errors import EventLayerError, RegistrationRefusedError
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer


class Waiting(Protocol):
    """A part that waits for an answer to what is sent."""

    def finish(self, error: Exception | None = None) -> None:
        """Stop waiting: it could not be sent."""


@dataclass(slots=True)
class _Outgoing:
    stream: str
    payload: bytes
    waiting: Waiting | None = None


class QuerySender:
    """Sender to query pipelines. Order is kept within a stream; what cannot be appended is lost, and counted."""

    def __init__(self, layer: EventLayer, telemetry: EventLog) -> None:
        self._layer = layer
        self._telemetry = telemetry
        self._queue: queue.SimpleQueue[_Outgoing | None] = queue.SimpleQueue()

    def send(self, stream: str, payload: bytes, waiting: Waiting | None = None) -> None:
        """Send one query event, from any thread.

        waiting: told at once if this could not be sent.
        """
        item = _Outgoing(stream, payload, waiting)
        if self._layer.immediate:
            self._append(stream, [item])
        else:
            self._queue.put(item)

    def end(self) -> None:
        """Let run() return when what waits now has been sent."""
        self._queue.put(None)

    def run(self) -> None:
        """Send what waits, until end(). The body of the thread."""
        while True:
            batch = [self._queue.get()]
            with suppress(queue.Empty):
                while True:
                    batch.append(self._queue.get_nowait())
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
                if item.waiting is not None:
                    item.waiting.finish(RegistrationRefusedError(f"the event layer did not answer: {error}"))
