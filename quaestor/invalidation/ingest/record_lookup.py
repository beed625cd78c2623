"""Look-up of the current record for updates that came without one (collections that do not record post-images)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pymongo
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from quaestor.cluster_time import timestamp_of
from quaestor.event_layer.partitioning import record_key
from quaestor.invalidation.ingest.change_events import RAW_OPTIONS
from quaestor.model import AfterImage, Document, WriteKind

_AT_ONCE = 200
"""Records asked for in one find: bounds the answer, not the number of finds."""


def needs_record(image: AfterImage) -> bool:
    """Whether the event did not say what the record became."""
    return image.kind is WriteKind.UPDATE and image.after is None


def with_current_records(client: pymongo.MongoClient[Any], images: Sequence[AfterImage]) -> list[AfterImage]:
    """Complete these images, in order: those that lack `after` get the record as it is now, if it still exists.

    One find a collection (and 200 records). The reads are causally after the newest of the images, so each record is at
    least as new as its event, also when an outdated primary answers. `after_exact` stays false. Raises PyMongoError.
    """
    missing: dict[str, dict[bytes, Any]] = {}
    for image in images:
        if needs_record(image):
            missing.setdefault(image.namespace, {})[record_key(image.key)] = image.key
    if not missing:
        return list(images)
    found: dict[tuple[str, bytes], Document] = {}
    with client.start_session(causal_consistency=True) as session:
        session.advance_operation_time(timestamp_of(max(image.version for image in images)))
        for namespace, keys in missing.items():
            database, _, name = namespace.partition(".")
            collection = client.get_database(
                database,
                codec_options=RAW_OPTIONS,
                read_preference=ReadPreference.PRIMARY,
                read_concern=ReadConcern("local"),
            ).get_collection(name)
            wanted = list(keys.values())
            for first in range(0, len(wanted), _AT_ONCE):
                for record in collection.find({"_id": {"$in": wanted[first : first + _AT_ONCE]}}, session=session):
                    found[namespace, record_key(record["_id"])] = record
    return [
        replace(image, after=found.get((image.namespace, record_key(image.key)))) if needs_record(image) else image
        for image in images
    ]
