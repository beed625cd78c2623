"""Answers read from a collection, and the node that guards them: it receives registrations and writes as in production."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import bson
import pymongo
from pymongo.collection import Collection

from quaestor.errors import QueryError
from quaestor.event_layer.partitioning import record_key
from quaestor.invalidation.ingest.change_events import STAGES, after_images
from quaestor.invalidation.ingest.record_lookup import RecordLookup, completed, needs_record
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.invalidation.matching.node import MatchingNode, Outcome
from quaestor.invalidation.registry.contributor_reads import with_contributors
from quaestor.invalidation.registry.registration_building import Dependency, dependencies, registration
from quaestor.model import (
    AfterImage,
    CapturedRead,
    Cell,
    Document,
    GridShape,
    Invalidated,
    Operation,
    Query,
    Registration,
    Version,
    WriteKind,
)
from quaestor.planning.plan_parts import Result
from quaestor.realtime.snapshots import MongoSnapshots

Records = Collection[dict[str, Any]]
T = TypeVar("T")
MARKS: Final = "marks"
"""Collection with a record after each write: a write that changes nothing is no event."""
_NOW_MS = 1_000
MOST_CONTRIBUTORS = 1_000
_FOREVER_MS = 10**9


def answer(records: Records, query: Query) -> tuple[Document, ...]:
    """Return the database's present answer."""
    options: dict[str, Any] = {"collation": query.collation} | ({"let": query.let} if query.let else {})
    if query.operation is Operation.COUNT:
        options |= {"skip": query.skip} | ({"limit": query.limit} if query.limit else {})
        return ({"n": records.count_documents(query.filter, **options)},)
    if query.operation is Operation.DISTINCT:
        values = records.distinct(query.distinct_key or "", query.filter, **options)
        return ({"values": sorted(values, key=lambda value: bson.encode({"": value}))},)
    if query.operation is Operation.AGGREGATE:
        return tuple(records.aggregate(list(query.pipeline), **options))
    cursor = records.find(query.filter, query.projection, skip=query.skip, limit=query.limit, **options)
    return tuple(cursor.sort(list(query.sort)) if query.sort else cursor)


def comparable(documents: Sequence[Document], *, ordered: bool) -> list[bytes]:
    """The same for equal answers. ordered: whether mongod promises an order."""
    encoded = [bson.encode(document) for document in documents]
    return encoded if ordered else sorted(encoded)


@contextmanager
def populated(
    mongo_url: str, database: str, contents: Mapping[str, Iterable[dict[str, Any]]], *, images: bool
) -> Iterator[Records]:
    """The first of these collections, in a database of their own that is dropped afterwards.

    images: the collections record pre- and post-images.
    """
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        try:
            for name, records in contents.items():
                collection = client[database].create_collection(name, changeStreamPreAndPostImages={"enabled": images})
                collection.insert_many(records)
            yield client[database][next(iter(contents))]
        finally:
            client.drop_database(database)


class Guard:
    """A grid of one cell for one collection, without anything between them that could lose or delay.

    newest_overtaken: the newest version of a notification that was sent ahead of its turn.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._snapshots = MongoSnapshots(records.database.client, max_records=MOST_CONTRIBUTORS + 1)
        self.namespace = f"{records.database.name}.{records.name}"
        self._node = MatchingNode(
            Cell(query_partition=0, write_partition=0),
            GridShape(query_partitions=1, write_partitions=1),
            retention_ms=60_000,
        )
        self._registered = 0
        self.newest_overtaken: Version = 0
        self._node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=self.now()), now_ms=_NOW_MS)

    def now(self) -> Version:
        """The database's current version."""
        time = self._records.database.command("ping")["operationTime"]
        return int(time.time) << 32 | int(time.inc)

    def watch(self, records: RecordSource = RecordSource.IMAGES) -> Any:
        """A change stream as ingest opens it."""
        document = "updateLookup" if records.looked_up else "whenAvailable"
        return self._records.database.watch(
            list(STAGES), full_document=document, full_document_before_change="whenAvailable"
        )

    def written(self, write: Callable[[], T], *, times: int) -> Iterator[tuple[T, list[AfterImage]]]:
        """Yield the result of each of so many writes, with its images as ingest produces them."""
        marks = self._records.database[MARKS]
        with self.watch() as stream:
            for mark in range(times):
                returned = write()
                marks.insert_one({"_id": mark})
                events = _up_to(stream, mark)
                yield (
                    returned,
                    [image for event in events for image in after_images(event, records=RecordSource.IMAGES)],
                )

    def register(
        self, query: Query, documents: Sequence[Document], *, contributors: bool = True
    ) -> tuple[str, Sequence[Outcome]]:
        """Register this answer, which has just been read; return the registration's id and the node's outcomes.

        contributors: they are read as well, at once.
        """
        read_at = self.now()
        shows = all("_id" in document for document in documents)
        read = CapturedRead(
            query=query,
            read_at=read_at,
            ids=tuple(document["_id"] for document in documents) if shows else None,
            last=documents[-1] if documents else None,
        )
        dependency = dependencies([read])[0]
        if dependency.plan.result is not Result.RECORDS:
            dependency = dependencies([CapturedRead(query=query, read_at=read_at, ids=None)])[0]
        return self.register_read(dependency, contributors=contributors)

    def register_read(self, dependency: Dependency, *, contributors: bool = True) -> tuple[str, Sequence[Outcome]]:
        """The registration's id for one captured read, and the outcome; see `register`."""
        self._registered += 1
        registered = registration(
            dependency,
            registration_id=f"app:{self._registered}",
            tenant="t",
            since=max(self._node.watermark, self.newest_overtaken),
            expires_at_ms=_FOREVER_MS,
        )
        if contributors:
            registered = self._contributed(registered)
        return registered.id, self._node.register(registered, now_ms=_NOW_MS)

    def _contributed(self, registered: Registration) -> Registration:
        """With its contributors, if they are known, as an application reports them afterwards."""
        try:
            return with_contributors(registered, self._snapshots, most=MOST_CONTRIBUTORS) or registered
        except QueryError:
            return registered

    def overtake(self, image: AfterImage) -> list[Invalidated]:
        """Return the invalidations of one write ahead of its turn. The next reads are dated by the write, if there are any."""
        invalidated = self._node.overtake(image, now_ms=_NOW_MS)
        self.newest_overtaken = max([self.newest_overtaken, *(notification.version for notification in invalidated)])
        return invalidated

    def process(self, images: Iterable[AfterImage]) -> Iterator[Invalidated]:
        """Yield the invalidations of these writes; missing records are read first, as ingest reads them."""
        images = list(images)
        if any(map(needs_record, images)):
            lookup = RecordLookup()
            for image in filter(needs_record, images):
                lookup.want(image.namespace, record_key(image.key), image.version)
            lookup.read(self._records.database.client)
            images = [completed(image, lookup) for image in images]
        for image in images:
            yield from self._node.process(image, now_ms=_NOW_MS)


def _up_to(stream: Any, mark: int) -> Iterator[Any]:
    """The events before a mark."""
    for event in stream:
        if event["ns"].get("coll") != MARKS:
            yield event
        elif event["documentKey"]["_id"] == mark:
            return
