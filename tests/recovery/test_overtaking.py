"""Writes overtake a burst in another collection: on a real mongod, with the backlog there before ingest reads on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.ingest.change_events import Collection
from quaestor.invalidation.ingest.change_stream import EVENTS_AT_ONCE, ChangeStream
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.overtaking import hot, is_full
from quaestor.invalidation.ingest.record_source import LOOKED_UP_AT_ONCE
from quaestor.invalidation.ingest.resume_position import ResumePositionStore
from quaestor.model import AfterImage, GridShape, Version, WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import PipelineSize
from tests.recovery.ingesting import DEADLINE_S, HEARTBEAT_MS, Client, count, ingesting, of
from tests.support import running

IN_BURST = 10_000


class Recorded(MemoryEventLayer):
    """An event layer that notes the order of what is appended, and the saved position at each early write.

    appended: name of the pipeline and images, append by append.
    reached: the saved version before each append of early writes.
    """

    def __init__(self, deployment: str) -> None:
        super().__init__()
        self.writes, self.early = streams.writes(deployment, 0), streams.early_writes(deployment, 0)
        self.appended: list[tuple[str, list[AfterImage]]] = []
        self.reached: list[Version] = []
        self._positions = ResumePositionStore(self, streams.resume_position(deployment))

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        images = [decode_image(payload) for payload in payloads] if stream in (self.writes, self.early) else []
        if stream == self.early:
            position = self._positions.load()
            assert position is not None
            self.reached.append(position.reached)
        super().append(stream, payloads)
        self.appended.append((stream, images))

    def first(self, stream: str, namespace: str) -> int:
        """Number of the first append to this pipeline with a write of this collection."""
        return next(
            number for number, (name, images) in enumerate(self.appended) if name == stream and of(images, namespace)
        )

    def overtaken(self) -> list[AfterImage]:
        return [image for stream, images in self.appended if stream == self.early for image in images]


def burst(client: Client, collection: Any) -> None:
    """One transaction that changes many records."""
    with client.start_session() as session, session.start_transaction():
        collection.update_many({}, {"$inc": {"n": 1}}, session=session)


@pytest.fixture
def behind(client: Client, database: Any, prefix: str) -> Recorded:
    """The layer of an ingest that is stopped, while one burst and then one write of another collection have come."""
    layer = Recorded(prefix)
    database.plain.insert_many([{"_id": key, "n": 0} for key in range(IN_BURST)])
    database.other.insert_one({"_id": 1, "x": 0})
    with ingesting(client, layer, prefix):
        pass
    layer.appended.clear()
    burst(client, database.plain)
    database.other.update_one({"_id": 1}, {"$set": {"x": 1}})
    return layer


def test_a_write_overtakes_the_burst_and_comes_again_in_its_turn(client: Client, prefix: str, behind: Recorded) -> None:
    """The write is reported early, before the first large read; the write pipeline has every write once, in order."""
    with ingesting(client, behind, prefix, wait=False) as pipelines:
        images = pipelines.until(count(f"{prefix}.other", 1))
    early = of(behind.overtaken(), f"{prefix}.other")
    assert [(image.kind, image.after) for image in early[-1:]] == [(WriteKind.UPDATE, {"_id": 1, "x": 1})]
    assert of(behind.overtaken(), f"{prefix}.plain") == []
    reported = behind.first(behind.early, f"{prefix}.other")
    before = [image for stream, images in behind.appended[:reported] if stream == behind.writes for image in images]
    assert len(of(before, f"{prefix}.plain")) <= LOOKED_UP_AT_ONCE
    versions = [image.version for image in images]
    assert versions == sorted(versions)
    changed = [image.key for image in of(images, f"{prefix}.plain") if image.kind is WriteKind.UPDATE]
    assert sorted(changed) == list(range(IN_BURST))
    assert early[-1].version == of(images, f"{prefix}.other")[-1].version


def test_the_version_of_an_early_write_is_saved_before_the_write_is_appended(
    client: Client, prefix: str, behind: Recorded
) -> None:
    """Apps date reads by it, so that a gap must lie above it, also if ingest dies right now."""
    with ingesting(client, behind, prefix, wait=False) as pipelines:
        pipelines.until(count(f"{prefix}.other", 1))
    early = [images for stream, images in behind.appended if stream == behind.early and images]
    assert early
    assert all(
        reached >= max(image.version for image in images) for reached, images in zip(behind.reached, early, strict=True)
    )


def test_a_second_burst_is_left_out_too(client: Client, database: Any, prefix: str, behind: Recorded) -> None:
    """The early stream comes back full itself: it goes on without the collection that fills it."""
    database.images.insert_many([{"_id": key} for key in range(IN_BURST)])
    database.last.insert_one({"_id": 1})
    with ingesting(client, behind, prefix, wait=False) as pipelines:
        pipelines.until(count(f"{prefix}.last", 1))
    assert len(of(behind.overtaken(), f"{prefix}.images")) < 5 * EVENTS_AT_ONCE, "of ten times as many"
    assert behind.first(behind.early, f"{prefix}.last") < behind.first(behind.writes, f"{prefix}.images")


def test_many_writes_of_another_collection_are_no_burst_yet(
    client: Client, database: Any, prefix: str, behind: Recorded
) -> None:
    """As many as two reads of the early stream bring are delivered early, all of them."""
    database.images.insert_many([{"_id": key} for key in range(2 * EVENTS_AT_ONCE)])
    with ingesting(client, behind, prefix, wait=False) as pipelines:
        pipelines.until(count(f"{prefix}.images", 2 * EVENTS_AT_ONCE))
    assert len({image.key for image in of(behind.overtaken(), f"{prefix}.images")}) == 2 * EVENTS_AT_ONCE


def test_drops_and_renames_of_other_collections_overtake_too(
    client: Client, database: Any, prefix: str, behind: Recorded
) -> None:
    database.other.rename("another")
    database.another.drop()
    with ingesting(client, behind, prefix, wait=False) as pipelines:
        pipelines.until(lambda images: any(image.namespace == f"{prefix}.another" for image in images))
    early = [image.namespace for image in behind.overtaken() if image.kind is WriteKind.COLLECTION]
    assert {f"{prefix}.other", f"{prefix}.another"} <= set(early)


def test_a_failing_early_stream_is_reported_and_costs_no_write(
    client: Client, prefix: str, behind: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any failure of the early stream the change stream goes on alone,
    and the early one is not opened again in this backlog.
    """
    opened = ChangeStream.open

    def failing(*positional: Any, **named: Any) -> ChangeStream:
        if named.get("without"):
            raise PyMongoError("no second stream")
        return opened(*positional, **named)

    monkeypatch.setattr(ChangeStream, "open", failing)
    telemetry = Telemetry()
    shape = GridShape(query_partitions=1, write_partitions=1)
    context = LoopContext(deployment=prefix, heartbeat_ms=HEARTBEAT_MS, telemetry=telemetry)
    ingest = ChangeStreamFollower(client, behind, shape, context)
    with running(ingest.run, within_s=DEADLINE_S):
        _until(behind, f"{prefix}.other")
    assert behind.overtaken() == []
    assert b'quaestor_failures_total{part="mongodb"} 1.0' in telemetry.exposition()


