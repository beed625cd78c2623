"""Queries without an index: how many a node tries, which go when matching costs too much, and which stay."""

from __future__ import annotations

from quaestor.incremental import PriorState
from quaestor.planning.plan import plan_query
from tests.unit.matching.demand import GRACE_MS, by, evicted, read, unlike
from tests.unit.matching.scene import Scene, find, types


def test_the_unindexed_query_with_the_least_benefit_makes_room_for_another() -> None:
    scene = Scene(max_unindexed=2)
    scene.register(unlike(1))
    scene.register(unlike(2))
    read(scene, unlike(1), 9)
    scene.now_ms += GRACE_MS
    outcomes = scene.register(unlike(3))
    assert types(outcomes) == ["evicted", "Activated"]
    assert evicted(outcomes) == [plan_query(unlike(2)).query_id]


def test_indexed_queries_do_not_go_for_an_unindexed_one() -> None:
    scene = Scene(max_unindexed=1)
    for number in range(10):
        scene.register(by(number))
    scene.register(unlike(1))
    scene.now_ms += GRACE_MS
    assert evicted(scene.register(unlike(2))) == [plan_query(unlike(1)).query_id]
    assert scene.node.queries == 11


def test_all_queries_of_an_unindexed_predicate_go_with_it() -> None:
    scene = Scene(max_unindexed=1)
    for limit in range(5):
        scene.register(find({"a": {"$ne": 1}}, limit=limit))
    scene.now_ms += GRACE_MS
    read(scene, unlike(2), 10)
    assert types(scene.register(unlike(2))) == [*["evicted"] * 5, "Activated"]


def test_when_matching_costs_too_much_unindexed_queries_go_until_it_does_not() -> None:
    """100 predicates on 50 writes a second are 5,000 tries; 1,000 are allowed: about 20 may stay, the ones with reads."""
    scene = Scene(max_tried_per_s=1_000)
    for number in range(100):
        scene.register(unlike(number), None, expires_in_ms=10**9)
        if number < 10:
            read(scene, unlike(number), 50)
    scene.register(by(7), expires_in_ms=10**9)
    gone: list[str] = []
    for second in range(120):
        for write in range(50):
            key = second * 50 + write
            # The record matches none of them, before and after: nothing fires, but all have to be tried.
            record = {"_id": key, "a": list(range(100))}
            scene.update(record, before=record)
        scene.now_ms += 1_000
        gone += evicted(scene.node.expire(scene.now_ms))
    assert 60 <= len(gone) <= 95
    assert len(set(gone)) == len(gone)
    assert not {plan_query(unlike(number)).query_id for number in range(10)} & set(gone)
    assert plan_query(by(7)).query_id not in gone


def test_nothing_goes_while_matching_costs_little() -> None:
    scene = Scene()
    for number in range(100):
        scene.register(unlike(number), None, expires_in_ms=10**9)
    record = {"_id": 1, "a": list(range(100))}
    for _ in range(60):
        scene.update(record, before=record)
        scene.now_ms += 1_000
        assert scene.node.expire(scene.now_ms) == []


def test_subscribed_queries_neither_count_nor_go() -> None:
    """Subscribed queries have their own bounds; a predicate shared with cached results stays when those results go."""
    scene = Scene(max_unindexed=1, max_tried_per_s=3)
    node = scene.node
    node.subscriptions.announce(
        "s",
        "token",
        unlike(0),
        prior_state=PriorState.MEMBERSHIP,
        version=scene.version,
        members=[b""],
        expires_at_ms=10**15,
    )
    for number in (0, 1):
        assert types(scene.register(unlike(number), expires_in_ms=10**9))[-1] == "Activated"
        scene.now_ms += GRACE_MS
    assert node.queries == 1
    assert types(scene.register(unlike(2), expires_in_ms=10**9)) == ["evicted", "Activated"]
    record = {"_id": 1, "a": [0, 1, 2]}
    for _ in range(100):
        for _ in range(2):
            scene.update(record, before=record)
        scene.now_ms += 1_000
        node.expire(scene.now_ms)
    assert node.queries == 1, "the trials of subscribed queries are not held against it"
    node.subscriptions.take()
    scene.insert({"_id": 2, "a": 5})
    assert node.subscriptions.take() == ("s",)
