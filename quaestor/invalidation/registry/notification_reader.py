"""Reader of a tenant's notification pipeline for one app process: all notifications, in order, from the last marked position.

While app processes run, all of them see every invalidation. While none runs, the grid goes on invalidating, and no process
evicts or purges. The processes therefore keep a mark of their progress in the pipeline. A starting process reads on from the
mark. If the pipeline was trimmed past the mark, no stored or sent answer can be trusted (a reset).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from quaestor.errors import ConfigurationError, EventLayerError, EventLayerResetError
from quaestor.event_layer import codec, offsets, streams
from quaestor.event_layer.bounds import doubtful_after_ms
from quaestor.event_layer.turns import Turns, turns_on
from quaestor.model import Notification
from quaestor.ports import EventLayer, StreamEntry
from quaestor.runtime.supervision.process_context import ProcessContext

LOOK_BACK_MS = 120_000
"""Shortest look-back of a starting process, to learn the dead registrations among entries of other processes."""
MARK_EVERY_MS = 5_000
"""Period of the mark. The mark moves to the reader's position one period ago: later notifications may not be worked off."""
BATCH = 1_000
"""Notifications in one read; fewer than that means that the reader has caught up."""
RECONNECT_S = 0.2
_REST_S = 1.0
"""Longest wait for a notification on a layer in memory, which wakes the reader for each one."""
MISCONFIGURED_S = 5.0
"""Pause after a fault in a server's configuration, which an operator has to mend."""


class NotificationTaker(Protocol):
    """Part that acts on notifications, in the thread that reads them."""

    def take(self, notifications: Sequence[Notification], *, complete: bool) -> None:
        """Act on these notifications; every notification comes, in order, at least once.

        complete: all notifications that existed when reading began were taken before.
        """

    def reset(self, why: str) -> None:
        """Distrust all stored answers: a notification was missed."""


