"""A full node keeps the queries that save most reads for their cost, and reports the queries that it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.model import Cancellation, Invalidated, MatchType
from quaestor.planning.plan import plan_query
from tests.unit.matching.demand import GRACE_MS, by, evicted, read, unlike
from tests.unit.matching.scene import Scene, find, types


def test_the_query_that_is_read_least_makes_room() -> None:
    scene = Scene(max_registrations=3)
    for number, reads in ((1, 50), (2, 5), (3, 70)):
        scene.register(by(number))
        read(scene, by(number), reads)
    scene.now_ms += GRACE_MS
    read(scene, by(4), 20)
    outcomes = scene.register(by(4))
    assert types(outcomes) == ["evicted", "Activated"]
    assert evicted(outcomes) == [plan_query(by(2)).query_id]
    assert scene.node.tally.evicted == 1


def test_an_entry_asked_for_once_does_not_displace_entries_that_are_read() -> None:
    scene = Scene(max_registrations=3)
    for number in range(3):
        scene.register(by(number))
        read(scene, by(number), 10)
    scene.now_ms += GRACE_MS
    for number in range(3, 200):
        assert types(scene.register(by(number))) == ["Refused"]
    assert scene.node.queries == 3


def test_an_entry_asked_for_again_and_again_gets_in() -> None:
    scene = Scene(max_registrations=2)
    for number in range(2):
        scene.register(by(number))
        read(scene, by(number), 3)
    scene.now_ms += GRACE_MS
    tried = [types(scene.register(by(9)))[-1] for _ in range(3)]
    assert tried == ["Refused"] * 2 + ["Activated"]


def test_a_new_registration_is_not_evicted() -> None:
    """No client can have read a query's answer yet that has just been registered."""
    scene = Scene(max_registrations=2)
    scene.register(by(1))
    read(scene, by(1), 1)
    scene.now_ms += GRACE_MS
    scene.register(by(2))
    read(scene, by(3), 40)
    assert evicted(scene.register(by(3))) == [plan_query(by(1)).query_id]
    assert types(scene.register(by(4))) == ["Refused"]


def test_a_query_that_had_to_go_is_turned_away_for_a_minute_unless_more_ask_for_it() -> None:
    """Two queries do not take turns."""
    scene = Scene(max_registrations=1)
    scene.register(by(1))
    scene.now_ms += GRACE_MS
    assert types(scene.register(by(2))) == ["evicted", "Activated"]
    scene.now_ms += GRACE_MS
    assert types(scene.register(by(1))) == ["Refused"]
    read(scene, by(1), 30)
    assert types(scene.register(by(1))) == ["evicted", "Activated"]


def test_a_query_that_had_to_go_may_come_back_after_a_minute() -> None:
    scene = Scene(max_registrations=1)
    scene.register(by(1))
    scene.now_ms += GRACE_MS
    scene.register(by(2))
    scene.node.cancel(Cancellation(tenant="t", query_id="", registration_ids=("app:2",)))
    assert types(scene.register(by(1))) == ["Refused"]
    scene.now_ms += 60_000
    assert types(scene.register(by(1))) == ["Activated"]


def test_demand_of_long_ago_fades() -> None:
    scene = Scene(max_registrations=2)
    scene.register(by(1), expires_in_ms=10**9)
    read(scene, by(1), 500)
    scene.now_ms += 3_600_000
    scene.register(by(2), expires_in_ms=10**9)
    read(scene, by(2), 20)
    scene.now_ms += GRACE_MS
    read(scene, by(3), 10)
    assert evicted(scene.register(by(3))) == [plan_query(by(1)).query_id]


def test_all_registrations_of_a_query_go_together_and_are_named() -> None:
    scene = Scene(max_registrations=3)
    for _ in range(2):
        scene.register(by(1))
    scene.register(by(2))
    read(scene, by(2), 50)
    scene.now_ms += GRACE_MS
    outcomes = scene.register(by(3))
    gone = outcomes[0]
    assert isinstance(gone, Invalidated)
    assert (gone.match_type, gone.registration_ids, gone.version) == (MatchType.EVICTED, ("app:1", "app:2"), 0)
    assert gone.written_at_ms == scene.now_ms
    assert types(scene.insert({"_id": 1, "customer": 1})) == []


def test_memory_is_what_bounds_large_results() -> None:
    """A result with very many members goes before small ones that are read as often."""
    scene = Scene(max_bytes=200_000)
    scene.register(by(0), tuple(range(1_000)))
    for number in range(1, 40):
        scene.register(by(number), (number,))
    for number in range(40):
        read(scene, by(number), 5)
    scene.now_ms += GRACE_MS
    gone: list[str] = []
    for number in range(40, 80):
        read(scene, by(number), 5)
        gone += evicted(scene.register(by(number), (number,)))
    assert plan_query(by(0)).query_id in gone
    assert len(gone) < 10
    assert scene.node.bytes <= 200_000


def test_a_result_larger_than_the_node_is_refused_and_costs_little() -> None:
    scene = Scene(max_bytes=100_000)
    for number in range(20):
        scene.register(by(number))
        read(scene, by(number), 5)
    scene.now_ms += GRACE_MS
    assert types(scene.register(by(99), tuple(range(100_000))))[-1] == "Refused"
    assert scene.node.queries == 20


def test_the_bytes_given_back_are_those_charged() -> None:
    scene = Scene()
    queries = [
        by(1),
        by(2),
        unlike(1),
        find({"v": {"$gt": 1}}, sort=(("v", 1),), limit=2),
        find({"$or": [{"a": 1}, {"b": {"$in": [1, 2, 3]}}]}),
        find({}, widened="because"),
    ]
    for query in queries * 2:
        scene.register(query, (1, 2), last={"v": 3, "_id": 2})
    assert scene.node.bytes > 0
    ids = tuple(f"app:{number}" for number in range(1, scene.counter + 1))
    scene.node.cancel(Cancellation(tenant="t", query_id="", registration_ids=ids))
    assert (scene.node.bytes, scene.node.registrations, scene.node.queries) == (0, 0, 0)


def test_a_query_whose_predicate_keeps_failing_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure invalidates it for nothing; its neighbours are not concerned."""
    scene = Scene()
    bad, good = find({"a": {"$mod": [3, 0]}, "b": 1}), find({"b": 1, "c": {"$exists": False}})

    def fail(item: Any, record: Any) -> bool:
        if b"$mod" in item.source:
            raise RecursionError
        return original(item, record)

    original = scene.node._predicates.holds
    monkeypatch.setattr(type(scene.node._predicates), "holds", lambda _, item, record: fail(item, record))
    seen = []
    for number in range(5):
        seen.append(types(scene.register(bad))[-1])
        scene.insert({"_id": number, "a": 1, "b": 1, "c": 1})
        assert types(scene.register(good)) == ["Activated"]
    assert seen == ["Activated"] * 3 + ["Refused"] * 2
    query_id = plan_query(bad).query_id
    assert scene.node.take_failures() == [query_id] * 3
    assert scene.node.take_failures() == []
    scene.now_ms += 600_000
    assert types(scene.register(bad)) == ["Activated"]
