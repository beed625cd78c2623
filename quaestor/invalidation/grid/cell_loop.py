"""The loop around a matching node: query and write pipeline in, notification pipeline out.

**Nothing is lost.** Offsets advance when entries have been matched, notifications are kept until they are appended, the
checkpoint is saved after that. A restarted cell rebuilds itself: retained writes up to the checkpoint for replay, then
the registrations that the cell before it had, then everything behind the checkpoint as usual. Matching twice is
harmless: notifications are delivered at least once anyway.

**When entries were missed** (trimmed before they were read, the event layer lost its data, a payload that nobody
understands), every registration is invalidated and the cell starts over from what there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.bounds import PipelineBounds, doubtful_after_ms
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.layer_clock import LayerClock
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, CellMeter, encode_stats
from quaestor.invalidation.grid.checkpoint import Checkpoint, LongestLeases
from quaestor.invalidation.grid.fair_queue import FairQueue
from quaestor.invalidation.grid.pipeline_maintenance import PipelineMaintenance
from quaestor.invalidation.grid.query_events import QueryEvents
from quaestor.invalidation.grid.resizing.messages import concerns_resizing
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.invalidation.grid.subscription_events import SubscriptionEvents
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import (
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    Notification,
    Registration,
    Version,
    WriteKind,
)
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer, StreamEntry

_ENTRIES_AT_ONCE: Final = 500
_ENTRIES_BEHIND: Final = 2_500
"""Read at once while query events wait for their turn: whoever is behind them is to be found soon."""
_QUERY_EVENTS_AT_ONCE: Final = 200
_QUERY_EVENTS_S: Final = 0.1
"""Dealt with before writes have their turn again, whichever is over first."""
_TRIM_EVERY_S: Final = 1.0
_MOST_NAMED: Final = 5
_LONGEST_PAUSE_S: Final = 1.0
_NO_VERSION: Final = 0


class CellLoop:
    """Runs one matching node on an event layer. One thread; the node is its own."""

    def __init__(
        self,
        node: MatchingNode,
        layer: EventLayer,
        cell: Cell,
        shape: GridShape,
        *,
        deployment: str,
        heartbeat_ms: int,
        retention_ms: int,
        bounds: PipelineBounds | None = None,
        clock: Clock = system_clock,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._node = node
        self._layer = layer
        self._cell = cell
        self._shape = shape
        self._queries = streams.queries(deployment, cell.query_partition, shape.generation)
        self._writes = streams.writes(deployment, cell.write_partition, shape.generation)
        self._checkpoint_name = streams.checkpoint(deployment, cell, shape.generation)
        self._heartbeat_s = heartbeat_ms / 1000
        self._retention_ms = retention_ms
        self._bounds = bounds or PipelineBounds()
        self._clock = clock
        self._layer_clock = LayerClock(clock)
        self._telemetry = telemetry or Telemetry()
        matched = streams.matched(deployment, cell.query_partition, shape.generation)
        self._standing = SubscriptionEvents(node, cell, stream=matched, telemetry=self._telemetry)
        self._started = False
        self._position = Checkpoint(offsets.START, offsets.START, _NO_VERSION)
        self._complete: tuple[str, Version] | None = None
        self._out = CellOutbox(layer, deployment)
        self._leases = LongestLeases()
        self._succession = Succession(layer, cell, shape, deployment=deployment, leases=self._leases)
        self._events = QueryEvents(
            node,
            cell,
            deployment=deployment,
            standing=self._standing,
            succession=self._succession,
            leases=self._leases,
            out=self._out,
            clock=clock,
            telemetry=self._telemetry,
        )
        self._upkeep = PipelineMaintenance(
            layer,
            node,
            cell,
            shape,
            deployment=deployment,
            out=self._out,
            leases=self._leases,
            succession=self._succession,
            bounds=self._bounds,
            retention_ms=retention_ms,
        )
        self._backlog = FairQueue()
        self._stats_name = streams.stats(deployment, cell, shape.generation)
        self._meter = CellMeter()
        self._matched = 0
        self._heartbeat_due_s = 0.0
        self._trim_due_s = 0.0
        self._failed = 0

    def run(self, stop: threading.Event) -> None:
        """Until stop is set. Survives failures of the event layer; an error of any other kind ends it."""
        while not stop.is_set():
            try:
                if not self._started:
                    self._start()
                while not stop.is_set():
                    self._step()
                    self._failed = 0
            except EventLayerResetError as error:
                self._telemetry.failure("event-layer", "cell.event_layer_reset", error, cell=str(self._cell))
                self._start_over()
            except EventLayerError as error:
                self._telemetry.failure("event-layer", "cell.event_layer_failed", error, cell=str(self._cell))
            else:
                continue
            self._failed += 1
            stop.wait(min(0.02 * 2**self._failed, _LONGEST_PAUSE_S))

    # Starting

    def _start(self) -> None:
        """Take over from the cell that saved the checkpoint, if there is one and nothing was lost since."""
        since = self._layer.offset_at(self._writes, self._clock() - self._retention_ms)
        saved = self._saved_checkpoint()
        self._succession.joined |= saved is not None
        self._succession.look_for_fence()
        if saved is None:
            reached = self._rebuild_retention(since, None)
            if reached == since:  # nothing, or this clock is fast
                reached = self._rebuild_retention(offsets.START, None)
            self._position = Checkpoint(offsets.START, reached, _NO_VERSION)
        elif streams.missed(saved.writes, self._layer.first_offset(self._writes)):
            self._telemetry.failure("event-layer", "cell.writes_missed", saved.writes, cell=str(self._cell))
            self._out.say(self._all_invalidated(saved))
            self._position = Checkpoint(saved.queries, offsets.START, _NO_VERSION)
        else:
            self._rebuild_retention(min(since, saved.writes), saved.writes)
            self._node.process(_mark(WriteKind.TICK, saved.version), now_ms=self._clock())
            self._take_over(saved)
            self._position = saved
            self._complete = saved.writes, saved.version
        self._backlog.restart(self._position.queries)
        self._standing.started()
        self._started = True

    def _saved_checkpoint(self) -> Checkpoint | None:
        saved = self._layer.get(self._checkpoint_name)
        return None if saved is None else Checkpoint.decode(saved, self._shape)

    def _rebuild_retention(self, after: str, up_to: str | None) -> str:
        """Feed the node retained writes for replay, without registrations that could fire. Returns the offset reached."""
        while entries := self._layer.read({self._writes: after}, count=_ENTRIES_AT_ONCE, block_ms=0):
            for entry in entries:
                if up_to is not None and entry.offset > up_to:
                    return after
                at_ms, size = offsets.appended_at_ms(entry.offset), len(entry.payload)
                self._node.process(decode_image(entry.payload), now_ms=at_ms, encoded=size)
                after = entry.offset
        return after

    def _retained_registrations(self, up_to: str) -> list[tuple[StreamEntry, Registration]]:
        """What the query pipeline holds up to an offset, without what was cancelled or is over."""
        found: dict[str, tuple[StreamEntry, Registration]] = {}
        after, now_ms = offsets.START, self._clock()
        while entries := self._layer.read({self._queries: after}, count=_ENTRIES_AT_ONCE, block_ms=0):
            for entry in entries:
                if entry.offset > up_to:
                    return list(found.values())
                after = entry.offset
                event = self._events.retained(entry)
                if isinstance(event, Cancellation):
                    for registration_id in event.registration_ids:
                        found.pop(registration_id, None)
                elif event is not None and event.expires_at_ms > now_ms:
                    found[event.id] = entry, event
        return list(found.values())

    def _take_over(self, saved: Checkpoint) -> None:
        """Registrations that were active at the checkpoint hold as of its version. They need no second activation."""
        for entry, registration in self._retained_registrations(saved.queries):
            self._events.take_over(entry, replace(registration, since=max(registration.since, saved.version)))

    def _all_invalidated(self, saved: Checkpoint) -> list[Invalidated]:
        return [
            self._events.invalidated(registration) for _, registration in self._retained_registrations(saved.queries)
        ]

    def _start_over(self) -> None:
        """The event layer lost its data: so did whoever relied on us."""
        self._interrupt()
        self._position = Checkpoint(offsets.START, offsets.START, _NO_VERSION)
        self._complete = None
        self._backlog.restart(offsets.START)
        self._succession.lost()
        self._upkeep.room.restart()
        self._started = True  # there is nothing to take over

    def _interrupt(self) -> None:
        """Invalidate everything; what comes next is a new beginning."""
        gap = _mark(WriteKind.GAP, _NO_VERSION)
        for notification in self._node.process(gap, now_ms=self._clock()):
            self._out.say([replace(notification, written_at_ms=self._clock())])
        self._standing.processed(gap, None)

    # Running

    def _step(self) -> None:
        """One read, everything that follows from it, one append."""
        if self._out or self._standing.pending:
            self._send()
        self._succession.look()
        queries, writes = self._read()
        ticked = False
        if self._succession.joined:
            self._take_query_events(queries)
        for entry in writes:
            ticked |= self._on_write(entry)
        if not self._succession.joined:
            # What is taken over holds as of the tick that the write pipeline of a new generation begins with.
            self._take_query_events(queries)
        self._succession.read(len(queries))
        now_s = time.monotonic()
        due = ticked or now_s >= self._heartbeat_due_s
        if due:
            if self._succession.joined:
                self._out.say([self._heartbeat()])
            self._heartbeat_due_s = now_s + self._heartbeat_s
        if self._out or self._standing.pending:
            self._send()
        if due and self._succession.joined:
            self._save_checkpoint()
        if now_s >= self._trim_due_s:
            self._trim_due_s = now_s + _TRIM_EVERY_S
            self._trim()
        elif self._upkeep.room.unfinished:
            self._upkeep.room.make(worked_off=self._position.queries, now_ms=self._clock())

    def _read(self) -> tuple[list[StreamEntry], list[StreamEntry]]:
        """What is new in the query and in the write pipeline; waits for it only if nothing else is to be done."""
        waiting = bool(self._backlog)
        wait_ms = 0 if waiting else max(1, int((self._heartbeat_due_s - time.monotonic()) * 1000))
        positions = {self._writes: self._position.writes}
        if not self._backlog.full:
            positions[self._queries] = self._backlog.read_to
        count = _ENTRIES_BEHIND if waiting else _ENTRIES_AT_ONCE
        entries = self._layer.read(positions, count=count, block_ms=wait_ms)
        self._layer_clock.read(entries)
        writes = [entry for entry in entries if entry.stream == self._writes]
        if writes and self._missed(self._writes, self._position.writes):
            self._telemetry.failure("event-layer", "cell.writes_missed", self._position.writes, cell=str(self._cell))
            self._interrupt()
        queries = [entry for entry in entries if entry.stream == self._queries]
        if queries and self._missed(self._queries, self._backlog.read_to):
            self._telemetry.failure(
                "event-layer", "cell.query_events_missed", self._backlog.read_to, cell=str(self._cell)
            )
            # Of registrations, only ones that nobody relies on (see query_retention.py).
            # What a stage has announced it announces anew.
            self._standing.started()
            self._succession.look_for_fence()
        elif queries and self._backlog.read_to == offsets.START:  # whatever came before is not missed, but for a fence
            self._succession.look_for_fence()
        return queries, writes

    def _take_query_events(self, arrived: Sequence[StreamEntry]) -> None:
        """What has arrived and what is waiting, tenants in turn; nothing overtakes what a resize brings, nor is overtaken."""
        backlog, behind = self._backlog, self._upkeep.room.behind
        taken: Iterable[StreamEntry]
        if behind or not self._succession.joined or any(concerns_resizing(entry.payload) for entry in arrived):
            taken = [*backlog.take(len(backlog)), *arrived]
            backlog.restart(arrived[-1].offset if arrived else backlog.read_to)
        else:
            backlog.arrived(arrived, self._leases)
            taken = backlog.turns(_QUERY_EVENTS_AT_ONCE, within_s=_QUERY_EVENTS_S)
        for entry in taken:
            self._events.take(entry, refused=behind)
        self._position = self._position._replace(queries=backlog.worked_off)

    def _on_write(self, entry: StreamEntry) -> bool:
        """Whether it was a tick."""
        known = self._node.watermark
        try:
            image = decode_image(entry.payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "cell.image_unreadable", error, cell=str(self._cell))
            self._interrupt()
            self._position = self._position._replace(writes=entry.offset)
            return False
        if image.kind is WriteKind.TICK:
            if image.version:
                self._complete = entry.offset, image.version
        else:
            self._matched += 1
            if image.version > known != _NO_VERSION:
                self._complete = self._position.writes, known
        if invalidated := self._processed(image, entry.payload):
            self._out.say(invalidated)
        position = self._position
        self._position = Checkpoint(position.queries, entry.offset, position.version)
        return image.kind is WriteKind.TICK

    def _processed(self, image: AfterImage, payload: bytes) -> list[Invalidated]:
        try:
            now_ms = self._clock()
            if image.kind is not WriteKind.TICK:
                self._meter.matched(wall_ms=image.wall_ms, now_ms=now_ms)
            invalidated = self._node.process(image, now_ms=now_ms, encoded=len(payload))
            self._standing.processed(image, payload)
            return invalidated
        except Exception as error:  # one bad record must not stop the node
            self._telemetry.failure("matching", "cell.write_failed", error, cell=str(self._cell))
            instead = replace(image, kind=WriteKind.COLLECTION, key=None)
            invalidated = self._node.process(instead, now_ms=self._clock())
            self._standing.processed(instead, None)
            return invalidated

    def _missed(self, stream: str, after: str) -> bool:
        """Whether entries behind `after` were trimmed before this cell could read them. Asks only if it is long behind."""
        doubtful_ms = self._layer_clock.latest_ms - doubtful_after_ms(self._retention_ms)
        if after >= self._layer.offset_at(stream, doubtful_ms):
            return False
        return streams.missed(after, self._layer.first_offset(stream))

    def _heartbeat(self) -> Notification:
        return Heartbeat(
            cell=self._cell,
            shape=self._shape,
            at_ms=self._clock(),
            fresh_as_of_ms=self._node.fresh_as_of_ms,
            watermark=self._node.watermark,
            registrations=self._node.registrations,
            writes=self._matched,
        )

    def _send(self) -> None:
        self._out.send()
        if self._standing.pending:
            self._layer.append(self._standing.stream, self._standing.pending)
            self._standing.pending.clear()

    def _save_checkpoint(self) -> None:
        if self._complete is None:
            return
        checkpoint = Checkpoint(self._position.queries, *self._complete)
        self._layer.put(self._checkpoint_name, checkpoint.encode(self._shape))

    def _trim(self) -> None:
        """Forget what is over, look after the pipelines, tell figures."""
        now_ms = self._clock()
        self._out.say(self._node.expire(now_ms, leases_ms=self._layer_clock.agreed_ms))
        if failures := self._node.take_failures():
            queries = sorted(set(failures))[:_MOST_NAMED]
            self._telemetry.failure("matching", "cell.predicates_failed", f"{len(failures)} times", queries=queries)
        self._node.standing.expire(now_ms)
        trim_ms = self._layer_clock.agreed_ms
        sizes = self._upkeep.look_after(self._position, waiting=bool(self._backlog), now_ms=now_ms, trim_ms=trim_ms)
        for size in sizes:
            self._telemetry.grid.pipeline_entries.labels(size.pipeline).set(size.entries)
            self._telemetry.grid.pipeline_bytes.labels(size.pipeline).set(size.bytes)
            if size.lag_ms != UNKNOWN_LAG:
                self._telemetry.grid.pipeline_lag_ms.labels(size.pipeline).set(size.lag_ms)
        stats = self._meter.take(self._node, now_ms=now_ms, pipelines=sizes, bounds=self._bounds)
        self._layer.put(self._stats_name, encode_stats(stats))


def _mark(kind: WriteKind, version: Version) -> AfterImage:
    return AfterImage(namespace="*", kind=kind, version=version)
