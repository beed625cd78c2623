"""Write pipelines, as ingest fills them: every event once, in order, in the pipeline of its record or in all.

An event that cannot be read (mongod stores strings and names that are no UTF-8) must neither be skipped nor stop the stream: as
much is taken to have changed as it may have changed.
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
from quaestor.invalidation.ingest.raw_change_events import LackingRecord, payload_of
from quaestor.invalidation.ingest.record_lookup import RecordLookup, completed, needs_record
from quaestor.model import AfterImage, WriteKind
from quaestor.observability.event_log import EventLog
from quaestor.ports import EventLayer

_WITHOUT_RECORD: Final = frozenset({WriteKind.COLLECTION, WriteKind.GAP, WriteKind.TICK})

_Placed = tuple[int, bytes]


class WritePipelines:
    """The write pipelines of one grid, for their only writer. Not thread-safe.

    client: looks up records that events came without.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        layer: EventLayer,
        streams: Sequence[str],
        telemetry: EventLog,
        bounds: PipelineBounds,
    ) -> None:
        self._client = client
        self._layer = layer
        self._streams = streams
        self._telemetry = telemetry
        self._bounds = bounds

    def deliver(self, events: Iterable[RawBSONDocument], *, post_images: bool) -> None:
        """Append what these events mean; see `change_events.after_images`. One round trip a pipeline.

        Raises EventLayerError, PyMongoError: then some may have been appended.
        """
        partitions, lookup = len(self._streams), RecordLookup()
        made: list[_Placed | LackingRecord | AfterImage] = []
        for event in events:
            placed = payload_of(bytes(event.raw), partitions) if post_images else None
            if placed is None:
                images = self._images(event, post_images)
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
        """Trim what is too large: cells do so too, but while none runs they would grow without end.

        One round trip to each server, more if there is something to trim. Raises EventLayerError.
        """
        self._bounds.enforce(self._layer, measured(self._layer, dict.fromkeys(self._streams)))

    def _append(self, made: Iterable[_Placed | AfterImage]) -> None:
        batches: list[list[bytes]] = [[] for _ in self._streams]
        for one in made:
            if not isinstance(one, AfterImage):
                batches[one[0]].append(one[1])
                continue
            image, payload = self._encoded(one)
            if image.kind in _WITHOUT_RECORD:
                for batch in batches:
                    batch.append(payload)
            else:
                batches[write_partition(image.key, len(batches))].append(payload)
        for stream, batch in zip(self._streams, batches, strict=True):
            self._layer.append(stream, batch)

    def _images(self, event: RawBSONDocument, post_images: bool) -> list[AfterImage]:
        try:
            return after_images(event, post_images=post_images)
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
        record = lookup.found(write.namespace, write.key)
        return write.partition, write.payload(None if record is None else bytes(record.raw))
    return write
