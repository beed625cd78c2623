"""The later stages of one query partition: sorting, joining and aggregating, partitioned by query.

The loop reads subscriptions and what the cells found, keeps one maintained result for each query, reads from MongoDB what
a result begins with or lacks (in threads of its own), and appends to the results pipeline how each result changes.

**Nothing is kept beyond the process.** Subscriptions are repeated by their app servers long before they expire, so those of
the last lease on the query pipeline are all there are. A stage that replaces another reads them, reads every result again
and shows it under a new epoch; app servers tell their subscribers the differences. Whatever makes the cells' findings
incomplete (a cell that began anew, entries that were trimmed, a gap in the writes) ends in reading again too.

(InvaliDB, PVLDB 2020, sections 5.1 and 5.2; Wingerath's thesis, section 3.3.2: query renewal, poll frequency limit.)
"""

from __future__ import annotations

import threading
import time
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.errors import DatabaseError, EventLayerError, EventLayerResetError, QueryError
from quaestor.event_layer import offsets, streams
from quaestor.model import GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer, StreamEntry
from quaestor.realtime.codec import concerns_stage, decode_matched, decode_query_event
from quaestor.realtime.epoch import Epoch
from quaestor.realtime.fair_order import FairOrder
from quaestor.realtime.followed_query import FollowedQuery
from quaestor.realtime.messages import (
    CellStarted,
    Changed,
    Failed,
    Lost,
    Matched,
    NoLonger,
    Reached,
    Ready,
    Shown,
    Subscription,
    Unsubscription,
)
from quaestor.realtime.outbox import Outbox
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS, PipelineReader
from quaestor.realtime.progress import GridProgress
from quaestor.realtime.quotas import QuotaError, Quotas
from quaestor.realtime.readers import Outcome, Readers
from quaestor.realtime.reading import ReadDone
from quaestor.realtime.rules import StageRules
from quaestor.realtime.snapshots import Snapshots
from quaestor.realtime.stats import StageMeter

_LONGEST_PAUSE_S: Final = 1.0
_WHILE_READING_MS: Final = 10
_HOUSEKEEPING_S: Final = 1.0


