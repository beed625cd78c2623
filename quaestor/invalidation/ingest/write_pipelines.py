"""Write pipelines, filled by ingest: every event once, in order, in the pipeline of its record or in all pipelines.

An unreadable event (mongod stores strings and names that are not UTF-8) is never skipped, and never stops the stream.
Everything that it may have changed counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pymongo
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.errors import EventLayerError
from quaestor.event_layer.bounds import PipelineBounds, measured
from quaestor.event_layer.codec import encode_image
from quaestor.event_layer.partitioning import record_key, write_partition
from quaestor.invalidation.ingest.change_events import after_images, unreadable
from quaestor.invalidation.ingest.prompt_ticks import PromptTicks
from quaestor.invalidation.ingest.raw_change_events import LackingRecord, payload_of
from quaestor.invalidation.ingest.record_lookup import RecordLookup, completed, needs_record
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import AfterImage, WriteKind
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer, ReadingAppends

_WITHOUT_RECORD: Final = frozenset({WriteKind.COLLECTION, WriteKind.GAP, WriteKind.TICK})

_Placed = tuple[int, bytes]


class WritePipelines:
    """Write pipelines of one grid, for their only writer. Not thread-safe.

    client: client that looks up records missing in events.
    prompt: its value is read along with each append, if the layer can do that.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        layer: EventLayer,
        streams: Sequence[str],
        telemetry: EventLog,
        bounds: PipelineBounds,
        *,
        prompt: PromptTicks | None = None,
    ) -> None:
        self._client = client
        self._layer = layer
        self._reading = (layer, prompt) if prompt is not None and isinstance(layer, ReadingAppends) else None
        self._streams = streams
        self._telemetry = telemetry
        self._bounds = bounds

    def deliver(self, events: Iterable[RawBSONDocument], *, records: RecordSource) -> None:
        """Append the images of these events; see `change_events.after_images`. One round trip a pipeline.

        Raises EventLayerError, PyMongoError: then some images may have been appended.
        """
        partitions, lookup = len(self._streams), RecordLookup()
        raw = records is not RecordSource.LOOKED_UP_BEFORE_6_0
        made: list[_Placed | LackingRecord | AfterImage] = []
        for event in events:
            placed = payload_of(bytes(event.raw), partitions, looked_up=records.looked_up) if raw else None
            if placed is None:
                images = self._images(event, records)
                made += images
                for image in filter(needs_record, images):
                    lookup.want(image.namespace, record_key(image.key), image.version)
                continue
            made.append(placed)
            if isinstance(placed, LackingRecord):
                lookup.want(placed.namespace, placed.key, placed.version)
        lookup.read(self._client)
        self._append(_completed(write, lookup) for write in made)

    def append(self, *images: AfterImage) -> None:
        """Append these images. Raises EventLayerError."""
        self._append(images)

    def bound(self) -> None:
        """Trim pipelines that are too large. Cells do so too, but without cells the pipelines would grow without end.

        One round trip to each server, more if there is something to trim. Raises EventLayerError.
        """
        self._bounds.enforce(self._layer, measured(self._layer, dict.fromkeys(self._streams)))

    def trim(self, *, before_ms: int) -> None:
        """Delete entries older than `before_ms`, ms since the epoch. One round trip to each server. Raises EventLayerError."""
        measured(self._layer, dict.fromkeys(self._streams, before_ms))

    def _append(self, made: Iterable[_Placed | AfterImage]) -> None:
        batches: list[list[bytes]] = [[] for _ in self._streams]
        for part in made:
            if not isinstance(part, AfterImage):
                batches[part[0]].append(part[1])
                continue
            image, payload = self._encoded(part)
            if image.kind in _WITHOUT_RECORD:
                for batch in batches:
                    batch.append(payload)
            else:
                batches[write_partition(image.key, len(batches))].append(payload)
        for stream, batch in zip(self._streams, batches, strict=True):
            if batch:
                self._put(stream, batch)

    def _put(self, stream: str, payloads: Sequence[bytes]) -> None:
        if self._reading is None:
            self._layer.append(stream, payloads)
        else:
            layer, prompt = self._reading
            prompt.note(layer.append_and_get(stream, payloads, prompt.name))

    def _images(self, event: RawBSONDocument, records: RecordSource) -> list[AfterImage]:
        try:
            return after_images(event, records=records)
        except (BSONError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            self._telemetry.failure("mongodb", "ingest.event_unreadable", error)
            return [unreadable(event)]

    def _encoded(self, image: AfterImage) -> tuple[AfterImage, bytes]:
        try:
            return image, encode_image(image)
        except EventLayerError as error:
            self._telemetry.failure("mongodb", "ingest.event_unreadable", error)
            instead = replace(image, kind=WriteKind.COLLECTION, key=None, after=None, before=None, changed=None)
            return instead, encode_image(instead)


def _completed(write: _Placed | LackingRecord | AfterImage, lookup: RecordLookup) -> _Placed | AfterImage:
    if isinstance(write, AfterImage):
        return completed(write, lookup)
    if isinstance(write, LackingRecord):
        record = lookup.record(write.namespace, write.key)
        return write.partition, write.payload(None if record is None else bytes(record.raw))
    return write
