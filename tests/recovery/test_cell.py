"""The loop around a matching node, on a real Valkey: nothing is lost when it, or the event layer, goes away."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.model import (
    Activated,
    AfterImage,
    Heartbeat,
    Invalidated,
    Refused,
    WriteKind,
)
from quaestor.testing import servers
from tests.recovery.cell_harness import CELL, DEADLINE_S, RETENTION_MS, Harness


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
    assert (invalidated.version, invalidated.key, invalidated.source) == (version, 2, CELL)


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


def test_pipelines_are_trimmed_as_far_as_nobody_needs_them() -> None:
    """Writes: the retention. Queries: as long as a lease lasts. The entry read last always stays, as the place mark."""
    ahead_ms = [0]
    harness = Harness(MemoryEventLayer(clock=lambda: system_clock() + ahead_ms[0]), "d")
    queries, writes = streams.queries(harness.deployment, 0), streams.writes(harness.deployment, 0)
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
    leases = LeaseHorizon()
    for appended_ms, expires_ms in [(1, 100), (2, 50), (3, 200), (4, 150)]:
        leases.add(appended_ms, expires_ms)
    assert [leases.needed_since_ms(now_ms) for now_ms in (10, 99, 100, 160, 199, 200)] == [1, 1, 3, 3, 3, 200]


def test_offsets_name_the_moment_an_entry_was_appended(harness: Harness) -> None:
    before_ms = system_clock()
    harness.tick()
    (entry,) = harness.layer.read({streams.writes(harness.deployment, 0): "0"}, count=1, block_ms=0)
    assert before_ms - 5 <= offsets.appended_at_ms(entry.offset) <= system_clock() + 5
