"""Random writes on real collections, with queries maintained from the images of their change stream.

After every write each result equals the query executed again,
and so does the list of a subscriber that sees only events.
"""

from __future__ import annotations

from collections import Counter

import pymongo
import pytest

from quaestor.errors import UnsupportedQueryError
from quaestor.incremental import PriorState, RenewalSettings
from tests.oracle.maintained_generator import Document, Generator
from tests.oracle.maintained_world import World

QUERIES = 14
WRITES = 70


def run(
    client: pymongo.MongoClient[Document],
    prefix: str,
    seed: int,
    *,
    images: bool,
    burst: bool = False,
    late: bool = False,
) -> Counter[str]:
    """One random world, followed to its end.

    burst: several writes at a time, so that looked-up records are newer than their events.
    late: renewals arrive after further writes; until then a result stands still and is not looked at.
    """
    name = f"{prefix}_{seed}"
    world = World(client, name, images, Generator(seed, name))
    counts: Counter[str] = Counter()
    try:
        while len(world.actives) < QUERIES:
            query = world.generator.query()
            prior_state = world.random.choice([*PriorState]) if images else PriorState.MEMBERSHIP
            try:
                world.activate(query, prior_state, RenewalSettings(slack=world.random.randrange(3), most_slack=6))
            except UnsupportedQueryError:
                counts["unsupported"] += 1
            assert counts["unsupported"] < QUERIES, f"seed {seed}: {query}"
        for number in range(WRITES):
            for _ in range(world.random.randint(2, 6) if burst else 1):
                world.write()
            world.settle(late=late)
            for active in world.actives:
                if late and active.maintained.renewal is not None:
                    continue
                wrong = world.check(active)
                assert wrong is None, (
                    f"seed {seed}, write {number}, {active.prior_state.value}: {active.query}\n  {wrong}"
                )
        for active in world.actives:
            counts["renewals"] += active.renewals
            counts["events"] += active.events
            counts["changed"] += active.events > 0
        return counts
    finally:
        world.close()


def test_after_every_write_the_result_is_what_the_database_returns(
    client: pymongo.MongoClient[Document], prefix: str
) -> None:
    """By membership: collections without before-images, updates carry what is found when they are read."""
    counts = sum((run(client, prefix, seed, images=False) for seed in range(6)), Counter[str]())
    assert counts["changed"] > 6 * QUERIES * 0.8, f"too little happened to mean much: {counts}"
    assert counts["renewals"] > 6, f"too few renewals to mean much: {counts}"


def test_and_so_it_is_by_before_images(client: pymongo.MongoClient[Document], prefix: str) -> None:
    """Images before and after every write: some queries remember what counted, some take it from the write."""
    counts = sum((run(client, prefix, seed, images=True) for seed in range(100, 106)), Counter[str]())
    assert counts["changed"] > 6 * QUERIES * 0.8, f"too little happened to mean much: {counts}"


def test_records_that_are_newer_than_their_events_do_no_harm(
    client: pymongo.MongoClient[Document], prefix: str
) -> None:
    counts = sum((run(client, prefix, seed, images=False, burst=True) for seed in range(200, 203)), Counter[str]())
    assert counts["changed"] > 3 * QUERIES * 0.8


def test_renewals_may_arrive_after_further_writes(client: pymongo.MongoClient[Document], prefix: str) -> None:
    counts = Counter[str]()
    for seed in range(300, 304):
        counts += run(client, prefix, seed, images=seed % 2 == 0, burst=True, late=True)
    assert counts["renewals"] > 5, f"too few renewals to mean much: {counts}"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize(("burst", "late"), [(False, False), (True, False), (True, True)])
def test_in_many_more_worlds(
    client: pymongo.MongoClient[Document], prefix: str, images: bool, burst: bool, late: bool
) -> None:
    for seed in range(1_000, 1_030):
        run(client, prefix, seed, images=images, burst=burst, late=late)
