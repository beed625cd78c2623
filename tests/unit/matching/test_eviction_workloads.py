"""A full node under whole workloads: its choice is close to the best one, and each app learns of its evicted queries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.invalidation.matching.node import Outcome
from quaestor.model import Activated, Cancellation, Refused, Usage
from quaestor.planning.plan import plan_query
from tests.unit.matching.demand import by, evicted, read, unlike
from tests.unit.matching.scene import Scene


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
def test_every_registration_is_live_or_its_app_was_notified(data: st.DataObject) -> None:
    """Under any cap and any registrations, writes, reads and cancellations,
    every registration on which an app relies is live.
    """
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
