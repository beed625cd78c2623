"""The loop around a matching node, on a real Valkey: nothing is lost when it, or the event layer, goes away."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from quaestor.clock import system_clock
from quaestor.demo import servers
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.invalidation.cell import CellLoop
from quaestor.invalidation.checkpoint import LongestLeases
from quaestor.invalidation.event_layer import offsets, streams
from quaestor.invalidation.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.invalidation.event_layer.redis import RedisEventLayer
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    Notification,
    Operation,
    Query,
    Refused,
    Registration,
    WriteKind,
)
from quaestor.ports import EventLayer

DEADLINE_S = 30
HEARTBEAT_MS = 30
RETENTION_MS = 60_000
CELL = Cell(query_partition=0, write_partition=0)
SHAPE = GridShape(query_partitions=1, write_partitions=1)
N = TypeVar("N", Activated, Refused, Invalidated, Heartbeat)


class Harness:
    """Both ends of a 1 x 1 grid: plays ingest and app, reads what the cell says."""

    def __init__(self, layer: EventLayer, deployment: str) -> None:
        self.layer, self.deployment = layer, deployment
        self.versions = itertools.count(1_000)
        self.version = 0
        self.wall_ms = 0
        self.after = "0"
        self.said: list[Notification] = []

    @contextmanager
    def cell(self, layer: EventLayer | None = None, **options: Any) -> Iterator[MatchingNode]:
        """A cell with a new node, in a thread of its own, that ends without any last words."""
        node = MatchingNode(CELL, SHAPE, retention_ms=RETENTION_MS)
        options = {"deployment": self.deployment, "heartbeat_ms": HEARTBEAT_MS, "retention_ms": RETENTION_MS} | options
        loop = CellLoop(node, layer or self.layer, CELL, SHAPE, **options)
        stop = threading.Event()
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        try:
            yield node
        finally:
            stop.set()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def tick(self) -> int:
        """What ingest appends while the change stream is silent; returns the moment it proves."""
        version = self.version or next(self.versions)
        self._append(AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=self.moment()))
        return self.wall_ms

    def moment(self) -> int:
        """Now, and later than every moment before, so that no write shares the moment of a tick behind it."""
        self.wall_ms = max(self.wall_ms + 1, system_clock())
        return self.wall_ms

    def write(self, key: Any, **fields: Any) -> int:
        self.version = next(self.versions)
        image = AfterImage(
            namespace="db.c", kind=WriteKind.INSERT, version=self.version, key=key, after={"_id": key, **fields},
            after_exact=True, before_known=True, wall_ms=self.moment(),
        )  # fmt: skip
        self._append(image)
        return self.version

    def _append(self, image: AfterImage) -> None:
        self.version = max(self.version, image.version)
        self.layer.append(streams.writes(self.deployment, 0), [encode_image(image)])

    def register(self, name: str, *, since: int | None = None, lease_ms: int = 600_000, **match: Any) -> None:
        """A cached find of everything that matches, with an empty result so far."""
        registration = Registration(
            id=name, tenant="t", query_id=f"q-{name}",
            query=Query(namespace="db.c", operation=Operation.FIND, filter=match),
            since=self.version if since is None else since, read_at=self.version if since is None else since,
            members=(), last=None, expires_at_ms=system_clock() + lease_ms,
        )  # fmt: skip
        self.layer.append(streams.queries(self.deployment, 0), [encode_query_event(registration)])

    def cancel(self, name: str) -> None:
        cancellation = Cancellation(tenant="t", query_id=f"q-{name}", registration_ids=(name,))
        self.layer.append(streams.queries(self.deployment, 0), [encode_query_event(cancellation)])

    def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < deadline, [n for n in self.said if not isinstance(n, Heartbeat)]
            self.read()

    def read(self) -> None:
        stream = streams.notifications(self.deployment)
        try:
            for entry in self.layer.read({stream: self.after}, count=1000, block_ms=100):
                self.after = entry.offset
                self.said.append(decode_notification(entry.payload))
        except EventLayerResetError:
            self.after = "0"
        except EventLayerError:
            pass

    def all(self, kind: type[N]) -> list[N]:
        return [notification for notification in self.said if isinstance(notification, kind)]

    def activated(self, name: str) -> None:
        self.until(lambda: name in {notification.registration_id for notification in self.all(Activated)})

    def dead(self) -> list[str]:
        return [name for notification in self.all(Invalidated) for name in notification.registration_ids]

    def invalidated(self, *names: str) -> None:
        self.until(lambda: set(names) <= set(self.dead()))

    def settled(self) -> None:
        """The cell has caught up with everything appended so far, and said all it has to say about it."""
        moment = self.tick()
        self.until(lambda: any(beat.fresh_as_of_ms >= moment for beat in self.all(Heartbeat)))


@pytest.fixture
def harness(redis_url: str, prefix: str) -> Iterator[Harness]:
    layer = RedisEventLayer(redis_url, prefix)
    yield Harness(layer, prefix)
    layer.close()


def test_a_registration_is_activated_and_invalidated_by_its_first_change_only(harness: Harness) -> None:
    with harness.cell():
        harness.settled()
        harness.register("jfk", origin="JFK")
        harness.activated("jfk")
        harness.write(1, origin="EWR")
        harness.settled()
        assert harness.dead() == []
        version = harness.write(2, origin="JFK")
        harness.write(3, origin="JFK")
        harness.settled()
    assert harness.dead() == ["jfk"]
    (invalidated,) = harness.all(Invalidated)
    assert (invalidated.version, invalidated.key, invalidated.cell) == (version, 2, CELL)


def test_a_write_between_read_and_registration_is_replayed(harness: Harness) -> None:
    with harness.cell():
        harness.settled()
        read_at = harness.version
        harness.write(1, origin="JFK")
        harness.settled()
        harness.register("late", since=read_at, origin="JFK")
        harness.invalidated("late")
    assert harness.all(Activated) == []


def test_heartbeats_prove_no_more_than_ticks_and_writes_do(harness: Harness) -> None:
    """Without ticks a cell goes on beating, and every beat says how long ago it was last fed."""
    with harness.cell():
        harness.settled()
        fed_ms = max(beat.fresh_as_of_ms for beat in harness.all(Heartbeat))
        beats = len(harness.all(Heartbeat))
        harness.until(lambda: len(harness.all(Heartbeat)) >= beats + 5)
    assert {beat.fresh_as_of_ms for beat in harness.all(Heartbeat)[beats:]} == {fed_ms}
    assert {beat.watermark for beat in harness.all(Heartbeat)[beats:]} == {harness.version}


def test_a_cell_that_knows_no_write_yet_refuses_instead_of_promising(harness: Harness) -> None:
    with harness.cell():
        harness.register("early", since=5, origin="JFK")
        harness.until(lambda: bool(harness.all(Refused)))
    assert harness.all(Activated) == []


def test_a_restarted_cell_finds_what_was_written_while_it_was_away(harness: Harness) -> None:
    with harness.cell():
        harness.settled()
        harness.register("old", origin="JFK")
        harness.register("other", origin="EWR")
        harness.register("cancelled", origin="JFK")
        harness.cancel("cancelled")
        harness.activated("other")
        harness.write(1, origin="LGA")
        harness.settled()
    harness.write(2, origin="JFK")
    with harness.cell() as node:
        harness.invalidated("old")
        harness.settled()
        assert node.registrations == 1
        assert harness.dead() == ["old"]
        harness.write(3, origin="EWR")
        harness.invalidated("other")


def test_a_restart_invalidates_nothing_that_did_not_change(harness: Harness) -> None:
    """Writes that were matched before are not held against registrations that came after them, gaps neither."""
    harness._append(AfterImage(namespace="*", kind=WriteKind.GAP, version=next(harness.versions)))
    harness.write(1, origin="JFK")
    with harness.cell():
        harness.settled()
        harness.register("kept", origin="JFK")
        harness.activated("kept")
        harness.settled()
    for _ in range(3):
        with harness.cell() as node:
            harness.settled()
            assert node.registrations == 1
    assert harness.dead() == []


def test_registrations_made_while_the_cell_was_away_are_matched_against_what_they_missed(harness: Harness) -> None:
    with harness.cell():
        harness.settled()
    read_at = harness.version
    harness.write(1, origin="JFK")
    harness.register("changed", since=read_at, origin="JFK")
    harness.register("unchanged", since=read_at, origin="EWR")
    with harness.cell():
        harness.invalidated("changed")
        harness.activated("unchanged")
    assert harness.dead() == ["changed"]


def test_a_transaction_cut_in_two_by_a_crash_is_matched_whole(harness: Harness) -> None:
    """Its writes share one version: the checkpoint must not claim the version after the first of them."""

    def part(key: int, origin: str) -> None:
        harness._append(
            AfterImage(
                namespace="db.c",
                kind=WriteKind.INSERT,
                version=shared,
                key=key,
                after={"_id": key, "origin": origin},
                after_exact=True,
                before_known=True,
                wall_ms=harness.moment(),
            )
        )

    with harness.cell():
        harness.settled()
        harness.register("second", origin="JFK")
        harness.activated("second")
        shared = harness.version = next(harness.versions)
        part(1, "EWR")
        harness.until(lambda: harness.all(Heartbeat)[-1].watermark == shared)
        beats = len(harness.all(Heartbeat))
        harness.until(lambda: len(harness.all(Heartbeat)) > beats + 2)  # checkpoints follow heartbeats
    part(2, "JFK")
    with harness.cell():
        harness.invalidated("second")


def test_a_cell_that_was_away_longer_than_writes_are_kept_invalidates_everything(harness: Harness) -> None:
    writes = streams.writes(harness.deployment, 0)
    with harness.cell():
        harness.settled()
        harness.register("a", origin="JFK")
        harness.register("b", origin="EWR")
        harness.activated("b")
        harness.settled()
    harness.write(1, origin="LGA")
    harness.layer.trim(writes, before_ms=2**42)
    harness.write(2, origin="LGA")
    with harness.cell():
        harness.invalidated("a", "b")
        harness.settled()
        harness.register("c", origin="JFK")
        harness.activated("c")
        harness.write(3, origin="JFK")
        harness.invalidated("c")


def test_a_running_cell_that_was_overtaken_by_trimming_invalidates_everything(harness: Harness, redis_url: str) -> None:
    """As if it had been suspended for longer than the retention."""

    class Suspended(RedisEventLayer):
        asleep = threading.Event()
        gate = threading.Event()

        def read(self, *args: Any, **options: Any) -> Any:
            if not self.gate.is_set():
                self.asleep.set()
                assert self.gate.wait(DEADLINE_S)
            return super().read(*args, **options)

    slow = Suspended(redis_url, harness.deployment)
    slow.gate.set()
    ahead_ms = [0]
    with harness.cell(slow, clock=lambda: system_clock() + ahead_ms[0]):
        harness.settled()
        harness.register("a", origin="JFK")
        harness.activated("a")
        slow.asleep.clear()
        slow.gate.clear()
        assert slow.asleep.wait(DEADLINE_S)
        ahead_ms[0] = 10 * RETENTION_MS
        harness.write(1, origin="LGA")
        harness.layer.trim(streams.writes(harness.deployment, 0), before_ms=2**42)
        harness.write(2, origin="LGA")
        slow.gate.set()
        harness.invalidated("a")
    slow.close()


def test_unreadable_payloads_invalidate_rather_than_stop_the_cell(harness: Harness) -> None:
    with harness.cell():
        harness.settled()
        harness.register("a", origin="JFK")
        harness.activated("a")
        harness.layer.append(streams.queries(harness.deployment, 0), [b"not BSON"])
        harness.layer.append(streams.writes(harness.deployment, 0), [b"not BSON"])
        harness.invalidated("a")
        harness.settled()
        harness.register("b", origin="JFK")
        harness.activated("b")


def test_nothing_is_lost_while_the_event_layer_is_away(tmp_path: Path) -> None:
    """The node keeps its notifications and its place; the server comes back with its data."""
    server = servers.redis_server(tmp_path)
    server.start()
    try:
        harness = Harness(RedisEventLayer(server.url, "t"), "t")
        with harness.cell(RedisEventLayer(server.url, "t")) as node:
            harness.settled()
            harness.register("a", origin="JFK")
            harness.activated("a")
            server.stop()
            with pytest.raises(EventLayerError):
                harness.write(1, origin="JFK")
            server.start()
            harness.write(2, origin="JFK")
            harness.invalidated("a")
            assert node.registrations == 0
    finally:
        server.stop()


def test_an_event_layer_that_lost_its_data_invalidates_everything(tmp_path: Path) -> None:
    server = servers.redis_server(tmp_path, persistent=False)
    server.start()
    try:
        harness = Harness(RedisEventLayer(server.url, "t"), "t")
        with harness.cell(RedisEventLayer(server.url, "t")) as node:
            harness.settled()
            harness.register("a", origin="JFK")
            harness.activated("a")
            redis.Redis.from_url(server.url).flushall()
            harness.invalidated("a")
            assert node.registrations == 0
            harness.settled()
            harness.register("b", origin="JFK")
            harness.activated("b")
            harness.write(1, origin="JFK")
            harness.invalidated("b")
    finally:
        server.stop()


def test_pipelines_are_trimmed_as_far_as_nobody_needs_them(harness: Harness) -> None:
    """Writes: the retention. Queries: as long as a lease lasts. The entry read last always stays, as the place mark."""
    queries, writes = streams.queries(harness.deployment, 0), streams.writes(harness.deployment, 0)
    ahead_ms = [0]
    with harness.cell(clock=lambda: system_clock() + ahead_ms[0]) as node:
        harness.settled()
        harness.register("long", lease_ms=10 * RETENTION_MS, origin="JFK")
        harness.register("short", lease_ms=RETENTION_MS, origin="EWR")
        harness.activated("short")
        first_query, first_write = harness.layer.first_offset(queries), harness.layer.first_offset(writes)
        ahead_ms[0] = 2 * RETENTION_MS
        harness.until(lambda: node.registrations == 1)
        harness.write(1, origin="LGA")
        harness.until(lambda: harness.layer.first_offset(writes) != first_write)
        assert harness.layer.first_offset(writes) is not None
        assert harness.layer.first_offset(queries) == first_query
        ahead_ms[0] = 20 * RETENTION_MS
        harness.cancel("nobody")
        harness.until(lambda: harness.layer.first_offset(queries) != first_query)
        assert node.registrations == 0


def test_the_query_pipeline_is_needed_since_the_oldest_lease_that_still_runs() -> None:
    leases = LongestLeases()
    for appended_ms, expires_ms in [(1, 100), (2, 50), (3, 200), (4, 150)]:
        leases.add(appended_ms, expires_ms)
    assert [leases.needed_since_ms(now_ms) for now_ms in (10, 99, 100, 160, 199, 200)] == [1, 1, 3, 3, 3, 200]


def test_offsets_name_the_moment_an_entry_was_appended(harness: Harness) -> None:
    before_ms = system_clock()
    harness.tick()
    (entry,) = harness.layer.read({streams.writes(harness.deployment, 0): "0"}, count=1, block_ms=0)
    assert before_ms - 5 <= offsets.appended_at_ms(entry.offset) <= system_clock() + 5
