"""Random feeds, restarts and subscriptions: what is delivered is what the definitions ask for, and nothing twice.

The oracle keeps its own lists: it knows of each run only when it was, and who was subscribed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.channels.world import World

AREAS = "ABC"
BODIES = {
    "new": "SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area_code = area",
    "either": "SELECT t.tid, t.text, s.sid FROM Tweets t, Schools s WHERE (is_new(t) OR is_new(s)) AND t.area_code = area "
    "AND s.area_code = area",
    "both": "SELECT t.tid, t.text, s.sid FROM Tweets t, Schools s WHERE is_new(t) AND is_new(s) AND t.area_code = area AND "
    "s.area_code = t.area_code",
}


class Oracle:
    """Records with the number of the step of their last change; deliveries by the plain meaning of each body."""

    def __init__(self) -> None:
        self.tweets: dict[int, tuple[int, str, str]] = {}
        self.schools: dict[int, tuple[int, str]] = {}
        self.subscribed: dict[str, str] = {}
        self.last_run: dict[str, int] = {}
        self.expected: dict[str, list[tuple[Any, ...]]] = {name: [] for name in (*BODIES, "individual", "distinct")}

    def run(self, name: str, step: int) -> None:
        body = {"individual": "new", "distinct": "either"}.get(name, name)
        since, self.last_run[name] = self.last_run.get(name, -1), step
        for subscription, area in self.subscribed.items():
            tweets = [(tid, when, text) for tid, (when, own, text) in self.tweets.items() if own == area]
            schools = [(sid, when) for sid, (when, own) in self.schools.items() if own == area]
            if body == "new":
                found = [(tid, text) for tid, when, text in tweets if when > since]
            else:
                fulfilled = any if body == "either" else all
                found = [
                    (tid, text, sid)
                    for tid, when, text in tweets
                    for sid, other in schools
                    if fulfilled((when > since, other > since))
                ]
            rows = [(subscription, *values) for values in found]
            known = set(self.expected[name]) if name == "distinct" else set()
            self.expected[name] += [row for row in rows if row not in known]


def play(world: World, seed: int, steps: int, partitions: int) -> Oracle:
    random, oracle = Random(seed), Oracle()
    world.police(partitions)
    for name, body in BODIES.items():
        world.create(body, "area", name=name, start="beginning")
    world.create(BODIES["new"], "area", name="individual", start="beginning", grouped=False)
    world.create(BODIES["either"], "area", name="distinct", start="beginning", distinct=True)
    ids: dict[str, dict[str, str]] = {}
    for step in range(steps):
        world.now = max(0, world.now + random.choice([-2, 0, 0.001, 1, 3]))
        match random.choice(
            ["tweets", "tweets", "delete", "school", "subscribe", "leave", "run", "run", "run", "restart"]
        ):
            case "tweets":
                batch = {random.randrange(12): random.choice(AREAS) for _ in range(random.randrange(1, 4))}
                world.dataset("Tweets").upsert(
                    {"tid": tid, "area_code": area, "text": str(step)} for tid, area in batch.items()
                )
                oracle.tweets |= {tid: (step, area, str(step)) for tid, area in batch.items()}
            case "delete":
                tid = random.randrange(12)
                world.dataset("Tweets").delete([{"tid": tid}])
                oracle.tweets.pop(tid, None)
            case "school":
                sid, area = random.randrange(4), random.choice(AREAS)
                world.dataset("Schools").upsert([{"sid": sid, "area_code": area}])
                oracle.schools[sid] = (step, area)
            case "subscribe":
                area, broker = random.choice(AREAS), random.choice("xy")
                own = {name: world.subscribe(area, broker=broker, name=name) for name in oracle.expected}
                key = f"s{step}"
                ids[key] = own
                oracle.subscribed[key] = area
            case "leave" if oracle.subscribed:
                key = random.choice(sorted(oracle.subscribed))
                del oracle.subscribed[key]
                for name, subscription in ids[key].items():
                    world.subscriptions(name).remove(subscription)
            case "run":
                for name in random.sample(sorted(oracle.expected), 3):
                    world.run(name)
                    oracle.run(name, step)
            case "restart":
                world.restart()
    for name in oracle.expected:
        world.run(name)
        oracle.run(name, steps)
    names = {subscription: key for key, own in ids.items() for subscription in own.values()}
    for name, expected in oracle.expected.items():
        delivered = [(names[member], *record.values()) for member, record in world.delivered(name)]
        assert Counter(delivered) == Counter(expected), f"seed {seed}, channel {name}"
    return oracle


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partitions", [1, 3])
def test_delivered_is_expected_and_none_twice(tmp_path: Path, seed: int, partitions: int) -> None:
    """Records are new in exactly one run of each channel, grouped and individual results are equal, and restarts lose nothing."""
    oracle = play(World(tmp_path), seed, steps=25, partitions=partitions)
    assert any(oracle.expected.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_delivered_is_expected_in_many_histories(tmp_path: Path, seed: int) -> None:
    play(World(tmp_path), seed, steps=80, partitions=1 + seed % 3)
