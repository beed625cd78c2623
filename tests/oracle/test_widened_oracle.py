"""Widened shapes against a real mongod: no change of an answer is missed, and few answers are invalidated for nothing.

After every write every guarded query is run again: what reads otherwise must have been invalidated. Of what was invalidated
and reads the same, each shape has its bound; seeds are fixed, nothing is timed.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest

from benchmarks.setups.judging import widened_generator as generator
from benchmarks.setups.judging.guarded import Guard, Records, answer, comparable, populated
from quaestor.model import AfterImage, Invalidated, Query
from quaestor.planning.plan import plan_query

WRITES: Final = 150
SLOW_WRITES: Final = 600
OF_EACH_SHAPE: Final = 3
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))

_WITH_IMAGES: Final = {
    "$unwind": 0.35,
    "$setWindowFields": 0.3,
    "$lookup, unwound and grouped": 0.5,
    "$lookup of a field": 0.8,
    "$graphLookup": 0.85,
    "view that computes": 0.6,
    "view that unwinds": 0.6,
    "collation": 0.4,
    "positional projection": 0.6,
}
"""The share of a shape's invalidations that may be for nothing; 0.2 where it is not said. Which records a join reaches is not
known, nor what a view computes."""
_OF_OTHERS: Final = dict.fromkeys(
    (name for name in generator.SHAPES if "$lookup" in name or "$unionWith" in name), 0.95
)
_WITHOUT_IMAGES: Final = _WITH_IMAGES | _OF_OTHERS | {"$graphLookup": 0.95}
"""The same. Of another collection's record it is not known whether it counted before the write."""


@pytest.mark.parametrize("images", [True, False], ids=["images", "no images"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_is_missed_and_few_are_needless(mongo_url: str, prefix: str, seed: int, images: bool) -> None:
    rng = random.Random(seed)
    with populated(mongo_url, prefix, generator.contents(rng), images=images) as records:
        run = _Run(records, rng)
        run.run(WRITES if seed == 1 else SLOW_WRITES)
    assert run.fired.total() > 50
    bounds = _WITH_IMAGES if images else _WITHOUT_IMAGES
    for shape, fired in run.fired.items():
        assert run.vain[shape] <= bounds.get(shape, 0.2) * fired + 1, (shape, run.vain[shape], fired)


class _Run:
    """fired, vain: by shape."""

    def __init__(self, records: Records, rng: random.Random) -> None:
        self.fired: Counter[str] = Counter()
        self.vain: Counter[str] = Counter()
        self._records = records
        self._rng = rng
        self._guard = Guard(records)
        self._kept: dict[str, tuple[str, Query, list[bytes]]] = {}

    def run(self, writes: int) -> None:
        for shape in generator.SHAPES:
            for _ in range(OF_EACH_SHAPE):
                self._register(shape)
        for _, images in self._guard.written(lambda: generator.write(self._rng, self._records), times=writes):
            self._deliver(images)

    def _register(self, shape: str) -> None:
        query = generator.query(shape, self._rng, self._guard.namespace)
        assert plan_query(query).match == "widened", shape
        result = answer(self._records, query)
        registration_id, outcomes = self._guard.register(query, result)
        self._kept[registration_id] = (shape, query, comparable(result, ordered=False))
        assert not any(isinstance(outcome, Invalidated) for outcome in outcomes), "nothing is written meanwhile"

    def _deliver(self, images: list[AfterImage]) -> None:
        gone = [i for outcome in self._guard.process(images) for i in outcome.registration_ids]
        fired = [self._kept.pop(registration_id) for registration_id in gone]
        for shape, query, before in self._kept.values():
            assert self._now(query) == before, (shape, query, images)
        for shape, query, before in fired:
            self.fired[shape] += 1
            self.vain[shape] += self._now(query) == before
            self._register(shape)

    def _now(self, query: Query) -> list[bytes]:
        return comparable(answer(self._records, query), ordered=False)