class NotificationReader:
    """Reader of one notification pipeline. run() is the body of its thread.

    taker: receives the notifications, in that thread.
    caught_up: whether all notifications that existed at the start have been taken.
    known_since_ms: an invalidation of entries stored before this time may be unknown (event layer's clock).
    """

    def __init__(self, layer: EventLayer, process: ProcessContext, *, taker: NotificationTaker) -> None:
        settings = process.settings
        self.caught_up = False
        self.known_since_ms = 0
        self._layer = layer
        self._process = process
        self._taker = taker
        tenant = settings.owner
        self._stream = streams.notifications(settings.deployment, tenant)
        self._mark_name = streams.attended(settings.deployment, tenant)
        self._heartbeats = None if tenant == settings.deployment else streams.heartbeats(settings.deployment)
        self._beats_offset: str | None = None
        self._beats: list[Notification] = []
        self._offset: str | None = None
        self._to_mark: str | None = None
        self._marked_at_ms = 0
        self._read_at_ms = 0
        self._interrupted = False

    def forget(self) -> None:
        """Forget the reader's position: the event layer has begun anew."""
        self._offset = self._to_mark = self._beats_offset = None
        self._beats.clear()

    def run(self, stop: threading.Event) -> None:
        """Read until stop is set; survives every failure of the event layer."""
        self.caught_up = False
        if self._interrupted:  # a notification may have been read and not taken
            self._taker.reset("the reader of notifications was interrupted")
        while not stop.is_set():
            self._interrupted = True
            try:
                if (turns := turns_on(self._layer)) is not None:
                    turns.run(stop, Turns(self._turn), (self._stream,), self._behind)
                else:
                    self._step()
            except EventLayerResetError as error:
                self._process.telemetry.failure("event-layer", "registry.event_layer_reset", error)
                self._taker.reset(str(error))
                self.forget()
            except EventLayerError as error:
                self._process.telemetry.failure("event-layer", "registry.read_failed", error)
                stop.wait(RECONNECT_S)
            except ConfigurationError as error:
                self._process.telemetry.failure("configuration", "registry.misconfigured", error)
                stop.wait(MISCONFIGURED_S)
            except Exception as error:  # an unreadable payload must not end the only reader
                self._process.telemetry.failure("event-layer", "registry.notification_unreadable", error)
                self._taker.reset(f"a notification could not be read: {error}")
            self._interrupted = False

    def end(self) -> None:
        """Wake the reader, so that it sees that it is to stop."""
        if (turns := turns_on(self._layer)) is not None:
            turns.wake(self._stream)

    def _turn(self) -> float:
        """Step without a wait. Returns after how many seconds the next step is due."""
        self._interrupted = True
        read = self._step(waits=False)
        self._interrupted = False
        return 0.0 if read >= BATCH else _REST_S

    def _behind(self) -> dict[str, str]:
        assert self._offset is not None
        positions = {self._stream: self._offset}
        if self._heartbeats is not None:
            positions[self._heartbeats] = self._beats_offset or self._offset
        return positions

    def _step(self, *, waits: bool = True) -> int:
        """Read and take once. Returns the number of notifications."""
        offset = self._offset if self._offset is not None else self._begin()
        now_ms = self._process.clock()
        if self._read_at_ms and now_ms - self._read_at_ms > doubtful_after_ms(self._process.settings.grid.retention_ms):
            first = self._layer.first_offset(self._stream)
            if first is None or streams.missed(offset, first):
                self._taker.reset("notifications were trimmed before they were read")
        entries = self._read(offset, wait_ms=self._process.settings.grid.heartbeat_ms if waits else 0)
        self._read_at_ms = self._process.clock()
        if entries:
            self._offset = entries[-1].offset
            self._take([codec.decode_notification(entry.payload) for entry in entries])
        if self._beats and len(entries) < BATCH:
            beats, self._beats = self._beats, []
            self._take(beats)
        if not self.caught_up and len(entries) < BATCH:
            self.caught_up = True
        if self.caught_up and entries and self._read_at_ms - self._marked_at_ms >= MARK_EVERY_MS:
            self._to_mark = self._to_mark or self._offset  # the first mark is made at once
            self._mark()
        return len(entries)

    def _take(self, notifications: Sequence[Notification]) -> None:
        self._taker.take(notifications, complete=self.caught_up)

    def _read(self, offset: str, *, wait_ms: int) -> list[StreamEntry]:
        """Return this tenant's notifications.

        Heartbeats of another pipeline are set aside until all earlier notifications are taken.
        """
        if self._heartbeats is None:
            return self._layer.read({self._stream: offset}, count=BATCH, block_ms=wait_ms)
        positions = {self._stream: offset, self._heartbeats: self._beats_offset or offset}
        entries = self._layer.read(positions, count=BATCH, block_ms=wait_ms)
        relevant: list[StreamEntry] = []
        for entry in entries:
            if entry.stream == self._stream:
                relevant.append(entry)
            else:
                self._beats_offset = entry.offset
                self._beats.append(codec.decode_notification(entry.payload))
        return relevant

    def _begin(self) -> str:
        """Return the position to start at: LOOK_BACK_MS ago, or the mark if that is earlier."""
        start = self._layer.offset_at(self._stream, self._process.clock() - LOOK_BACK_MS)
        first = self._layer.first_offset(self._stream)
        mark = self._layer.get(self._mark_name)
        if mark is not None:
            attended = mark.decode()
            if offsets.epoch_of(attended) == offsets.epoch_of(start):
                if first is None or streams.missed(attended, first):
                    self._taker.reset("the grid went on while no process was there to evict what it invalidated")
                else:
                    start = min(start, attended)
            else:
                self._taker.reset("the event layer lost data while no process was there")
        self.known_since_ms = offsets.appended_at_ms(start if first is None else max(start, first))
        self._offset = start
        return start

    def _mark(self) -> None:
        """Move the mark, to entries only: for a mere time it could not be checked later whether its successors still exist."""
        if self._to_mark is not None and offsets.is_entry(self._to_mark):
            self._layer.put(self._mark_name, self._to_mark.encode())
        self._to_mark = self._offset
        self._marked_at_ms = self._read_at_ms
