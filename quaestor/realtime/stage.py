"""Stage of one query partition: it sorts, joins and aggregates what the cells match, partitioned by query.

The loop reads subscriptions and the cells' findings, and keeps one maintained result for each query. Threads of its own read
initial and missing records from MongoDB. The changes of each result go to the results pipeline.

**Nothing is kept beyond the process.** App servers repeat their subscriptions long before they expire. The last lease period
of the query pipeline therefore holds all of them. A stage that replaces another reads the subscriptions and every result
again, and sends each result under a new epoch; app servers report the differences to their subscribers. The stage also reads
again when the cells' findings are incomplete: a cell began anew, entries were trimmed, or the writes have a gap.

(InvaliDB, PVLDB 2020, sections 5.1 and 5.2; Wingerath's thesis, section 3.3.2: query renewal, poll frequency limit.)
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.loop_context import LoopContext
from quaestor.model import GridShape
from quaestor.ports import EventLayer, StreamEntry
from quaestor.realtime.codec import concerns_stage, decode_matched, decode_query_event
from quaestor.realtime.epoch import Epoch
from quaestor.realtime.messages import (
    CellProgress,
    CellReady,
    CellStarted,
    MatchedWrite,
    MatchingLost,
    Subscription,
    Unsubscription,
)
from quaestor.realtime.outbox import Outbox
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS, PipelineReader
from quaestor.realtime.reader_pool import ReaderPool
from quaestor.realtime.rules import StageRules
from quaestor.realtime.snapshots import Snapshots
from quaestor.realtime.stage_queries import StageQueries
from quaestor.realtime.stats import StageMeter
from quaestor.tasks import pause_after

_FIRST_PAUSE_S: Final = 0.04
_LONGEST_PAUSE_S: Final = 1.0
_IDLE: Final = 4
"""A stage without queries waits so many heartbeats for an entry, which wakes it."""
_WHILE_READING_MS: Final = 10
_HOUSEKEEPING_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePipelines:
    """Names of a stage's pipelines.

    queries, matched: the stage reads them.
    results: the stage appends to it.
    epoch: name of the value that holds the stage's epoch.
    """

    queries: str
    matched: str
    results: str
    epoch: str

    @classmethod
    def of(cls, deployment: str, query_partition: int, shape: GridShape) -> StagePipelines:
        """Return the names for one query partition."""
        place = deployment, query_partition, shape.generation
        return cls(
            queries=streams.queries(*place),
            matched=streams.matched(*place),
            results=streams.results(*place),
            epoch=streams.stage_epoch(deployment, query_partition),
        )


class StageLoop:
    """Loop of the stage of one query partition. One thread, and its reading threads (`readers`; its own by default)."""

    def __init__(
        self,
        layer: EventLayer,
        snapshots: Snapshots,
        query_partition: int,
        shape: GridShape,
        context: LoopContext,
        *,
        rules: StageRules | None = None,
        readers: ReaderPool | None = None,
    ) -> None:
        self._context = context
        self._telemetry = context.telemetry
        self._layer = layer
        self._shape = shape
        self._pipelines = StagePipelines.of(context.deployment, query_partition, shape)
        self._rules = rules or StageRules()
        self._partition = query_partition
        self._readers = readers or ReaderPool(snapshots, self._rules.readers)
        self._meter = StageMeter(context.deployment, query_partition, shape)
        self._outbox = Outbox(
            layer, self._pipelines.queries, self._pipelines.results, max_bytes=self._rules.max_result_bytes
        )
        self._reader: PipelineReader | None = None
        self._epoch: Epoch
        self._stage: StageQueries | None = None
        self._housekeeping_due_s = 0.0
        self._leases_renewed_ms = 0

    @property
    def queries(self) -> int:
        """Number of subscribed queries."""
        return 0 if self._stage is None else len(self._stage)

    def run(self, stop: threading.Event) -> None:
        """Run until stop is set. Survives failures of the event layer and of the database; any other error ends it."""
        failed = 0
        try:
            while not stop.is_set():
                try:
                    self.step(
                        wait_ms=self._context.heartbeat_ms if self.queries else self._context.heartbeat_ms * _IDLE
                    )
                    failed = 0
                    continue
                except EventLayerResetError as error:
                    self._telemetry.failure("event-layer", "stage.event_layer_reset", error, stage=self._partition)
                    self._reader = None
                except EventLayerError as error:
                    if stop.is_set():
                        break  # a lease of this process may be over while it ends
                    self._telemetry.failure("event-layer", "stage.event_layer_failed", error, stage=self._partition)
                failed += 1
                stop.wait(pause_after(failed, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))
        finally:
            self._readers.close()

    def step(self, *, wait_ms: int) -> None:
        """Read the pipelines once, do everything that follows from it, append once to each."""
        if self._reader is None or self._stage is None:
            self._reader, self._stage = self._begin()
        reader, stage = self._reader, self._stage
        self._outbox.send()
        busy = stage.send_due_changes(self._context.clock()) or self._readers.busy or stage.reads_wait
        entries = reader.read(block_ms=min(wait_ms, _WHILE_READING_MS) if busy else wait_ms)
        now_ms = self._context.clock()
        for entry in entries:
            if entry.stream == self._pipelines.queries:
                self._on_query_event(stage, entry, now_ms)
            else:
                if reader.missed(entry):
                    self._telemetry.failure("event-layer", "stage.matched_missed", entry.offset, stage=self._partition)
                    stage.request_all("entries of the matched pipeline were trimmed before they were read", now_ms)
                self._on_matched(stage, entry, now_ms)
            reader.acknowledge(entry)
        for outcome in self._readers.completed():
            stage.read_ended(outcome, now_ms)
        stage.submit_reads(self._readers, now_ms)
        stage.report_progress(now_ms)
        now_s = time.monotonic()
        if now_s >= self._housekeeping_due_s:
            self._housekeeping_due_s = now_s + _HOUSEKEEPING_S
            self._housekeep(stage, now_ms)
        self._outbox.send()

    def _begin(self) -> tuple[PipelineReader, StageQueries]:
        """Begin a new epoch: every current subscription was repeated within the last lease."""
        now_ms = self._context.clock()
        self._epoch = Epoch(self._layer, self._pipelines.epoch, now_ms)
        since_ms = {
            self._pipelines.queries: now_ms - self._rules.lease_ms,
            self._pipelines.matched: now_ms - LOOK_BACK_MS,
        }
        positions = {stream: self._layer.offset_at(stream, at_ms) for stream, at_ms in since_ms.items()}
        self._outbox.clear()
        stage = StageQueries(
            self._epoch,
            self._shape,
            rules=self._rules,
            keep_ms=2 * self._context.retention_ms,
            outbox=self._outbox,
            meter=self._meter,
            telemetry=self._telemetry,
        )
        return PipelineReader(self._layer, positions, retention_ms=self._context.retention_ms), stage

    def _on_query_event(self, stage: StageQueries, entry: StreamEntry, now_ms: int) -> None:
        if not concerns_stage(entry.payload):
            return
        try:
            event = decode_query_event(entry.payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "stage.query_event_unreadable", error, stage=self._partition)
            return
        if isinstance(event, Subscription):
            if event.expires_at_ms > now_ms:
                earlier = not self._epoch.first and offsets.appended_at_ms(entry.offset) < self._epoch.began_ms
                stage.subscribe(event, now_ms, admitted_before=earlier or not event.fresh)
        elif isinstance(event, Unsubscription):
            stage.unsubscribe(event.query_id, event.subscription_ids)

    def _on_matched(self, stage: StageQueries, entry: StreamEntry, now_ms: int) -> None:
        try:
            event = decode_matched(entry.payload)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "stage.matched_unreadable", error, stage=self._partition)
            stage.request_all("an entry of the matched pipeline could not be read", now_ms)
            return
        match event:
            case MatchedWrite():
                stage.apply(event, now_ms)
            case CellReady():
                stage.cell_ready(event)
            case MatchingLost():
                stage.matching_lost(event, now_ms)
            case CellProgress():
                stage.cell_progress(event, now_ms)
            case CellStarted():
                stage.request_all(f"cell {event.cell} began anew", now_ms)

    def _housekeep(self, stage: StageQueries, now_ms: int) -> None:
        stage.expire(now_ms)
        if now_ms - self._leases_renewed_ms >= self._rules.lease_ms // 4:
            self._leases_renewed_ms = now_ms
            stage.renew_leases(now_ms)
            stage.forget_replayed(now_ms)
        stage.enforce_memory()
        self._layer.trim(self._pipelines.results, before_ms=now_ms - self._context.retention_ms)
        self._meter.publish(self._layer, stage.quotas, stage.progress, now_ms=now_ms)