class StageLoop:
    """Runs the later stages of one query partition. One thread, and those that read for it (`readers`; its own by default)."""

    def __init__(
        self,
        layer: EventLayer,
        snapshots: Snapshots,
        query_partition: int,
        shape: GridShape,
        *,
        deployment: str,
        heartbeat_ms: int,
        retention_ms: int,
        rules: StageRules | None = None,
        readers: Readers | None = None,
        clock: Clock = system_clock,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._layer = layer
        self._shape = shape
        self._queries = streams.queries(deployment, query_partition, shape.generation)
        self._matched = streams.matched(deployment, query_partition, shape.generation)
        self._results = streams.results(deployment, query_partition, shape.generation)
        self._epoch_name = streams.stage_epoch(deployment, query_partition)
        self._heartbeat_ms = heartbeat_ms
        self._retention_ms = retention_ms
        self._rules = rules or StageRules()
        self._clock = clock
        self._telemetry = telemetry or Telemetry()
        self._partition = query_partition
        self._readers = readers or Readers(snapshots, self._rules.readers)
        self._tail: PipelineReader | None = None
        self._epoch: Epoch
        self._followed: dict[str, FollowedQuery] = {}
        self._waiting = FairOrder()
        self._room = Quotas(max_queries=self._rules.max_queries, max_bytes=self._rules.max_bytes)
        self._meter = StageMeter(deployment, query_partition, shape)
        self._how_far = GridProgress(shape, keep_ms=2 * retention_ms)
        self._out = Outbox(layer, self._queries, self._results, max_bytes=self._rules.max_result_bytes)
        self._housekeeping_due_s = 0.0
        self._kept_ms = 0

    @property
    def queries(self) -> int:
        """How many queries are followed."""
        return len(self._followed)

    def run(self, stop: threading.Event) -> None:
        """Until stop is set. Survives failures of the event layer and of the database; any other error ends it."""
        failed = 0
        try:
            while not stop.is_set():
                try:
                    self.step(wait_ms=self._heartbeat_ms)
                    failed = 0
                    continue
                except EventLayerResetError as error:
                    self._telemetry.failure("event-layer", "stage.event_layer_reset", error, stage=self._partition)
                    self._tail = None
                except EventLayerError as error:
                    self._telemetry.failure("event-layer", "stage.event_layer_failed", error, stage=self._partition)
                failed += 1
                stop.wait(min(0.02 * 2**failed, _LONGEST_PAUSE_S))
        finally:
            self._readers.close()

    def step(self, *, wait_ms: int) -> None:
        """One read of the pipelines, everything that follows from it, one append to each."""
        tail = self._tail or self._begin()
        self._out.send()
        entries = tail.read(block_ms=self._patience_ms(wait_ms))
        now_ms = self._clock()
        for entry in entries:
            if entry.stream == self._queries:
                self._on_query_event(entry, now_ms)
            else:
                if tail.missed(entry):
                    self._telemetry.failure("event-layer", "stage.matched_missed", entry.offset, stage=self._partition)
                    self._want_all("entries of the matched pipeline were trimmed before they were read", now_ms)
                self._on_matched(entry, now_ms)
            tail.passed(entry)
        for outcome in self._readers.done():
            self._on_read(outcome, now_ms)
        self._order_reads(now_ms)
        self._tell_progress()
        now_s = time.monotonic()
        if now_s >= self._housekeeping_due_s:
            self._housekeeping_due_s = now_s + _HOUSEKEEPING_S
            self._housekeep(now_ms)
        self._out.send()

    def _begin(self) -> PipelineReader:
        """A new epoch: whoever is still subscribed has said so within a lease."""
        now_ms = self._clock()
        self._epoch = Epoch(self._layer, self._epoch_name, now_ms)
        since_ms = {self._queries: now_ms - self._rules.lease_ms, self._matched: now_ms - LOOK_BACK_MS}
        positions = {stream: self._layer.offset_at(stream, at_ms) for stream, at_ms in since_ms.items()}
        self._followed.clear()
        self._room = Quotas(max_queries=self._rules.max_queries, max_bytes=self._rules.max_bytes)
        self._waiting.clear()
        self._out.clear()
        self._how_far = GridProgress(self._shape, keep_ms=2 * self._retention_ms)
        self._tail = PipelineReader(self._layer, positions, retention_ms=self._retention_ms)
        return self._tail

    def _on_query_event(self, entry: StreamEntry, now_ms: int) -> None:
        if not concerns_stage(entry.payload):
            return
        try:
            event = decode_query_event(entry.payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "stage.query_event_unreadable", error, stage=self._partition)
            return
        if isinstance(event, Subscription):
            if event.expires_at_ms > now_ms:
                old = not event.fresh or offsets.appended_at_ms(entry.offset) < self._epoch.began_ms
                self._subscribe(event, old=old)
        elif isinstance(event, Unsubscription):
            followed = self._followed.get(event.query_id)
            if followed is not None:
                self._unsubscribe(followed, event.subscription_ids)

    def _subscribe(self, event: Subscription, *, old: bool) -> None:
        """old: a stage before this one, or this one, has had it already."""
        followed = self._followed.get(event.query_id)
        known = followed is not None
        if followed is None:
            followed = FollowedQuery(
                event.query_id, event.query, epoch=self._epoch.next("e"), settings=self._rules.renewal
            )
        if event.id not in followed.subscriptions:
            try:
                if len(followed.subscriptions) >= self._rules.max_subscriptions:
                    raise QuotaError(f"{self._rules.max_subscriptions} app servers follow this query already")
                self._room.follow(followed.held, event.tenant, old=old)
            except QuotaError as error:
                self._meter.refused += 1
                self._out.refuse(event, str(error))
                return
        followed.subscriptions[event.id] = event.tenant, event.expires_at_ms
        if not known:
            self._followed[event.query_id] = followed
            self._wait(followed)
        if event.fresh and followed.known:
            self._tell(followed.shown((event.id,)))

    def _unsubscribe(self, followed: FollowedQuery, subscription_ids: tuple[str, ...]) -> None:
        for subscription_id in subscription_ids:
            if (subscription := followed.subscriptions.pop(subscription_id, None)) is not None:
                self._room.leave(followed.held, subscription[0])
        if not followed.subscriptions:
            self._drop(followed)
            self._out.to_cells(NoLonger(query_ids=(followed.query_id,)))

    def _drop(self, followed: FollowedQuery) -> None:
        self._room.drop(followed.held)
        self._followed.pop(followed.query_id, None)
        self._waiting.remove(followed.query_id)

    def _on_matched(self, entry: StreamEntry, now_ms: int) -> None:
        try:
            event = decode_matched(entry.payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "stage.matched_unreadable", error, stage=self._partition)
            self._want_all("an entry of the matched pipeline could not be read", now_ms)
            return
        match event:
            case Matched():
                self._apply(event, now_ms)
            case Ready():
                if (followed := self._followed.get(event.query_id)) is not None:
                    followed.is_ready(event.cell, event.token)
            case Lost():
                self._lost(event, now_ms)
            case Reached():
                self._how_far.reached(event, now_ms=now_ms)
            case CellStarted():
                self._want_all(f"cell {event.cell} began anew", now_ms)

    def _apply(self, event: Matched, now_ms: int) -> None:
        image = event.image
        concerned = self._followed.values() if event.query_ids is None else map(self._followed.get, event.query_ids)
        for followed in list(concerned):
            if followed is None:
                continue
            try:
                self._meter.matched += 1
                changed = followed.apply(image, now_ms=now_ms)
                if changed is not None:
                    self._room.grew(followed.held, changed.records)
                    self._tell(changed)
            except Exception as error:  # one bad query must not stop the stage
                self._telemetry.failure("matching", "stage.query_failed", repr(error), query_id=followed.query_id)
                self._fail(followed, f"it could not be maintained: {error!r}")
                continue
            if followed.read_due_ms is not None:
                self._wait(followed)

    def _lost(self, event: Lost, now_ms: int) -> None:
        followed = self._followed.get(event.query_id)
        if followed is None or followed.token != event.token:
            return
        if event.final:
            self._fail(followed, event.reason)
        else:
            self._want(followed, event.reason, now_ms)

    def _want(self, followed: FollowedQuery, reason: str, now_ms: int) -> None:
        followed.want(reason, now_ms=now_ms)
        self._wait(followed)

    def _wait(self, followed: FollowedQuery) -> None:
        """It has to be read, and is behind until then."""
        self._waiting.add(followed.query_id, next(iter(followed.held.followers), ""))
        self._how_far.behind.add(followed.query_id)

    def _want_all(self, reason: str, now_ms: int) -> None:
        for followed in self._followed.values():
            self._want(followed, reason, now_ms)

    def _order_reads(self, now_ms: int) -> None:
        for query_id in self._waiting if self._readers.free else ():
            if not self._readers.free:
                return
            followed = self._followed[query_id]
            if followed.read_due_ms is None:
                self._waiting.remove(query_id)
            elif not followed.reading and followed.read_due_ms <= now_ms:
                self._waiting.remove(query_id)
                self._readers.submit(followed.order(reached=self._how_far.version))

    def _on_read(self, outcome: Outcome, now_ms: int) -> None:
        followed = self._followed.get(outcome.order.query_id)
        if followed is None or not followed.awaits(outcome.order):
            return
        try:
            if not isinstance(outcome.result, ReadDone):
                raise outcome.result
            self._take(followed, outcome.result, now_ms)
        except QuotaError as error:
            self._refuse(followed, str(error))
        except QueryError as error:
            self._fail(followed, str(error))
        except DatabaseError as error:
            self._telemetry.failure("mongodb", "stage.read_failed", error, query_id=followed.query_id)
            if not error.retryable and not followed.known:
                self._fail(followed, str(error))
                return
            followed.failed(now_ms=now_ms)
            self._wait(followed)
        except Exception as error:  # one bad query must not stop the stage
            self._telemetry.failure("matching", "stage.query_failed", repr(error), query_id=followed.query_id)
            self._fail(followed, f"it could not be maintained: {error!r}")

    def _take(self, followed: FollowedQuery, done: ReadDone, now_ms: int) -> None:
        first = not followed.known
        self._meter.renewals += not first
        taken, told = followed.take(done, now_ms=now_ms)
        if taken:
            snapshot = done.snapshot
            number = len(snapshot.own) + sum(map(len, snapshot.foreign.values()))
            self._room.built(followed.held, snapshot.own, number=number, first=first)
        if told is not None and not self._tell(told):
            return
        if taken:
            standing = followed.announcement(
                done.snapshot,
                write_partitions=self._shape.write_partitions,
                token=self._epoch.next("t"),
                expires_at_ms=now_ms + self._rules.lease_ms,
            )
            self._out.to_cells(standing)
        if followed.read_due_ms is not None:
            self._wait(followed)

    def _tell(self, message: Shown | Changed) -> bool:
        """False: it cannot be sent; the query has failed instead."""
        reason = self._out.to_subscribers(message)
        followed = self._followed.get(message.query_id)
        if reason is not None and followed is not None:
            self._fail(followed, reason)
        return reason is None

    def _refuse(self, followed: FollowedQuery, reason: str) -> None:
        self._meter.refused += len(followed.subscriptions)
        self._fail(followed, reason)

    def _fail(self, followed: FollowedQuery, reason: str) -> None:
        """The query is over for all that follow it."""
        self._telemetry.event("stage.query_refused", query_id=followed.query_id, reason=reason)
        self._drop(followed)
        self._out.to_subscribers(Failed(query_id=followed.query_id, subscription_ids=None, reason=reason[:1_000]))
        if followed.token:
            self._out.to_cells(NoLonger(query_ids=(followed.query_id,)))

    def _tell_progress(self) -> None:
        cells = self._shape.write_partitions
        waited = [self._followed[name] for name in self._how_far.behind if name in self._followed]
        told = self._how_far.told(self._epoch.name, {one.query_id for one in waited if not one.settled(cells)})
        if told is not None and self._followed:
            self._out.to_subscribers(told)

    def _housekeep(self, now_ms: int) -> None:
        for followed in list(self._followed.values()):
            ended = tuple(
                name for name, (_, expires_at_ms) in followed.subscriptions.items() if expires_at_ms <= now_ms
            )
            if ended:
                over = Failed(
                    query_id=followed.query_id, subscription_ids=ended, reason="its lease was over", again=True
                )
                self._out.to_subscribers(over)
                self._unsubscribe(followed, ended)
        if now_ms - self._kept_ms >= self._rules.lease_ms // 4:
            self._kept_ms = now_ms
            self._keep_alive(now_ms)
            gone = self._how_far.gone(now_ms)
            if gone:
                for followed in self._followed.values():
                    followed.forget(gone)
        self._make_room()
        self._layer.trim(self._results, before_ms=now_ms - self._retention_ms)
        self._meter.tell(self._layer, self._room, self._how_far, now_ms=now_ms)

    def _make_room(self) -> None:
        """Results that have grown beyond all that may be kept: of the tenant with the most the largest one ends."""
        while self._room.crowded:
            tenant = self._room.largest
            theirs = (followed for followed in self._followed.values() if tenant in followed.held.followers)
            followed = max(theirs, key=lambda one: one.held.bytes)
            self._refuse(
                followed, f"its result has grown to {followed.held.bytes} bytes, and there is no room: narrow it"
            )

    def _keep_alive(self, now_ms: int) -> None:
        """Tell the cells to go on; one that does not know a query says so."""
        pairs = [(query_id, followed.token) for query_id, followed in self._followed.items() if followed.token]
        self._out.keep(pairs, expires_at_ms=now_ms + self._rules.lease_ms)

    def _patience_ms(self, wait_ms: int) -> int:
        return min(wait_ms, _WHILE_READING_MS) if self._readers.busy or self._waiting else wait_ms
