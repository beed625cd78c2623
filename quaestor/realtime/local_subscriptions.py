"""Subscriptions of one process by query, and the messages to the stages of their queries."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

import anyio.to_thread

from quaestor.errors import EventLayerError, SubscriptionError
from quaestor.event_layer import streams
from quaestor.gc_freezing import SUBSCRIPTIONS
from quaestor.model import GridShape, Query
from quaestor.ports import EventLayer
from quaestor.realtime.codec import encode_query_event
from quaestor.realtime.live import DEFAULT_OPTIONS, LiveResult, ReportedProgress, SharedResult, SubscriberOptions
from quaestor.realtime.local_subscription import (
    LocalSubscription,
    MessageTimes,
    StageAddress,
    SubscriberRef,
    SubscriptionNames,
)
from quaestor.realtime.look_back import LookBack
from quaestor.realtime.messages import ResultChange, Subscription, Unsubscription
from quaestor.realtime.notices import DeliveryMode, Step
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS, PipelineReader
from quaestor.realtime.replica import Replica
from quaestor.runtime.supervision.process_context import ProcessContext

_AT_ONCE: Final = 100
"""Messages that are made in one go. Other threads wait about a millisecond for the lock."""


class LocalSubscriptions:
    """Subscriptions of one process, one for each followed query.

    shape: of the grid, None while it is not known.
    lock: guards the subscriptions and their results.
    by_query: the subscriptions; `end` removes one.
    subscribers: number of their subscribers.
    names: their names in the grid.
    reader: of the results pipelines of their stages.
    reported: progress of these stages, by results pipeline.
    look_back: into these pipelines.
    work: set when a subscription waits for messages of its stage.
    """

    def __init__(self, layer: EventLayer, process: ProcessContext, *, shape: Callable[[], GridShape | None]) -> None:
        self.shape = shape
        self.lock = threading.RLock()
        self.by_query: dict[str, LocalSubscription] = {}
        self.subscribers = 0
        self.names = SubscriptionNames()
        self.reader = PipelineReader(layer, {}, retention_ms=process.settings.grid.retention_ms)
        self.reported: dict[str, ReportedProgress] = {}
        self.work = threading.Event()
        self.look_back = LookBack(layer, process.clock)
        self._layer = layer
        self._process = process
        self._times = MessageTimes()
        self._placed: Counter[StageAddress] = Counter()
        self._gone: deque[SubscriberRef] = deque()

    @property
    def followed_pipelines(self) -> set[str]:
        """Names of the results pipelines of the subscriptions' stages."""
        with self.lock:
            return set(map(self.results_of, self._placed))

    def join(
        self,
        query_id: str,
        query: Query,
        options: SubscriberOptions = DEFAULT_OPTIONS,
        recomputation: str | None = None,
    ) -> LiveResult:
        """Add a subscriber. A new subscription is placed under the lock: whatever shape is followed later finds it."""
        with self.lock:
            local = self.by_query.get(query_id)
            if local is None:
                shape = self.shape()
                if shape is None:
                    raise SubscriptionError("the grid has been lost meanwhile")
                stage, name = StageAddress.of(query_id, shape), self.names.next()
                shared = SharedResult(
                    lock=self.lock,
                    query_id=query_id,
                    query=query,
                    replica=Replica(name),
                    reported=self.reported_by(stage),
                    recomputation=recomputation,
                )
                local = LocalSubscription(id=name, query_id=query_id, stage=stage, shared=shared, times=self._times)
                local.number = SUBSCRIPTIONS.begun()
                self.by_query[query_id] = local
                self._placed[stage] += 1
            elif options.exact and local.shared.replica.known and local.shared.delivery is not DeliveryMode.EXACT:
                local.rename(self.names.next())  # post-images may have been switched on since: its stage has to look
            queue = self._process.settings.realtime.subscription_queue
            earlier = partial(self._earlier, local)
            live = LiveResult(local.shared, queue=queue, cancel=self._leave, options=options, earlier=earlier)
            local.add(live, gone=self._gone.append)
            self.subscribers += 1
            return live

    def _earlier(self, local: LocalSubscription, position: Step, *, wanted: int) -> list[ResultChange]:
        return self.look_back.changes(self.results_of(local.stage), local.query_id, position, wanted=wanted)

    async def _leave(self, live: LiveResult, shared: SharedResult) -> None:
        local = self.left(live, shared)
        if local is not None:
            await anyio.to_thread.run_sync(self.send, local.stage, local.unsubscription())

    def left(self, live: LiveResult, shared: SharedResult) -> LocalSubscription | None:
        """Remove a subscriber. Return the subscription if it has no subscriber here any more."""
        with self.lock:
            local = self.by_query.get(shared.query_id)
            if local is None or local.shared is not shared:
                return None
            self.subscribers -= local.discard(live)
            return None if local.references else self.end(local)

    def abandoned(self) -> list[LocalSubscription]:
        """Remove collected subscribers. Return the subscriptions that have ended with them."""
        ended = []
        with self.lock:
            while self._gone:
                reference = self._gone.popleft()
                local = self.by_query.get(reference.query_id)
                if local is None or not local.forget(reference):
                    continue
                self.subscribers -= 1
                if not local.references:
                    ended.append(self.end(local))
        return ended

    def end(self, local: LocalSubscription) -> LocalSubscription:
        """Remove a subscription, which is there, and return it. The caller holds the lock."""
        del self.by_query[local.query_id]
        SUBSCRIPTIONS.ended(local.number)
        self._times.cancel(local.query_id)
        self._displaced(local.stage)
        self.subscribers -= len(local.references)
        return local

    def end_all(self) -> list[LocalSubscription]:
        """Remove and return all subscriptions. The caller holds the lock."""
        return [self.end(local) for local in list(self.by_query.values())]

    def move(self, local: LocalSubscription, stage: StageAddress) -> bool:
        """Note that another stage is responsible; False if the subscription has ended. The caller holds the lock."""
        if self.by_query.get(local.query_id) is not local:
            return False
        self._displaced(local.stage)
        local.stage = stage
        self._placed[stage] += 1
        return True

    def _displaced(self, stage: StageAddress) -> None:
        self._placed[stage] -= 1
        if not self._placed[stage]:
            del self._placed[stage]

    def reported_by(self, stage: StageAddress) -> ReportedProgress:
        return self.reported.setdefault(self.results_of(stage), ReportedProgress())

    def results_of(self, stage: StageAddress) -> str:
        return streams.results(self._process.settings.deployment, *stage)

    def open(self, query_id: str) -> None:
        """Tell the stage that this process is subscribed to the query, unless it knows."""
        with self.lock:
            local = self.by_query.get(query_id)
            if local is None or local.asked_ms:
                return
            stream = self.results_of(local.stage)
            known = stream in self.reader.positions
        if not known:
            try:
                offset = self._layer.offset_at(stream, self._process.clock() - LOOK_BACK_MS)
            except EventLayerError as error:
                raise SubscriptionError(f"the event layer did not answer: {error}") from error
            with self.lock:
                self.reader.positions.setdefault(stream, offset)
        self.ask([local])
        self.work.set()

    def due(self, now_ms: int, *, most: int) -> Collection[LocalSubscription]:
        """Return the subscriptions whose stages have to receive their messages again. O(their number).

        most: number of leases to extend, at least 1; the others stay due.
        """
        due: dict[str, LocalSubscription] = {}
        with self.lock:
            for query_id in self._times.requests.due(now_ms):
                self._note_due(query_id, now_ms, due, request=True)
            most += len(due)
            for query_id in self._times.leases.due(now_ms):
                self._note_due(query_id, now_ms, due, request=False)
                if len(due) >= most:
                    break
        return due.values()

    def _note_due(self, query_id: str, now_ms: int, due: dict[str, LocalSubscription], *, request: bool) -> None:
        local = self.by_query.get(query_id)
        if local is not None and local.is_due(now_ms, extend_ms=self._extend_ms, request=request):
            due[query_id] = local

    def ask(self, subscriptions: Iterable[LocalSubscription]) -> None:
        """Send the stages the messages of these subscriptions, which begin them or extend their leases."""
        settings, now_ms = self._process.settings, self._process.clock()
        expires_at_ms = now_ms + settings.realtime.subscription_lease_ms

        def message(local: LocalSubscription) -> Subscription:
            local.asked(now_ms, extend_ms=self._extend_ms)
            return local.subscription(settings.owner, expires_at_ms=expires_at_ms)

        self._send_each(subscriptions, message)

    @property
    def _extend_ms(self) -> int:
        return self._process.settings.realtime.subscription_extend_ms

    def part(self, ended: Iterable[LocalSubscription], *, lasting: bool) -> None:
        """Send the stages the end of this process's subscriptions.

        lasting: stages may outlast this process. Such stages maintain the results for the time of two reports more. Clients
            that come back meanwhile continue without a read of the database.
        """
        realtime, owner = self._process.settings.realtime, self._process.settings.owner
        until_ms = self._process.clock() + 2 * realtime.subscription_extend_ms

        def message(local: LocalSubscription) -> Subscription | Unsubscription:
            is_kept = lasting and local.asked_ms > 0
            return local.parting(owner, expires_at_ms=until_ms) if is_kept else local.unsubscription()

        self._send_each(ended, message)

    def _send_each(
        self,
        subscriptions: Iterable[LocalSubscription],
        message: Callable[[LocalSubscription], Subscription | Unsubscription],
    ) -> None:
        """Send each subscription's message to its stage, in parts. The lock is held while the messages of a part are made."""
        each = list(subscriptions)
        for start in range(0, len(each), _AT_ONCE):
            by_stage: dict[StageAddress, list[Subscription | Unsubscription]] = {}
            with self.lock:
                for local in each[start : start + _AT_ONCE]:
                    by_stage.setdefault(local.stage, []).append(message(local))
            for stage, messages in by_stage.items():
                self.send(stage, *messages)

    def send(self, stage: StageAddress, *events: Subscription | Unsubscription) -> None:
        """Send events. After a failure they are sent again later, or their leases end."""
        try:
            self._layer.append(
                streams.queries(self._process.settings.deployment, *stage), list(map(encode_query_event, events))
            )
        except EventLayerError as error:
            self._process.telemetry.failure("event-layer", "subscriptions.send_failed", error)
