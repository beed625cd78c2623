"""Look-up of the current record for updates without one (of collections that do not record post-images)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from quaestor.cluster_time import timestamp_of
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.event_layer.partitioning import record_key
from quaestor.invalidation.ingest.change_events import RAW_OPTIONS
from quaestor.invalidation.ingest.raw_change_events import key_of
from quaestor.model import AfterImage, Version, WriteKind

_AT_ONCE = 1_000
"""Records in one find, equal to the largest batch of events."""


def needs_record(image: AfterImage) -> bool:
    """Whether the event lacks the record after the write."""
    return image.kind is WriteKind.UPDATE and image.after is None


class RecordLookup:
    """Records that some updates lack: noted one by one, looked up together. Not thread-safe."""

    def __init__(self) -> None:
        self._wanted: dict[str, dict[bytes, None]] = {}
        self._newest: Version = 0
        self._records: dict[tuple[str, bytes], RawBSONDocument] = {}

    def want(self, namespace: str, key: bytes, version: Version) -> None:
        """Note a record.

        key: as `record_key` returns it.
        version: version of the update that lacks the record.
        """
        self._wanted.setdefault(namespace, {})[key] = None
        self._newest = max(self._newest, version)

    def read(self, client: pymongo.MongoClient[Any]) -> None:
        """Read all noted records, with one find per collection and 1,000 records.

        The reads are causally after the newest of the updates. Each record is therefore at least as new as its update, even
        if an outdated primary answers. Raises PyMongoError.
        """
        if not self._wanted:
            return
        with client.start_session(causal_consistency=True) as session:
            session.advance_operation_time(timestamp_of(self._newest))
            for namespace, keys in self._wanted.items():
                collection, wanted = _collection(client, namespace), list(keys)
                for first in range(0, len(wanted), _AT_ONCE):
                    ids = [bson.decode(key, BSON_OPTIONS)[""] for key in wanted[first : first + _AT_ONCE]]
                    for record in collection.find({"_id": {"$in": ids}}, session=session, batch_size=len(ids) + 1):
                        self._records[namespace, key_of(bytes(record.raw)) or record_key(record["_id"])] = record

    def record(self, namespace: str, key: bytes) -> RawBSONDocument | None:
        """Return the record as it was at the read; None: it no longer existed."""
        return self._records.get((namespace, key))


def completed(image: AfterImage, lookup: RecordLookup) -> AfterImage:
    """Return the image with the record that was looked up, if it lacked one."""
    if not needs_record(image):
        return image
    return replace(image, after=lookup.record(image.namespace, record_key(image.key)))


def _collection(client: pymongo.MongoClient[Any], namespace: str) -> Collection[RawBSONDocument]:
    database, _, name = namespace.partition(".")
    return client.get_database(
        database,
        codec_options=RAW_OPTIONS,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("local"),
    ).get_collection(name)
