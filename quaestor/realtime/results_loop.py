"""Loop that reads the results pipelines of the followed queries, and keeps the leases of their subscriptions.

After a loss on the way the loop requests the full result. A loss is a replaced stage, trimmed entries, or a change out of
order. Subscribers receive only the differences.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence, Set
from typing import Final

from quaestor.errors import EventLayerError, EventLayerResetError, SubscriptionError
from quaestor.incremental import ResultEvent
from quaestor.model import GridShape
from quaestor.ports import EventLayer
from quaestor.realtime.codec import concerned_query, decode_result
from quaestor.realtime.local_subscription import ASK_AGAIN_MS, LocalSubscription, StageAddress
from quaestor.realtime.local_subscriptions import LocalSubscriptions
from quaestor.realtime.messages import FullResult, ResultChange, ResultMessage, StageProgress, SubscriptionsEnded
from quaestor.realtime.notices import DeliveryMode, Resynchronized
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS
from quaestor.realtime.rows import OutOfStepError
from quaestor.realtime.stall_watch import StallWatch
from quaestor.runtime.supervision.process_context import ProcessContext

_RECONNECT_S: Final = 0.2
_IDLE_S: Final = 0.1
_HOUSEKEEPING_MS: Final = ASK_AGAIN_MS // 10
_LEAST_AT_ONCE: Final = 20
"""Number of leases that may be extended at once in any case. One takes some 0.1 ms, here and in the grid."""


class ResultsLoop:
    """Loop over the results pipelines of one process. One thread runs it."""

    def __init__(self, layer: EventLayer, process: ProcessContext, followed: LocalSubscriptions) -> None:
        self._layer = layer
        self._process = process
        self._followed = followed
        self._housekept_ms = 0
        self._interrupted = False
        self._stall_watch = StallWatch(process.telemetry, bound_ms=process.settings.grid.staleness_bound_ms)
        self._placed: GridShape | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until stop is set. Survives every failure."""
        if self._interrupted:  # some message may have been read and not taken
            self._begin_anew()
        while not stop.is_set():
            self._interrupted = True
            try:
                self.step()
            except EventLayerResetError as error:
                self._process.telemetry.failure("event-layer", "subscriptions.event_layer_reset", error)
                self._begin_anew()
            except EventLayerError as error:
                self._process.telemetry.failure("event-layer", "subscriptions.read_failed", error)
                stop.wait(_RECONNECT_S)
            except Exception as error:  # one message that nobody understands must not end the only reader
                self._process.telemetry.failure("event-layer", "subscriptions.message_failed", repr(error))
                self._begin_anew()
                stop.wait(_RECONNECT_S)
            self._look_for_stalls()
            self._interrupted = False

    def step(self) -> None:
        """Read the pipelines once, and take what was read."""
        if not self._followed.reader.positions or not self._followed.by_query:
            self._followed.work.wait(_IDLE_S)
            self._followed.work.clear()
            self._housekeep()
            return
        entries = self._followed.reader.read(block_ms=self._process.settings.grid.heartbeat_ms)
        with self._followed.lock:
            for entry in entries:
                if entry.stream not in self._followed.reader.positions:
                    continue
                if self._followed.reader.missed(entry):
                    raise EventLayerResetError("results were trimmed before they were read")
                self._followed.reader.acknowledge(entry)
                query_id = concerned_query(entry.payload)
                if query_id is None or query_id in self._followed.by_query:  # most may concern other processes' queries
                    self._take(entry.stream, decode_result(entry.payload))
        self._housekeep()

    def _look_for_stalls(self) -> None:
        now_ms = self._process.clock()
        with self._followed.lock:
            parts = self._stall_watch.parts(self._followed.by_query.values(), now_ms)
        for part in parts:
            with self._followed.lock:
                self._stall_watch.look(part, now_ms)

    def _take(self, stream: str, message: ResultMessage) -> None:
        if isinstance(message, StageProgress):
            if stream in self._followed.reported:
                self._followed.reported[stream].update(message)
            return
        local = self._followed.by_query.get(message.query_id)
        if local is None or self._followed.results_of(local.stage) != stream:
            return
        match message:
            case FullResult():
                self._take_full(local, message)
            case ResultChange():
                self._take_change(local, message)
            case SubscriptionsEnded():
                if message.subscription_ids is None or local.id in message.subscription_ids:
                    self._take_end(local, message)

    def _take_full(self, local: LocalSubscription, message: FullResult) -> None:
        if not local.shared.admits(message, now_ms=self._process.clock()):
            return  # it is asked for again
        events = local.shared.replica.replace(message)
        if events is not None:
            local.shared.take_full(message)
            self._process.telemetry.subscriptions.wholes.inc()
            self._push(local, events, reread=True)
            local.take_lacking(message.lacking)

    def _take_change(self, local: LocalSubscription, message: ResultChange) -> None:
        try:
            self._push(local, local.shared.replica.apply(message), reread=message.reread)
            if message.reread and local.shared.replica.epoch == message.epoch:
                local.shared.take_reread(message)
        except OutOfStepError as error:
            self._process.telemetry.failure("event-layer", "subscriptions.out_of_step", error)
            self._push(local, error.applied)
            local.require_full_result()

    def _take_end(self, local: LocalSubscription, message: SubscriptionsEnded) -> None:
        if message.again:
            local.require_full_result()
            return
        self._followed.end(local)
        self._process.telemetry.subscriptions.refused.inc()
        local.fail(SubscriptionError(message.reason, retryable=False))

    def _push(self, local: LocalSubscription, events: Sequence[ResultEvent], *, reread: bool = False) -> None:
        self._process.telemetry.subscriptions.events.inc(len(events))
        if events and reread and local.shared.delivery is DeliveryMode.EXACT:
            local.push([Resynchronized(events=len(events))])
        local.push(events, step=local.shared.replica.step)

    def _begin_anew(self) -> None:
        """Nothing says what was missed: ask for every result, from the present on."""
        now_ms = self._process.clock()
        try:
            offsets = {
                stream: self._layer.offset_at(stream, now_ms - LOOK_BACK_MS)
                for stream in list(self._followed.reader.positions)
            }
        except EventLayerError as error:
            self._process.telemetry.failure("event-layer", "subscriptions.read_failed", error)
            return
        with self._followed.lock:
            self._followed.reader.positions.update(offsets)
            for local in self._followed.by_query.values():
                local.rename(self._followed.names.next())

    def _housekeep(self) -> None:
        """Ten times a second: renew leases, ask again for what was not sent, end what has no subscriber any more."""
        now_ms = self._process.clock()
        passed_ms = now_ms - self._housekept_ms
        if 0 <= passed_ms < _HOUSEKEEPING_MS:
            return
        self._housekept_ms = now_ms
        self._followed.look_back.forget()
        self.follow_shape(now_ms)
        for local in self._followed.abandoned():
            self._followed.send(local.stage, local.unsubscription())
        self._measure(self._forget_pipelines(), now_ms)
        self._followed.ask(self._followed.due(now_ms, most=self._extended_in(passed_ms)))

    def _forget_pipelines(self) -> set[str]:
        """Forget pipelines that no subscription reads any more. Return the others."""
        with self._followed.lock:
            wanted = self._followed.followed_pipelines
            for stream in self._followed.reader.positions.keys() - wanted:
                del self._followed.reader.positions[stream]
        return wanted

    def _extended_in(self, passed_ms: int) -> int:
        """The most leases to extend after this time: twice the average, at most that of a second.

        Subscriptions that began together would otherwise all be extended together, and delay the results meanwhile.
        """
        extend_ms = max(1, self._process.settings.realtime.subscription_extend_ms)
        counted_ms = min(max(0, passed_ms), ASK_AGAIN_MS)
        return len(self._followed.by_query) * counted_ms * 2 // extend_ms + _LEAST_AT_ONCE

    def _measure(self, wanted: Set[str], now_ms: int) -> None:
        reported_ms = [
            reported.fresh_as_of_ms for stream, reported in self._followed.reported.items() if stream in wanted
        ]
        metrics = self._process.telemetry.subscriptions
        metrics.queries.set(len(self._followed.by_query))
        metrics.subscribers.set(self._followed.subscribers)
        known_ms = [at_ms for at_ms in reported_ms if at_ms]
        metrics.lag_s.set(max(0, now_ms - min(known_ms)) / 1000 if known_ms else 0)

    def follow_shape(self, now_ms: int) -> None:
        """The grid was partitioned anew: other stages are responsible for the queries now."""
        with self._followed.lock:
            shape = self._followed.shape()
            if shape is None or shape == self._placed:
                return
            stages = [(local, StageAddress.of(local.query_id, shape)) for local in self._followed.by_query.values()]
        moved = [(local, stage) for local, stage in stages if local.stage != stage]
        offsets = {
            stage: self._layer.offset_at(self._followed.results_of(stage), now_ms - LOOK_BACK_MS)
            for stage in {stage for _, stage in moved}
        }
        with self._followed.lock:
            for local, stage in moved:
                if not self._followed.move(local, stage):
                    continue
                local.shared.move(self._followed.reported_by(stage), now_ms=now_ms)
                self._followed.reader.positions.setdefault(self._followed.results_of(stage), offsets[stage])
                local.rename(self._followed.names.next())
        self._placed = shape