def test_early_writes_are_trimmed_once_they_have_come_again(client: Client, prefix: str, behind: Recorded) -> None:
    """A clock that is an hour ahead stands for the hour after."""
    with ingesting(client, behind, prefix, wait=False) as pipelines:
        pipelines.until(count(f"{prefix}.other", 1))
    assert behind.measure(behind.early) != PipelineSize(0, 0, behind.measure(behind.early).at_ms)
    shape = GridShape(query_partitions=1, write_partitions=1)
    clock = lambda: system_clock() + 3_600_000  # noqa: E731
    later = ChangeStreamFollower(
        client, behind, shape, LoopContext(deployment=prefix, heartbeat_ms=HEARTBEAT_MS, clock=clock)
    )
    with running(later.run, within_s=DEADLINE_S):
        while behind.first_offset(behind.early) is not None:
            behind.read({behind.writes: behind.offset_at(behind.writes, system_clock())}, count=1, block_ms=20)


def test_the_collections_that_fill_a_batch_are_hot_and_the_others_are_not() -> None:
    events = [_event("big")] * 950 + [_event("small")] * 50
    assert hot(events) == [Collection("db", "big")]
    assert set(hot([_event("a"), _event("b")] * 500)) == {Collection("db", "a"), Collection("db", "b")}
    assert hot([_event(f"c{number}") for number in range(1_000)]) == []
    assert hot([RawBSONDocument(bson.encode({"ns": {"db": "db"}}))]) == []


def test_a_batch_is_full_by_number_or_by_size() -> None:
    assert is_full([_event("c")] * EVENTS_AT_ONCE)
    assert not is_full([_event("c")] * (EVENTS_AT_ONCE - 1))
    assert is_full([_event("c", size=1024**2)] * 8)
    assert not is_full([])


def _event(collection: str, *, size: int = 0) -> RawBSONDocument:
    document = {"ns": {"db": "db", "coll": collection}, "filler": "x" * size}
    return RawBSONDocument(bson.encode(document))


def _until(layer: Recorded, namespace: str) -> None:
    """Read the write pipeline until it holds a write of this collection."""
    after = "0"
    while True:
        for entry in layer.read({layer.writes: after}, count=1_000, block_ms=200):
            after = entry.offset
            image = decode_image(entry.payload)
            if image.namespace == namespace and image.kind is WriteKind.UPDATE:
                return
