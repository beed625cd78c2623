"""Usage reports of an app process to the nodes: bounded, by query where it is known, to the right partitions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.usage_reports import MOST_REPORTED, REPORT_EVERY_MS, UsageReports
from quaestor.model import CachedResponse, GridShape, Usage
from quaestor.read_path.entry_lookup import MOST_SERVED
from tests.hand_driven import START_MS, HandEngine

ONE = GridShape(query_partitions=1, write_partitions=1)
NOW_MS = 1_000_000


class App:
    """Its hits, and what it reports of them. Query ids are those of its own registrations, `me:<query id>`."""

    def __init__(self) -> None:
        self.served: list[tuple[Sequence[str], int]] = []
        self.reports = UsageReports(deployment="d")

    def take(self) -> list[tuple[Sequence[str], int]]:
        served, self.served = self.served, []
        return served

    def report(self, shape: GridShape = ONE, *, now_ms: int = NOW_MS) -> dict[str, Usage]:
        self.reports.gather(
            self.take(), lambda i: i[3:] if i.startswith("me:") and "dead" not in i else None, origin="me"
        )
        return dict(self.reports.due(shape, now_ms=now_ms))


def test_reads_are_added_up_by_query() -> None:
    app = App()
    app.served = [(("me:q1", "me:q2"), 3), (("me:q2",), 4)]
    assert app.report() == {streams.queries("d", 0): Usage(tenant="d", queries=(("q2", 7), ("q1", 3)))}


def test_nothing_is_said_of_what_was_not_read_and_nothing_twice() -> None:
    app = App()
    assert app.report() == {}
    app.served = [(("me:q1",), 1)]
    assert len(app.report(now_ms=NOW_MS + REPORT_EVERY_MS)) == 1
    assert app.report(now_ms=NOW_MS + 2 * REPORT_EVERY_MS) == {}


def test_between_two_reports_reads_add_up() -> None:
    app = App()
    app.report()
    for second in range(1, 3):
        app.served = [(("me:q1",), 10)]
        assert app.report(now_ms=NOW_MS + second) == {}
    (usage,) = app.report(now_ms=NOW_MS + REPORT_EVERY_MS).values()
    assert usage.queries == (("q1", 20),)


def test_each_partition_hears_of_its_queries_and_all_of_foreign_registrations() -> None:
    shape = GridShape(query_partitions=4, write_partitions=1)
    app = App()
    app.served = [((f"me:{number:032x}",), 1) for number in range(50)] + [(("other:7",), 5)]
    heard = app.report(shape)
    assert set(heard) == {streams.queries("d", partition) for partition in range(4)}
    for partition in range(4):
        usage = heard[streams.queries("d", partition)]
        assert usage.registrations == (("other:7", 5),)
        assert {query_partition(query_id, 4) for query_id, _ in usage.queries} == {partition}


def test_own_registrations_that_are_gone_are_not_reported_as_foreign() -> None:
    app = App()
    app.served = [(("me:dead",), 5)]
    assert app.report() == {}


def test_a_report_names_the_most_read_and_no_more_than_so_many() -> None:
    app = App()
    app.served = [((f"me:q{number}",), number) for number in range(1, 3 * MOST_REPORTED)]
    (usage,) = app.report().values()
    assert len(usage.queries) == MOST_REPORTED
    assert usage.queries[0] == (f"q{3 * MOST_REPORTED - 1}", 3 * MOST_REPORTED - 1)


def stored(engine: HandEngine, key: str) -> None:
    engine.store.keep(
        CachedResponse(
            key=key,
            status=200,
            headers=(),
            body=b"",
            etag=b'"e"',
            stored_at_ms=START_MS,
            fresh_until_ms=START_MS + 60_000,
            registrations=(f"me:{key}",),
            tags=(),
            resource="/a",
        )
    )


def test_the_read_path_counts_what_it_serves_until_somebody_asks() -> None:
    engine = HandEngine()
    for key in "ab":
        stored(engine, key)
    for key in ("a", "b", "a", "missing"):
        engine.read_path.lookup.servable(key, START_MS)
    assert sorted(engine.read_path.lookup.take_served()) == [(("me:a",), 2), (("me:b",), 1)]
    assert engine.read_path.lookup.take_served() == []
    engine.read_path.lookup.servable("a", START_MS)
    engine.store.drop("a")
    assert engine.read_path.lookup.take_served() == [(("me:a",), 1)], "what has left since was served all the same"


def test_the_store_receives_the_hits_of_its_copies_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The level below may be a store that all processes share, and that keeps popular entries. No hit waits for it."""
    engine = HandEngine()
    reports: list[tuple[str, int]] = []
    monkeypatch.setattr(engine.store, "used", lambda key, hits: reports.append((key, hits)))
    stored(engine, "a")
    for _ in range(3):
        engine.read_path.lookup.servable("a", START_MS)
    assert reports == []
    engine.read_path.lookup.take_served()
    assert reports == [("a", 3)]


def test_expired_and_dead_entries_are_not_counted() -> None:
    engine = HandEngine()
    for key in "ab":
        stored(engine, key)
    engine.registry.kill("me:a")
    engine.read_path.lookup.servable("a", START_MS)
    engine.read_path.lookup.servable("b", START_MS + 60_000)
    assert engine.read_path.lookup.take_served() == []


def test_counting_without_anybody_who_asks_takes_bounded_memory() -> None:
    engine = HandEngine(memory_bytes=10**9)
    for number in range(MOST_SERVED + 5):
        stored(engine, str(number))
        engine.read_path.lookup.servable(str(number), START_MS)
    assert len(engine.read_path.lookup.take_served()) == MOST_SERVED
