"""Subscriptions of one app process: results of queries, kept by the messages of their stages.

Subscribers of the same query share one result here and one lease in the grid. One thread reads the results pipelines and
keeps the leases; it runs while there is a subscription. After a loss on the way the process requests the full result. A loss
is a replaced stage, trimmed entries, or a change out of order. Subscribers receive only the differences.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from quaestor.errors import EventLayerError, EventLayerResetError, SubscriptionError
from quaestor.event_layer import streams
from quaestor.incremental import ResultEvent
from quaestor.model import GridShape, Query
from quaestor.planning.plan import plan_query
from quaestor.ports import EventLayer
from quaestor.realtime.codec import decode_result, encode_query_event
from quaestor.realtime.followed_views import watch_view
from quaestor.realtime.live import DEFAULT_OPTIONS, LiveResult, ReportedProgress, SharedResult, SubscriberOptions
from quaestor.realtime.local_subscription import ASK_AGAIN_MS, LocalSubscription, StageAddress, SubscriptionNames
from quaestor.realtime.look_back import earlier_changes
from quaestor.realtime.messages import (
    FullResult,
    ResultChange,
    ResultMessage,
    StageProgress,
    Subscription,
    SubscriptionsEnded,
    Unsubscription,
)
from quaestor.realtime.notices import DeliveryMode, Resynchronized, remedy
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS, PipelineReader
from quaestor.realtime.query_resolution import Resolver, resolved
from quaestor.realtime.replica import Replica
from quaestor.realtime.rows import OutOfStepError
from quaestor.realtime.stall_watch import StallWatch
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import KeptThread

_RECONNECT_S: Final = 0.2
_LOOK_AGAIN_S: Final = 0.01


class Subscriptions:
    """Subscriptions of one app process. stop() ends the thread; the results then stand still.

    shape: of the grid, None while it is not known.
    resolver: fills in what a query does not say of its collection (text index, default collation); None: nobody does.
    """

    def __init__(
        self,
        layer: EventLayer,
        process: ProcessContext,
        *,
        shape: Callable[[], GridShape | None],
        resolver: Resolver | None = None,
    ) -> None:
        self._process = process
        self._layer = layer
        self._shape = shape
        self.resolver = resolver
        self._names = SubscriptionNames()
        self._lock = threading.RLock()
        self._subscriptions: dict[str, LocalSubscription] = {}
        self._reader = PipelineReader(layer, {}, retention_ms=process.settings.grid.retention_ms)
        self._reported: dict[str, ReportedProgress] = {}
        self._thread: KeptThread | None = None
        self._housekept_ms = 0
        self._interrupted = False
        self._stall_watch = StallWatch(process.telemetry, bound_ms=process.settings.grid.staleness_bound_ms)
        self._placed: GridShape | None = None
        self._work = threading.Event()

    @property
    def queries(self) -> int:
        """Number of different queries that this process is subscribed to."""
        return len(self._subscriptions)

    async def subscribe(
        self,
        query: Query,
        *,
        delivery: DeliveryMode = DeliveryMode.STATE,
        deadline_s: float = 10.0,
        steps: bool = False,
        poll_interval_ms: int | None = None,
    ) -> LiveResult:
        """Follow the result of a query. Returns when the result is known; iterate for its changes, `cancel` to end.

        delivery: the weakest accepted mode.
        steps: send a `Step` after the events of each change, and after each full result.
        poll_interval_ms: read the result again at most once in this time; None: as the setting says. The smallest interval of
            all subscribers to a query counts.

        Raises QueryError if the query is malformed, or its result does not follow from writes. Raises SubscriptionError if the
        grid refuses it, has not answered by the deadline, or cannot deliver in this mode.
        """
        named, (query, recomputation) = query, await resolved(query, self.resolver)
        every_ms = self._process.settings.realtime.poll_interval_ms if poll_interval_ms is None else poll_interval_ms
        options = SubscriberOptions(
            exact=delivery is DeliveryMode.EXACT, steps=steps, poll_interval_ms=max(1, every_ms)
        )
        if recomputation is not None and options.exact:
            raise SubscriptionError(f"{recomputation}; follow with delivery='state'", retryable=False)
        query_id = plan_query(query).query_id
        try:
            with anyio.fail_after(deadline_s):
                await self._known_shape()
                live = self._join(query_id, query, options, recomputation)
                self._ensure_running()
                try:
                    await anyio.to_thread.run_sync(self._open, query_id)
                    await live.ready()
                    self._require_delivery(live)
                    if live.options.exact:
                        await live.matched()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await live.cancel()
                    raise
        except TimeoutError:
            raise SubscriptionError(f"the grid has not shown the result within {deadline_s} s") from None
        if self.resolver is not None and query.namespace != named.namespace:
            watch_view(live, named, self.resolver, self._process)
        return live

    def stop(self) -> None:
        """End all subscriptions, and the thread. Blocks until it has ended."""
        if self._thread is not None:
            self._thread.stop()
        with self._lock:
            self._thread = None
            self._reader.positions.clear()
            ended, self._subscriptions = list(self._subscriptions.values()), {}
            for local in ended:
                local.fail(SubscriptionError("this process follows nothing any more"))
        for local in ended:
            self._send_quietly(local.stage, local.unsubscription())

    async def _known_shape(self) -> None:
        while self._shape() is None:  # noqa: ASYNC110
            await anyio.sleep(_LOOK_AGAIN_S)

    def _join(
        self,
        query_id: str,
        query: Query,
        options: SubscriberOptions = DEFAULT_OPTIONS,
        recomputation: str | None = None,
    ) -> LiveResult:
        """Add a subscriber. A new subscription is placed under the lock: whatever shape is followed later finds it."""
        with self._lock:
            local = self._subscriptions.get(query_id)
            if local is None:
                shape = self._shape()
                if shape is None:
                    raise SubscriptionError("the grid has been lost meanwhile")
                stage, name = StageAddress.of(query_id, shape), self._names.next()
                shared = SharedResult(
                    lock=self._lock,
                    query_id=query_id,
                    query=query,
                    replica=Replica(name),
                    reported=self._reported_by(stage),
                    recomputation=recomputation,
                )
                local = LocalSubscription(id=name, query_id=query_id, stage=stage, shared=shared)
                self._subscriptions[query_id] = local
            elif options.exact and local.shared.replica.known and local.shared.delivery is not DeliveryMode.EXACT:
                local.rename(self._names.next())  # post-images may have been switched on since: its stage has to look
            queue = self._process.settings.realtime.subscription_queue
            earlier = partial(earlier_changes, self._layer, lambda: self._results_of(local.stage), query_id)
            live = LiveResult(local.shared, queue=queue, cancel=self._leave, options=options, earlier=earlier)
            local.add(live)
            return live

    def _require_delivery(self, live: LiveResult) -> None:
        with self._lock:  # it is taken over together with what it lacks
            if live.options.exact and live.delivery is not DeliveryMode.EXACT:
                raise SubscriptionError(remedy(live.lacking), retryable=False)

    async def _leave(self, live: LiveResult, shared: SharedResult) -> None:
        local = self._left(live, shared)
        if local is not None:
            await anyio.to_thread.run_sync(self._send_quietly, local.stage, local.unsubscription())

    def _left(self, live: LiveResult, shared: SharedResult) -> LocalSubscription | None:
        """Returns the subscription that has no subscriber here any more."""
        with self._lock:
            local = self._subscriptions.get(shared.query_id)
            if local is None or local.shared is not shared:
                return None
            local.live.discard(live)
            return None if local.live else self._subscriptions.pop(shared.query_id)

    def _reported_by(self, stage: StageAddress) -> ReportedProgress:
        return self._reported.setdefault(self._results_of(stage), ReportedProgress())

    def _results_of(self, stage: StageAddress) -> str:
        return streams.results(self._process.settings.deployment, *stage)

    def _open(self, query_id: str) -> None:
        """Tell the stage that this process is subscribed to the query, unless it knows."""
        with self._lock:
            local = self._subscriptions.get(query_id)
            if local is None or local.asked_ms:
                return
            stream = self._results_of(local.stage)
            known = stream in self._reader.positions
        if not known:
            try:
                offset = self._layer.offset_at(stream, self._process.clock() - LOOK_BACK_MS)
            except EventLayerError as error:
                raise SubscriptionError(f"the event layer did not answer: {error}") from error
            with self._lock:
                self._reader.positions.setdefault(stream, offset)
        self._ask(local)
        self._work.set()

    def _ask(self, local: LocalSubscription) -> None:
        now_ms = self._process.clock()
        local.asked_ms = now_ms
        expires_at_ms = now_ms + self._process.settings.realtime.subscription_lease_ms
        self._send_quietly(local.stage, local.subscription(self._process.settings.owner, expires_at_ms=expires_at_ms))

    def _send_quietly(self, stage: StageAddress, event: Subscription | Unsubscription) -> None:
        """Send an event. After a failure it is sent again later, or its lease ends."""
        try:
            self._layer.append(streams.queries(self._process.settings.deployment, *stage), [encode_query_event(event)])
        except EventLayerError as error:
            self._process.telemetry.failure("event-layer", "subscriptions.send_failed", error)

    def _ensure_running(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = self._process.supervisor.thread("subscriptions", self._run, wake=self._work.set)

    def _run(self, stop: threading.Event) -> None:
        if self._interrupted:  # some message may have been read and not taken
            self._begin_anew()
        while not stop.is_set():
            self._interrupted = True
            try:
                self._step()
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
            with self._lock:
                self._stall_watch.look(self._subscriptions.values(), self._process.clock())
            self._interrupted = False

    def _step(self) -> None:
        if not self._reader.positions or not self._subscriptions:
            self._work.wait(_LOOK_AGAIN_S * 10)
            self._work.clear()
            self._housekeep()
            return
        entries = self._reader.read(block_ms=self._process.settings.grid.heartbeat_ms)
        with self._lock:
            for entry in entries:
                if entry.stream not in self._reader.positions:
                    continue
                if self._reader.missed(entry):
                    raise EventLayerResetError("results were trimmed before they were read")
                self._reader.acknowledge(entry)
                self._take(entry.stream, decode_result(entry.payload))
        self._housekeep()

    def _take(self, stream: str, message: ResultMessage) -> None:
        if isinstance(message, StageProgress):
            if stream in self._reported:
                self._reported[stream].update(message)
            return
        local = self._subscriptions.get(message.query_id)
        if local is None or self._results_of(local.stage) != stream:
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
            local.shared.needs_full_result = False
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
        del self._subscriptions[message.query_id]
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
                stream: self._layer.offset_at(stream, now_ms - LOOK_BACK_MS) for stream in list(self._reader.positions)
            }
        except EventLayerError as error:
            self._process.telemetry.failure("event-layer", "subscriptions.read_failed", error)
            return
        with self._lock:
            self._reader.positions.update(offsets)
            for local in self._subscriptions.values():
                local.rename(self._names.next())

    def _housekeep(self) -> None:
        """Once a second: renew leases, ask again for what was not sent, end what has no subscriber any more."""
        now_ms = self._process.clock()
        if now_ms - self._housekept_ms < ASK_AGAIN_MS // 2:
            return
        self._housekept_ms = now_ms
        self._follow_shape(now_ms)
        with self._lock:
            abandoned = [local for local in self._subscriptions.values() if not local.live]
            for local in abandoned:
                del self._subscriptions[local.query_id]
            extend_ms = self._process.settings.realtime.subscription_extend_ms
            due = [local for local in self._subscriptions.values() if local.is_due(now_ms, extend_ms=extend_ms)]
            wanted = {self._results_of(local.stage) for local in self._subscriptions.values()}
            self._measure(wanted, now_ms)
            for stream in self._reader.positions.keys() - wanted:
                del self._reader.positions[stream]
        for local in abandoned:
            self._send_quietly(local.stage, local.unsubscription())
        for local in due:
            self._ask(local)

    def _measure(self, wanted: Set[str], now_ms: int) -> None:
        reported_ms = [reported.fresh_as_of_ms for stream, reported in self._reported.items() if stream in wanted]
        metrics = self._process.telemetry.subscriptions
        metrics.queries.set(len(self._subscriptions))
        metrics.subscribers.set(sum(len(local.live) for local in self._subscriptions.values()))
        known_ms = [at_ms for at_ms in reported_ms if at_ms]
        metrics.lag_s.set(max(0, now_ms - min(known_ms)) / 1000 if known_ms else 0)

    def _follow_shape(self, now_ms: int) -> None:
        """The grid was partitioned anew: other stages are responsible for the queries now."""
        with self._lock:
            shape = self._shape()
            if shape is None or shape == self._placed:
                return
            stages = [(local, StageAddress.of(local.query_id, shape)) for local in self._subscriptions.values()]
        moved = [(local, stage) for local, stage in stages if local.stage != stage]
        offsets = {
            stage: self._layer.offset_at(self._results_of(stage), now_ms - LOOK_BACK_MS)
            for stage in {stage for _, stage in moved}
        }
        with self._lock:
            for local, stage in moved:
                local.stage = stage
                local.shared.move(self._reported_by(stage), now_ms=now_ms)
                self._reader.positions.setdefault(self._results_of(stage), offsets[stage])
                local.rename(self._names.next())
        self._placed = shape
