"""Early delivery of writes: a burst in one collection keeps ingest busy, and writes of other collections overtake it.

The server produces the events of a transaction or of `update_many` one by one, at 10 to 30 us each. Ingest and cells need the
same time again, so a write behind 50,000 such events would wait for more than a second. When a read of the change stream
returns a full batch, ingest opens a second stream at the same position. This early stream leaves out the collections that
fill the batch; the server skips their events at 2 us each. Ingest reads both streams alternately. Early events go into
pipelines of their own, which cells read first.

**Nothing relies on early events.** Each event comes again in the change stream, in order, and is then processed like any other.
Position, ticks and watermark of ingest follow the change stream alone. The early stream may fail, begin late or miss events.
Invalidation of the other collections is late then, but no answer is stale for longer than the bound.

**Gaps lie above early events.** An app process that receives an early event dates its next reads by the version of that event.
A gap must lie above the date of every read, so ingest saves that version with its position before it appends the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from quaestor.clock import Clock, system_clock
from quaestor.invalidation.ingest.change_events import Collection, collection_of, time_and_token
from quaestor.invalidation.ingest.change_stream import EVENTS_AT_ONCE, ChangeStream
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.invalidation.ingest.write_pipelines import WritePipelines
from quaestor.model import Version
from quaestor.observability.telemetry import Telemetry

_LARGE_BYTES: Final = 8 * 1024**2
"""Size from which a batch counts as full; the server ends each batch before 16 MB."""
_STEP: Final = 19
"""Step between sampled events of a long batch. A prime number, because collections may alternate in a transaction."""
_LONG: Final = 20 * _STEP
_HOT_SHARE: Final = 0.1
_MOST_HOT: Final = 100
_READS_KEPT: Final = 20
"""Number of consecutive reads below a full batch that ends the backlog."""
_AWAIT_MS: Final = 1
_GROWTH: Final = 10
"""Factor by which the batch size grows while batches are full. The size starts at 1, because the server returns a batch only when
the batch is full or the server has read every write."""
_KEPT_MS: Final = 10_000
_BURST_READS: Final = 3
"""Full reads of the early stream in a row that show another burst. Fewer may be writes of the time in which it was not read."""


class Overtaking:
    """Early stream of one follower during a backlog. Not thread-safe."""

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        pipelines: WritePipelines,
        telemetry: Telemetry,
        *,
        reached: Callable[[Version], None],
        clock: Clock = system_clock,
    ) -> None:
        """Create the object; no stream is opened.

        pipelines: pipelines of early writes.
        reached: saves the version of the newest early event before the event is appended.
        """
        self._client = client
        self._pipelines = pipelines
        self._telemetry = telemetry
        self._reached = reached
        self._clock = clock
        self._trimmed_until_ms = clock() + 2 * _KEPT_MS  # an earlier ingest may have left entries
        self._stream: ChangeStream | None = None
        self._hot: dict[Collection, None] = {}
        self._left = 0
        self._at_once = 1
        self._full_in_a_row = 0
        self._failed = False

    def beside(self, events: Sequence[RawBSONDocument], version: Version, *, images: bool) -> None:
        """During a backlog, deliver events of other collections early. Raises EventLayerError.

        events: newest batch of the change stream.
        version: newest version delivered before this batch.
        images: the server records images (6.0 and later).
        """
        full = is_full(events)
        self._left = _READS_KEPT if full else self._left - 1
        if self._left <= 0:
            self.close()
        elif full and not self._failed:
            try:
                self._overtake(events, version, images)
            except PyMongoError as error:
                self.close()
                self._failed = True  # until this backlog is over
                self._telemetry.failure("mongodb", "ingest.early_stream_failed", error)

    def tidy(self) -> None:
        """Trim the pipelines of early writes while they may contain entries. Raises EventLayerError."""
        now_ms = self._clock()
        if now_ms < self._trimmed_until_ms:
            self._pipelines.trim(before_ms=now_ms - _KEPT_MS)

    def close(self) -> None:
        """End the early stream, if there is one."""
        stream, self._stream = self._stream, None
        self._hot.clear()
        self._left, self._at_once, self._full_in_a_row, self._failed = 0, 1, 0, False
        if stream is not None:
            try:
                stream.close()
            except PyMongoError as error:
                self._telemetry.failure("mongodb", "ingest.early_stream_failed", error)

    def _overtake(self, events: Sequence[RawBSONDocument], version: Version, images: bool) -> None:
        if self._stream is None:
            self._stream = self._opened(hot(events), version, images)
        if self._stream is None:
            return
        early = self._stream.read(await_ms=_AWAIT_MS, at_once=self._at_once)
        self._at_once = min(_GROWTH * self._at_once, EVENTS_AT_ONCE) if len(early) >= self._at_once else 1
        if not early:
            return
        newest, _ = time_and_token(early[-1])
        self._reached(newest)
        self._trimmed_until_ms = self._clock() + 2 * _KEPT_MS
        self._pipelines.deliver(early, records=self._stream.records)
        self._full_in_a_row = self._full_in_a_row + 1 if is_full(early) else 0
        if self._full_in_a_row >= _BURST_READS:  # another collection has a burst too
            self._full_in_a_row = 0
            self._stream.close()
            self._stream = self._opened(hot(early), newest, images)

    def _opened(self, hot_ones: Sequence[Collection], version: Version, images: bool) -> ChangeStream | None:
        """Return a stream from `version` on, or None if no collection can be left out.

        The writes of a transaction share their version, so the stream repeats the events of this version.
        """
        self._hot |= dict.fromkeys(hot_ones)
        if not hot_ones or len(self._hot) > _MOST_HOT:
            return None
        names = [f"{collection.db}.{collection.coll}" for collection in self._hot]
        self._telemetry.event("ingest.backlog_overtaken", collections=names)
        start = ResumePosition(None, version - 1, None)
        records = RecordSource.without_look_up(images=images)
        return ChangeStream.open(
            self._client, start, records=records, await_ms=_AWAIT_MS, without=tuple(self._hot), at_once=0
        )


def is_full(events: Sequence[RawBSONDocument]) -> bool:
    """Return whether a read returned the most possible, so that more events probably wait."""
    return len(events) >= EVENTS_AT_ONCE or sum(len(event.raw) for event in events) >= _LARGE_BYTES


def hot(events: Sequence[RawBSONDocument]) -> list[Collection]:
    """Return the collections that fill this batch. O(events)."""
    sampled = Counter(map(collection_of, events[:: _STEP if len(events) >= _LONG else 1]))
    least = _HOT_SHARE * sampled.total()
    return [collection for collection, count in sampled.items() if collection is not None and count >= least]
