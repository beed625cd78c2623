"""A cell that is full, on a real Valkey: what it gives up is announced, what is read stays, also after a restart."""

from __future__ import annotations

from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_query_event
from quaestor.invalidation.grid.cell_stats import CellStats, cell_stats
from quaestor.model import Activated, Heartbeat, Invalidated, MatchType, Refused, Usage
from tests.recovery.cell_harness import CELL, SHAPE, Harness


def used(harness: Harness, reads: int, name: str) -> None:
    usage = Usage(tenant=harness.deployment, queries=((f"q-{name}", reads),))
    harness.layer.append(streams.queries(harness.deployment, 0), [encode_query_event(usage)])


def withdrawn(harness: Harness) -> list[str]:
    return [
        name
        for notification in harness.all(Invalidated)
        if notification.match_type is MatchType.EVICTED
        for name in notification.registration_ids
    ]


def test_queries_that_a_full_cell_gives_up_are_announced_and_those_read_stay(harness: Harness) -> None:
    with harness.cell(limits={"max_registrations": 2, "grace_ms": 0}):
        harness.settled()
        for name in ("read", "unread"):
            harness.register(name, origin=name)
            harness.activated(name)
        used(harness, 50, "read")
        harness.register("third", origin="third")
        harness.activated("third")
        harness.write(1, origin="unread")
        harness.settled()
    assert withdrawn(harness) == ["unread"]
    assert harness.dead() == ["unread"], "once, and not again by the write that would have changed it"


def test_a_restarted_cell_remembers_what_was_read(harness: Harness) -> None:
    """Reports lie in the query pipeline beside the registrations."""
    with harness.cell(limits={"max_registrations": 2, "grace_ms": 0}):
        harness.settled()
        for name in ("read", "unread"):
            harness.register(name, origin=name)
            harness.activated(name)
        used(harness, 50, "read")
        harness.settled()
    with harness.cell(limits={"max_registrations": 2, "grace_ms": 0}) as node:
        harness.settled()
        harness.until(lambda: node.registrations == 2)
        harness.register("third", origin="third")
        harness.activated("third")
    assert withdrawn(harness) == ["unread"]


def test_a_restart_into_a_smaller_node_says_what_it_cannot_take_over(harness: Harness) -> None:
    names = [f"r{number}" for number in range(10)]
    with harness.cell():
        harness.settled()
        for name in names:
            harness.register(name, origin=name)
            harness.activated(name)
        harness.settled()
    with harness.cell(limits={"max_registrations": 4}) as node:
        harness.until(lambda: len(set(harness.dead())) == 6)
        assert node.registrations == 4
        kept = [name for name in names if name not in harness.dead()]
        for number, name in enumerate(kept):
            harness.write(number, origin=name)
        harness.invalidated(*kept)
    assert {refusal.registration_id for refusal in harness.all(Refused)} == set()
    assert len(harness.all(Activated)) == 10


def test_a_cell_tells_its_figures(harness: Harness) -> None:
    said: list[CellStats] = []

    def measured() -> bool:
        """Writes until a value covers a period in which something was written."""
        harness.write(len(said), origin="EWR")
        said.extend(cell_stats(harness.layer, harness.deployment))
        harness.read()
        return bool(said) and said[-1].registrations == 1 and said[-1].lag_p99_ms >= 0

    assert cell_stats(harness.layer, harness.deployment) == []
    with harness.cell():
        harness.settled()
        harness.register("jfk", origin="JFK")
        harness.activated("jfk")
        harness.until(measured)
    stats = said[-1]
    assert (stats.cell, stats.shape, stats.queries, stats.registrations) == (CELL, SHAPE, 1, 1)
    assert stats.bytes > 0
    assert stats.rss_bytes > 1_000_000
    assert stats.writes > 0
    assert stats.writes_per_s > 0
    assert stats.tried == 0, "the index proposes nothing that cannot match"
    assert stats.lag_p50_ms <= stats.lag_p99_ms
    assert [(tenant.tenant, tenant.registrations) for tenant in stats.tenants] == [(harness.deployment, 1)]
    assert harness.all(Heartbeat)[-1].registrations == 1
