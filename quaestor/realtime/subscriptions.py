"""Subscriptions of one app process: which queries it follows, kept by the messages of the stages.

Subscribers of the same query share one result here and one lease in the grid. One thread reads the results pipelines and
keeps the leases; it runs while anything is followed. Whatever is missed on the way (a stage that was replaced, entries that
were trimmed, a step out of order) ends in asking for the whole result; subscribers are told the differences only.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Sequence, Set
from typing import Final, Protocol

import anyio
import anyio.to_thread
import bson

from quaestor.clock import Clock, system_clock
from quaestor.errors import EventLayerError, EventLayerResetError, SubscriptionError, UnsupportedQueryError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.query_fields import query_fields
from quaestor.incremental import ResultEvent, plan_maintenance
from quaestor.model import CapturedRead, GridShape, Query
from quaestor.observability.telemetry import Telemetry
from quaestor.planning.plan import plan_query
from quaestor.ports import EventLayer
from quaestor.realtime.codec import decode_result, encode_query_event
from quaestor.realtime.interest import Interest, Place
from quaestor.realtime.live import Column, LiveResult, Shared
from quaestor.realtime.messages import Failed, Progress, ResultMessage, Shown, Subscription, Unsubscription
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS, PipelineReader
from quaestor.realtime.replica import OutOfStepError, Replica
from quaestor.settings import Settings

_ASK_AGAIN_MS: Final = 1_000
_MOST_BYTES: Final = 256 * 1024
"""Of a query: it is repeated whenever its lease is extended."""
_RECONNECT_S: Final = 0.2
_LOOK_AGAIN_S: Final = 0.01


class Resolver(Protocol):
    """See registry.Resolver."""

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]: ...


class Subscriptions:
    """shape: of the grid, None while it is not known. stop() ends the thread; what is followed then stands still.

    resolver: fills in what a query does not say of its collection (text index, default collation); None: nobody does.
    """

    def __init__(
        self,
        layer: EventLayer,
        *,
        shape: Callable[[], GridShape | None],
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock = system_clock,
        resolver: Resolver | None = None,
    ) -> None:
        self._layer = layer
        self._shape = shape
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self.resolver = resolver
        self._origin = uuid.uuid4().hex[:12]
        self._counter = itertools.count(1)
        self._lock = threading.RLock()
        self._followed: dict[str, Interest] = {}
        self._tail = PipelineReader(layer, {}, retention_ms=settings.retention_ms)
        self._offsets = self._tail.positions
        self._columns: dict[str, Column] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._kept_ms = 0
        self._placed: GridShape | None = None
        self._work = threading.Event()

    @property
    def queries(self) -> int:
        """How many different queries this process follows."""
        return len(self._followed)

    async def subscribe(self, query: Query, *, deadline_s: float = 10.0) -> LiveResult:
        """Follow the result of a query. Returns when it is known; iterate to be told how it changes, `cancel` to end.

        Raises QueryError if it is malformed or cannot be maintained, SubscriptionError if the grid refuses it or has not
        answered by the deadline.
        """
        query = await self._resolved(query)
        plan_maintenance(query)
        size = len(bson.encode(query_fields(query), codec_options=BSON_OPTIONS))
        if size > _MOST_BYTES:
            raise UnsupportedQueryError(f"the query has {size} bytes; one of at most {_MOST_BYTES} can be followed")
        query_id = plan_query(query).query_id
        try:
            with anyio.fail_after(deadline_s):
                shape = await self._known_shape()
                live = self._join(query_id, query, Place.of(query_id, shape))
                self._ensure_running()
                try:
                    await anyio.to_thread.run_sync(self._open, query_id)
                    await live.ready()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await live.cancel()
                    raise
        except TimeoutError:
            raise SubscriptionError(f"the grid has not shown the result within {deadline_s} s") from None
        return live

    def stop(self) -> None:
        """Say that nothing is followed any more, and end the thread. Blocks until it has ended."""
        self._stop.set()
        self._work.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        with self._lock:
            followed, self._followed = list(self._followed.values()), {}
            for one in followed:
                self._over(one, SubscriptionError("this process follows nothing any more"))
        for one in followed:
            self._send_quietly(one.place, one.end())

    async def _resolved(self, query: Query) -> Query:
        if self.resolver is None:
            return query
        read = CapturedRead(query=query, read_at=0, ids=None)
        reads, reasons = await self.resolver.resolve([read])
        if reasons:  # a database that is looked at for the first time is known by the second
            reads, reasons = await self.resolver.resolve([read])
        if reasons:
            raise UnsupportedQueryError(f"{query.namespace} cannot be followed: {', '.join(reasons)}")
        if [each.query.namespace for each in reads] != [query.namespace]:
            raise UnsupportedQueryError(f"{query.namespace} is a view; follow the collection below it by a pipeline")
        return reads[0].query

    async def _known_shape(self) -> GridShape:
        shape = self._shape()
        while shape is None:
            await anyio.sleep(_LOOK_AGAIN_S)
            shape = self._shape()
        return shape

    def _join(self, query_id: str, query: Query, place: Place) -> LiveResult:
        with self._lock:
            followed = self._followed.get(query_id)
            if followed is None:
                name = self._name()
                shared = Shared(
                    lock=self._lock,
                    query_id=query_id,
                    query=query,
                    replica=Replica(name),
                    column=self._column(place),
                )
                followed = Interest(id=name, query_id=query_id, place=place, shared=shared)
                self._followed[query_id] = followed
            live = LiveResult(followed.shared, queue=self._settings.subscription_queue, cancel=self._leave)
            followed.live.add(live)
            return live

    def _name(self) -> str:
        return f"{self._origin}:{next(self._counter)}"

    async def _leave(self, live: LiveResult, shared: Shared) -> None:
        followed = self._left(live, shared)
        if followed is not None:
            await anyio.to_thread.run_sync(self._send_quietly, followed.place, followed.end())

    def _left(self, live: LiveResult, shared: Shared) -> Interest | None:
        """Returns what nobody follows here any more."""
        with self._lock:
            followed = self._followed.get(shared.query_id)
            if followed is None or followed.shared is not shared:
                return None
            followed.live.discard(live)
            return None if followed.live else self._followed.pop(shared.query_id)

    def _column(self, place: Place) -> Column:
        return self._columns.setdefault(streams.results(self._settings.deployment, *place), Column())

    def _open(self, query_id: str) -> None:
        """Tell the stage that this process follows the query, unless it knows."""
        with self._lock:
            followed = self._followed.get(query_id)
            if followed is None or followed.asked_ms:
                return
            stream = self._stream(followed)
            known = stream in self._offsets
        if not known:
            try:
                offset = self._layer.offset_at(stream, self._clock() - LOOK_BACK_MS)
            except EventLayerError as error:
                raise SubscriptionError(f"the event layer did not answer: {error}") from error
            with self._lock:
                self._offsets.setdefault(stream, offset)
        self._ask(followed)
        self._work.set()

    def _ask(self, followed: Interest) -> None:
        now_ms = self._clock()
        followed.asked_ms = now_ms
        event = Subscription(
            id=followed.id,
            tenant=self._settings.owner,
            query_id=followed.query_id,
            query=followed.shared.query,
            fresh=followed.shared.fresh,
            expires_at_ms=now_ms + self._settings.subscription_lease_ms,
        )
        self._send_quietly(followed.place, event)

    def _send_quietly(self, place: Place, event: Subscription | Unsubscription) -> None:
        """What could not be sent is sent again, or its lease ends."""
        try:
            self._layer.append(streams.queries(self._settings.deployment, *place), [encode_query_event(event)])
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "subscriptions.send_failed", error)

    def _stream(self, followed: Interest) -> str:
        return streams.results(self._settings.deployment, *followed.place)

    def _ensure_running(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="quaestor-subscriptions", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except EventLayerResetError as error:
                self._telemetry.failure("event-layer", "subscriptions.event_layer_reset", error)
                self._begin_anew()
            except EventLayerError as error:
                self._telemetry.failure("event-layer", "subscriptions.read_failed", error)
                self._stop.wait(_RECONNECT_S)
            except Exception as error:  # one message that nobody understands must not end the only reader
                self._telemetry.failure("event-layer", "subscriptions.message_failed", repr(error))
                self._begin_anew()
                self._stop.wait(_RECONNECT_S)

    def _step(self) -> None:
        if not self._offsets or not self._followed:
            self._work.wait(_LOOK_AGAIN_S * 10)
            self._work.clear()
            self._housekeep()
            return
        entries = self._tail.read(block_ms=self._settings.heartbeat_ms)
        with self._lock:
            for entry in entries:
                if entry.stream not in self._offsets:
                    continue
                if self._tail.missed(entry):
                    raise EventLayerResetError("results were trimmed before they were read")
                self._tail.passed(entry)
                self._take(entry.stream, decode_result(entry.payload))
        self._housekeep()

    def _take(self, stream: str, message: ResultMessage) -> None:
        if isinstance(message, Progress):
            if stream in self._columns:
                self._columns[stream].take(message)
            return
        followed = self._followed.get(message.query_id)
        if followed is None or self._stream(followed) != stream:
            return
        replica = followed.shared.replica
        if isinstance(message, Failed):
            if message.subscription_ids is None or followed.id in message.subscription_ids:
                if message.again:
                    followed.shared.fresh, followed.asked_ms = True, 1
                else:
                    del self._followed[message.query_id]
                    self._telemetry.subscriptions.refused.inc()
                    self._over(followed, SubscriptionError(message.reason, retryable=False))
            return
        if isinstance(message, Shown):
            events = replica.show(message)
            if events is not None:
                followed.shared.fresh = False
                self._telemetry.subscriptions.wholes.inc()
                self._push(followed, events)
            return
        try:
            self._push(followed, replica.change(message))
        except OutOfStepError as error:
            self._telemetry.failure("event-layer", "subscriptions.out_of_step", error)
            self._push(followed, error.applied)
            followed.shared.fresh, followed.asked_ms = True, 1

    def _push(self, followed: Interest, events: Sequence[ResultEvent]) -> None:
        self._telemetry.subscriptions.events.inc(len(events))
        for live in followed.live:
            live.push(events)

    def _over(self, followed: Interest, error: SubscriptionError) -> None:
        for live in followed.live:
            live.fail(error)

    def _begin_anew(self) -> None:
        """Nothing says what was missed: ask for every result, from the present on."""
        now_ms = self._clock()
        try:
            offsets = {stream: self._layer.offset_at(stream, now_ms - LOOK_BACK_MS) for stream in list(self._offsets)}
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "subscriptions.read_failed", error)
            return
        with self._lock:
            self._offsets.update(offsets)
            for followed in self._followed.values():
                self._rename(followed)

    def _rename(self, followed: Interest) -> None:
        """Under another name, so that no older message can be taken for the answer. The old one's lease ends."""
        followed.id = self._name()
        followed.shared.replica.begin_anew(followed.id)
        followed.shared.fresh, followed.asked_ms = True, min(followed.asked_ms, 1)

    def _housekeep(self) -> None:
        """Once a second: keep leases, ask again for what was not shown, give up what nobody holds any more."""
        now_ms = self._clock()
        if now_ms - self._kept_ms < _ASK_AGAIN_MS // 2:
            return
        self._kept_ms = now_ms
        self._follow_shape(now_ms)
        with self._lock:
            abandoned = [followed for followed in self._followed.values() if not followed.live]
            for followed in abandoned:
                del self._followed[followed.query_id]
            due = [followed for followed in self._followed.values() if self._due(followed, now_ms)]
            wanted = {self._stream(followed) for followed in self._followed.values()}
            self._measure(wanted, now_ms)
            for stream in self._offsets.keys() - wanted:
                del self._offsets[stream]
        for followed in abandoned:
            self._send_quietly(followed.place, followed.end())
        for followed in due:
            self._ask(followed)

    def _measure(self, wanted: Set[str], now_ms: int) -> None:
        fresh_ms = [column.fresh_as_of_ms for stream, column in self._columns.items() if stream in wanted]
        self._telemetry.subscriptions.queries.set(len(self._followed))
        self._telemetry.subscriptions.subscribers.set(sum(len(followed.live) for followed in self._followed.values()))
        known_ms = [at_ms for at_ms in fresh_ms if at_ms]
        self._telemetry.subscriptions.lag_s.set(max(0, now_ms - min(known_ms)) / 1000 if known_ms else 0)

    def _due(self, followed: Interest, now_ms: int) -> bool:
        """Not before `_open` has asked for the first time."""
        every_ms = _ASK_AGAIN_MS if followed.shared.fresh else self._settings.subscription_extend_ms
        return followed.asked_ms > 0 and now_ms - followed.asked_ms >= every_ms

    def _follow_shape(self, now_ms: int) -> None:
        """The grid was partitioned anew: the queries are others' now."""
        shape = self._shape()
        if shape is None or shape == self._placed:
            return
        with self._lock:
            places = [(one, Place.of(one.query_id, shape)) for one in self._followed.values()]
        moved = [(one, place) for one, place in places if one.place != place]
        offsets = {
            place: self._layer.offset_at(streams.results(self._settings.deployment, *place), now_ms - LOOK_BACK_MS)
            for place in {place for _, place in moved}
        }
        with self._lock:
            for followed, place in moved:
                followed.place = place
                followed.shared.column = self._column(place)
                self._offsets.setdefault(self._stream(followed), offsets[place])
                self._rename(followed)
        self._placed = shape
