"""Captured reads against a real mongod: no change of an answer is missed, and hardly any answer is evicted for nothing.

Reads go through the driver and the capture, views are resolved, indexes listed. Every cached answer is read again after every
write. Contributors are known, or the write comes before them. Seeds are fixed, nothing is timed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import pymongo
import pytest

from benchmarks.setups.judging import captured_shapes as shapes
from benchmarks.setups.judging.captured_world import CapturedWorld

WRITES: Final = 60
SLOW_WRITES: Final = 400
NEEDLESS: Final = {"exact": 0.01, "widened": 0.15}
"""The share of evictions that may be for nothing."""
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


@pytest.mark.parametrize("contributors", [True, False], ids=["contributors", "no contributors"])
@pytest.mark.parametrize("images", [True, False], ids=["images", "no images"])
@pytest.mark.parametrize("kind", ["exact", "widened"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_is_missed_and_hardly_any_eviction_is_needless(
    mongo_url: str, prefix: str, seed: int, kind: str, images: bool, contributors: bool
) -> None:
    named: Mapping[str, shapes.Make] = {"exact": shapes.EXACT, "widened": shapes.WIDENED}[kind]
    world = _judged(mongo_url, prefix, named, seed, images=images, contributors=contributors)
    assert not world.missed.total(), world.missed
    evicted = sum(number for (_, exact), number in world.evicted.items() if exact is (kind == "exact"))
    vain = sum(number for (_, exact), number in world.vain.items() if exact is (kind == "exact"))
    assert evicted > 30
    assert vain <= NEEDLESS[kind] * evicted + 1, world.vain


def _judged(
    url: str, name: str, named: Mapping[str, shapes.Make], seed: int, *, images: bool, contributors: bool
) -> CapturedWorld:
    rng = random.Random(seed)
    with pymongo.MongoClient[dict[str, object]](url) as client:
        try:
            items = shapes.populate(client[name], rng, images=images, indexes=seed % 2 == 1)
            with CapturedWorld(url, items, contributors=contributors, recheck="auto") as world:
                for shape, make in named.items():
                    world.cache(shape, make(rng))
                writer = shapes.Writer(items, rng)
                for write, written in world.written(writer.write, times=WRITES if seed == 1 else SLOW_WRITES):
                    world.deliver(written, write)
        finally:
            client.drop_database(name)
    return world
