"""Ranges of pipelines, read in a Python worker: entries in, rows out, and a row for each gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.model import AfterImage
from quaestor.ports import StreamEntry
from quaestor.statistics import rows
from quaestor.statistics.counted_reads import read_counted
from quaestor.statistics.deduplication import CoveredWrites, SeenWrites
from quaestor.statistics.pipelines import Carries, Pipeline
from quaestor.statistics.positions import Position
from quaestor.statistics.registered_queries import RegisteredQueries
from quaestor.statistics.rows import Gap

AT_ONCE: Final = 500
_MICROSECONDS: Final = 1_000
_MOST_PIPELINES: Final = 64

_registered: dict[tuple[str, str], RegisteredQueries] = {}
"""Registered queries by the event layer's epoch and by pipeline, kept in this worker process, which Spark uses again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Range of a pipeline: entries after `start` up to and including `end`.

    covered: writes that pipelines of other grids already contain.
    """

    pipeline: Pipeline
    start: Position
    end: Position
    covered: tuple[CoveredWrites, ...] = ()


def entries(layer: RedisPipelines, wanted: Range) -> Iterator[StreamEntry | Gap]:
    """Yield the present entries of the range, then its gap. Raises EventLayerError if the server does not answer."""
    start, end = wanted.start, wanted.end
    another_life = offsets.epoch_of(start.offset) not in (None, offsets.epoch_of(end.offset))
    if another_life:
        yield Gap(None, "reset", start.offset, end.offset)
    after = offsets.START if another_life else start.offset
    read, broken = 0, False
    while after < end.offset:
        try:
            chunk = read_counted(layer, wanted.pipeline.stream, after, count=AT_ONCE)
        except EventLayerResetError:
            yield Gap(None, "reset", after, end.offset)  # the reset came between planning and reading
            return
        broken |= chunk.broken and offsets.is_entry(after)
        for entry in chunk.entries:
            if entry.offset > end.offset:
                break
            read += 1
            after = entry.offset
            yield entry
        else:
            if chunk.entries:
                continue
        break
    lost = None if end.count is None or start.count is None else end.count - start.count - read
    if (lost or (lost is None and broken)) and not another_life:
        yield Gap(lost, "trimmed", start.offset, end.offset)


def events(layer: RedisPipelines, wanted: Range) -> Iterator[tuple[Any, ...]]:
    """Yield rows of the events of a range, for counting."""
    build = _BUILD[wanted.pipeline.carries](layer, wanted)
    for entry in entries(layer, wanted):
        try:
            rows_of_entry = rows.gap_events(entry) if isinstance(entry, Gap) else build(entry)
            for event in rows_of_entry:
                yield (event.at_ms * _MICROSECONDS, *event[1:])
        except EventLayerError as error:
            if error.retryable or isinstance(entry, Gap):
                raise
            yield (offsets.appended_at_ms(entry.offset) * _MICROSECONDS, rows.DEPLOYMENT, "", "unreadable", 1, None)


def history(layer: RedisPipelines, wanted: Range) -> Iterator[tuple[Any, ...]]:
    """Yield rows of a range for the history."""
    writes = _Writes(wanted)
    for entry in entries(layer, wanted):
        if isinstance(entry, Gap):
            yield rows.gap_row(entry)
            continue
        try:
            image = writes.new(entry)
        except EventLayerError as error:
            yield rows.unreadable_row(entry, error)
            continue
        row = None if image is None else rows.history_row(entry, image)
        if row is not None:
            yield row


class _Writes:
    """Decoder of a write pipeline that skips repeated writes, and writes that other pipelines contain."""

    def __init__(self, wanted: Range) -> None:
        self._seen = SeenWrites(wanted.start)
        self._covered = wanted.covered
        self._leader = wanted.pipeline.partition == 0

    def new(self, entry: StreamEntry) -> AfterImage | None:
        """Return the image of a new write, or None. Raises EventLayerError for an unreadable entry."""
        image = decode_image(entry.payload)
        if self._seen.repeated(image):
            return None
        if image.key is None and not self._leader:
            return None  # the image is in every pipeline
        return None if any(writes.covers(image) for writes in self._covered) else image


def _of_writes(layer: RedisPipelines, wanted: Range) -> Callable[[StreamEntry], Iterator[rows.Event]]:
    writes = _Writes(wanted)

    def build(entry: StreamEntry) -> Iterator[rows.Event]:
        image = writes.new(entry)
        return iter(()) if image is None else rows.write_events(entry, image)

    return build


def _of_reads(layer: RedisPipelines, wanted: Range) -> Callable[[StreamEntry], Iterator[rows.Event]]:
    stream, start = wanted.pipeline.stream, wanted.start.offset
    if len(_registered) > _MOST_PIPELINES:
        _registered.clear()
    registered = _registered.setdefault((offsets.epoch_of(wanted.end.offset) or "", stream), RegisteredQueries())
    if offsets.epoch_of(start) == offsets.epoch_of(wanted.end.offset):
        registered.look_back(layer, stream, start)
    leader = wanted.pipeline.partition == 0

    def build(entry: StreamEntry) -> Iterator[rows.Event]:
        registered.reached(entry.offset)
        return rows.read_events(entry, registered, leader=leader)

    return build


def _of_matches(layer: RedisPipelines, wanted: Range) -> Callable[[StreamEntry], Iterator[rows.Event]]:
    return rows.match_events


_BUILD: Final = {Carries.WRITES: _of_writes, Carries.READS: _of_reads, Carries.MATCHES: _of_matches}
