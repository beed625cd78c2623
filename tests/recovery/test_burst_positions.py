"""During a burst no saved position runs ahead of the pipelines, and no record is lost when appends fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.ingest.change_stream import EVENTS_AT_ONCE, ChangeStream
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.primary_probes import probe_primary
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.model import GridShape, WriteKind
from tests.recovery.ingesting import Client, count, ingesting, of
from tests.support import becomes, running

WRITES = 6 * EVENTS_AT_ONCE
SHAPE = GridShape(query_partitions=1, write_partitions=1)


class Noting(MemoryEventLayer):
    """An event layer that notes each saved position, with the number of records in the write pipeline at that moment.

    failing: share of the appends of images that fail.
    """

    def __init__(self, deployment: str, *, failing: float = 0.0) -> None:
        super().__init__()
        self.saved: list[tuple[bytes, int]] = []
        self.failed = 0
        self._noted_name = streams.resume_position(deployment)
        self._noted_stream = streams.writes(deployment, 0)
        self._failing = failing
        self._random = random.Random(7)
        self._records = 0

    def append(self, stream: str, payloads: Sequence[bytes], **named: Any) -> None:
        if stream == self._noted_stream:
            if len(payloads) > 1 and self._random.random() < self._failing:
                self.failed += 1
                raise EventLayerError("it does not answer")
            self._records += sum(decode_image(payload).key is not None for payload in payloads)
        super().append(stream, payloads, **named)

    def put(self, name: str, value: bytes) -> None:
        if name == self._noted_name:
            self.saved.append((value, self._records))
        super().put(name, value)


def written(database: Any) -> ResumePosition:
    """Write a burst; return the position before it."""
    database.create_collection("burst")
    position = ResumePosition(None, probe_primary(database.client, system_clock).majority, None)
    database.burst.insert_many([{"_id": key} for key in range(WRITES)])
    return position


def test_each_saved_position_lies_behind_the_appended_records_and_no_further(
    client: Client, database: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingest that goes on from it receives the first record that was not appended."""
    monkeypatch.setattr("quaestor.invalidation.ingest.resume_position._SAVE_EVERY_S", 0.0)
    layer = Noting(prefix)
    before = written(database)
    probe = probe_primary(client, system_clock)
    layer.put(streams.resume_position(prefix), before._replace(election=probe.election).encode())
    ingest = ChangeStreamFollower(client, layer, SHAPE, LoopContext(deployment=prefix, heartbeat_ms=40))
    with running(ingest.run):
        becomes(lambda: any(records >= WRITES for _, records in layer.saved))
    amid = [(value, records) for value, records in layer.saved if 0 < records < WRITES]
    assert amid, "no position was saved during the burst"
    for value, records in amid:
        position = ResumePosition.decode(value)
        with closing(ChangeStream.open(client, position, records=RecordSource.IMAGES, await_ms=200)) as stream:
            assert stream.read()[0]["documentKey"]["_id"] == records


@pytest.mark.parametrize("failing", [0.2, 0.6])
def test_a_burst_arrives_whole_and_in_order_though_appends_fail(
    client: Client, database: Any, prefix: str, failing: float
) -> None:
    """A batch that could not be appended is read again."""
    layer = Noting(prefix, failing=failing)
    with ingesting(client, layer, prefix) as pipelines:
        written(database)
        images = of(pipelines.until(count(f"{prefix}.burst", WRITES)), f"{prefix}.burst")
        pipelines.until_tick_after(system_clock())
    assert layer.failed
    keys = [image.key for image in images if image.kind is WriteKind.INSERT]
    assert sorted(set(keys)) == list(range(WRITES))
    first = list(dict.fromkeys(keys))
    assert first == sorted(first), "a record came before an earlier one"


def test_a_tick_after_a_burst_proves_no_record_that_is_missing(client: Client, database: Any, prefix: str) -> None:
    """Ticks with a version say that every write up to it is in the pipeline."""
    layer = MemoryEventLayer()
    with ingesting(client, layer, prefix):
        for _ in range(3):
            database.burst.delete_many({})
            database.burst.insert_many([{"_id": key} for key in range(2 * EVENTS_AT_ONCE)])
        ended_ms = system_clock()
        becomes(lambda: _proven_ms(layer, prefix) >= ended_ms)
    newest = 0
    for entry in layer.read({streams.writes(prefix, 0): "0"}, count=100_000, block_ms=0):
        image = decode_image(entry.payload)
        if image.kind is WriteKind.TICK:
            newest = max(newest, image.version)
        else:
            assert image.version > newest, "a tick had proved that it was there"


def _proven_ms(layer: MemoryEventLayer, prefix: str) -> int:
    entries = layer.read({streams.writes(prefix, 0): "0"}, count=100_000, block_ms=0)
    images = [decode_image(entry.payload) for entry in entries]
    return max((image.wall_ms for image in images if image.kind is WriteKind.TICK), default=0)
