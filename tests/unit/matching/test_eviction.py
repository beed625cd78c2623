"""A full node keeps the queries that save most reads for what they cost, and says which it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.invalidation.matching.maintained import Memory
from quaestor.invalidation.matching.node import Outcome
from quaestor.invalidation.query.plan import plan_query
from quaestor.model import Activated, Cancellation, Invalidated, MatchType, Query, Refused, Usage
from tests.unit.matching.scene import Scene, find, types

GRACE_MS = 10_000


def by(number: int) -> Query:
    return find({"customer": number})


def unlike(number: int) -> Query:
    """No index finds it."""
    return find({"a": {"$ne": number}})


def read(scene: Scene, query: Query, times: int) -> None:
    usage = Usage(tenant="t", queries=((plan_query(query).query_id, times),))
    scene.node.used(usage, now_ms=scene.now_ms)


def evicted(outcomes: Sequence[Outcome]) -> list[str]:
    """The ids of the queries that had to go."""
    return [
        outcome.query_id
        for outcome in outcomes
        if isinstance(outcome, Invalidated) and outcome.match_type is MatchType.EVICTED
    ]


# -- who goes


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


def test_what_is_asked_for_once_does_not_displace_what_is_read() -> None:
    scene = Scene(max_registrations=3)
    for number in range(3):
        scene.register(by(number))
        read(scene, by(number), 10)
    scene.now_ms += GRACE_MS
    for number in range(3, 200):
        assert types(scene.register(by(number))) == ["Refused"]
    assert scene.node.queries == 3


def test_what_is_asked_for_again_and_again_gets_in() -> None:
    scene = Scene(max_registrations=2)
    for number in range(2):
        scene.register(by(number))
        read(scene, by(number), 3)
    scene.now_ms += GRACE_MS
    tried = [types(scene.register(by(9)))[-1] for _ in range(3)]
    assert tried == ["Refused"] * 2 + ["Activated"]


def test_what_has_just_come_is_left_alone() -> None:
    """Nobody has been able to read it yet."""
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


def test_what_is_given_back_is_what_was_charged() -> None:
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


# -- queries without an index


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


def test_when_matching_costs_more_than_allowed_unindexed_queries_go_until_it_does_not() -> None:
    """100 predicates on 50 writes a second are 5,000 tries; 1,000 are allowed: about 20 may stay, those that are read."""
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
            # It matches none of them, before and after: nothing fires, but all have to be tried.
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


# -- queries that fail


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


# -- together


def zipf(dice: Random, queries: int, steps: int) -> list[int]:
    weights = list(accumulate(1 / (rank + 1) for rank in range(queries)))
    return dice.choices(range(queries), cum_weights=weights, k=steps)


def hit_share(scene: Scene, requests: Sequence[int], *, report: bool) -> float:
    """Of the later half of the requests, the share that a cache answers which holds what the node guards."""
    plans: dict[int, str] = {}
    cached: set[str] = set()
    counts: dict[str, int] = {}
    hits = 0
    for step, number in enumerate(requests):
        query = by(number)
        query_id = plans.setdefault(number, plan_query(query).query_id)
        if query_id in cached:
            hits += step >= len(requests) // 2
            counts[query_id] = counts.get(query_id, 0) + 1
        else:
            outcomes = scene.register(query, expires_in_ms=10**9)
            cached -= set(evicted(outcomes))
            if isinstance(outcomes[-1], Activated):
                cached.add(query_id)
        scene.now_ms += 10
        if report and step % 300 == 0:
            scene.node.used(Usage(tenant="t", queries=tuple(counts.items())), now_ms=scene.now_ms)
            counts.clear()
    return hits / (len(requests) - len(requests) // 2)


def random_share(requests: Sequence[int], capacity: int, dice: Random) -> float:
    """The same with a victim at random."""
    cached: list[int] = []
    held: set[int] = set()
    hits = 0
    for step, number in enumerate(requests):
        if number in held:
            hits += step >= len(requests) // 2
            continue
        if len(cached) < capacity:
            cached.append(number)
        else:
            place = dice.randrange(capacity)
            held.remove(cached[place])
            cached[place] = number
        held.add(number)
    return hits / (len(requests) - len(requests) // 2)


def test_under_a_zipf_workload_a_capped_node_keeps_what_is_read() -> None:
    """2,000 queries, room for 100: close to the best that any choice could do, far from a random one."""
    dice = Random(3)
    requests = zipf(dice, 2_000, 20_000)
    best = sum(number < 100 for number in requests) / len(requests)
    ours = hit_share(Scene(max_registrations=100), requests, report=True)
    chance = random_share(requests, 100, dice)
    assert ours > chance + 0.1
    assert ours > 0.9 * best


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_registration_is_live_or_its_app_was_told(data: st.DataObject) -> None:
    """Whatever is registered, written, read and cancelled, under any cap: what the app may believe to be guarded is guarded."""
    scene = Scene(max_registrations=6, max_unindexed=2, max_bytes=8_000, max_tried_per_s=1, grace_ms=0)
    believed: set[str] = set()
    numbers = st.integers(0, 8)

    def hear(outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Activated):
                believed.add(outcome.registration_id)
            elif isinstance(outcome, Refused):
                assert outcome.registration_id not in believed
            else:
                believed.difference_update(outcome.registration_ids)

    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["register", "register", "register", "write", "read", "cancel", "second"])):
            case "register":
                query = data.draw(st.sampled_from([by, unlike]))(data.draw(numbers))
                members = tuple(range(data.draw(st.sampled_from([0, 1, 30]))))
                hear(scene.register(query, members, expires_in_ms=10**9))
            case "write":
                hear(scene.insert({"_id": 100 + scene.version, "customer": data.draw(numbers), "a": 1}))
            case "read":
                read(scene, by(data.draw(numbers)), data.draw(st.integers(-1, 10**12)))
            case "cancel":
                ids = tuple(sorted(believed)[:1])
                scene.node.cancel(Cancellation(tenant="t", query_id="", registration_ids=ids))
                believed.difference_update(ids)
            case "second":
                scene.now_ms += 1_000
                hear(scene.node.expire(scene.now_ms))
        assert scene.node.registrations == len(believed)
        assert scene.node.registrations <= 6
        assert scene.node.bytes <= 8_000 or scene.node.registrations == 0
    for registration_id in sorted(believed):
        assert registration_id in scene.node._live


# -- beside standing queries


def test_standing_queries_neither_count_nor_go() -> None:
    """They have bounds of their own; a predicate that both use stays when the cached results that use it go."""
    scene = Scene(max_unindexed=1, max_tried_per_s=3)
    node = scene.node
    node.standing.announce(
        "s",
        "token",
        unlike(0),
        memory=Memory.MEMBERSHIP,
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
    assert node.queries == 1, "the trials of standing queries are not held against it"
    node.standing.take()
    scene.insert({"_id": 2, "a": 5})
    assert node.standing.take() == ("s",)
