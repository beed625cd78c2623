"""Sender of an app process's events to the query pipelines: one thread, and one round trip for all waiting events.

Events without a waiting caller (cancellations: cells only forget a little sooner) are collected for a moment, or go with the
next event. Otherwise every invalidation would wake this thread and all cells of the query partition once more, while the
next write is to be handled.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from quaestor.errors import EventLayerError, RegistrationRefusedError
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer

LATER_S: Final = 0.05
"""Longest time for which events without a waiting caller are collected."""


class Waiting(Protocol):
    """Part that waits for an answer to an event."""

    def finish(self, error: Exception | None = None) -> None:
        """Stop waiting: the event could not be sent."""


class _Word(Enum):
    """Signal to the thread, beside the events to send."""

    LATER = auto()
    END = auto()


@dataclass(slots=True)
class _Outgoing:
    stream: str
    payload: bytes
    waiting: Waiting | None = None


class QuerySender:
    """Sender to query pipelines.

    Events keep their order within a stream; so do delayed ones, behind those sent before. An event that cannot be appended
    is lost, and counted.
    """

    def __init__(self, layer: EventLayer, telemetry: EventLog) -> None:
        self._layer = layer
        self._telemetry = telemetry
        self._queue: queue.SimpleQueue[_Outgoing | _Word] = queue.SimpleQueue()
        self._later: list[_Outgoing] = []
        self._lock = threading.Lock()

    def send(self, stream: str, payload: bytes, waiting: Waiting | None = None) -> None:
        """Send one query event, from any thread.

        waiting: finished at once if the event could not be sent.
        """
        item = _Outgoing(stream, payload, waiting)
        if self._layer.immediate:
            self._append(stream, [item])
        else:
            self._queue.put(item)

    def send_later(self, stream: str, payload: bytes) -> None:
        """Send a query event without a waiting caller, from any thread: with the next event, or within LATER_S."""
        with self._lock:
            first = not self._later
            self._later.append(_Outgoing(stream, payload))
        if first:
            self._queue.put(_Word.LATER)

    def end(self) -> None:
        """Wake run() after its `stop` was set: it returns once all waiting events have been sent."""
        self._queue.put(_Word.END)

    def run(self, stop: threading.Event) -> None:
        """Send waiting events until `stop` is set. The body of the thread."""
        while True:
            batch = [self._queue.get()]
            with suppress(queue.Empty):
                if batch == [_Word.LATER]:
                    batch.append(self._queue.get(timeout=LATER_S))
                while True:
                    batch.append(self._queue.get_nowait())
            by_stream: dict[str, list[_Outgoing]] = {}
            for item in [*batch, *self._collected()]:
                if isinstance(item, _Outgoing):
                    by_stream.setdefault(item.stream, []).append(item)
            for stream, items in by_stream.items():
                self._append(stream, items)
            if stop.is_set():
                return

    def _collected(self) -> list[_Outgoing]:
        with self._lock:
            later, self._later = self._later, []
        return later

    def _append(self, stream: str, items: Sequence[_Outgoing]) -> None:
        try:
            self._layer.append(stream, [item.payload for item in items])
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "registry.send_failed", error)
            for item in items:
                if item.waiting is not None:
                    item.waiting.finish(RegistrationRefusedError(f"the event layer did not answer: {error}"))
        except Exception as error:  # the supervisor counts it, and restarts the thread
            for item in items:
                if item.waiting is not None:
                    item.waiting.finish(RegistrationRefusedError(f"the query could not be sent: {error!r}"))
            raise
