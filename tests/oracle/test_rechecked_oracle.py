"""Widened results that are rechecked before they are evicted, against re-execution on mongod after every write.

A kept answer equals the database's, and few answers are evicted in vain, with or without recorded images.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final, NamedTuple

import pytest

from benchmarks.setups.judging import widened_generator as generator
from benchmarks.setups.judging.guarded import Guard, Records, answer, comparable, populated
from quaestor.capture.rereading import Rereader
from quaestor.capture.result_digests import may_be_compared
from quaestor.model import AfterImage, Invalidated, Query

WRITES: Final = 60
SLOW_WRITES: Final = 300
OF_EACH_SHAPE: Final = 2
NEEDLESS: Final = 0.05
"""The share of evictions that may be for nothing: results without a fixed order that come in another one."""
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


class _Kept(NamedTuple):
    shape: str
    query: Query
    digest: bytes | None
    shown: list[bytes]


@pytest.mark.parametrize("images", [True, False], ids=["images", "no images"])
@pytest.mark.parametrize("seed", SEEDS)
def test_kept_results_equal_the_database(mongo_url: str, prefix: str, seed: int, images: bool) -> None:
    rng = random.Random(seed)
    with populated(mongo_url, prefix, generator.contents(rng), images=images) as records:
        run = _Run(records, rng)
        run.run(WRITES if seed == 1 else SLOW_WRITES)
    assert run.kept.total() > 10, "what is kept is what this is about"
    assert run.evicted.total() > 10
    assert run.vain.total() <= NEEDLESS * run.evicted.total() + 1, (run.vain, run.evicted)


class _Run:
    """kept, evicted, vain: by shape; evicted without need."""

    def __init__(self, records: Records, rng: random.Random) -> None:
        self.kept: Counter[str] = Counter()
        self.evicted: Counter[str] = Counter()
        self.vain: Counter[str] = Counter()
        self._records = records
        self._rng = rng
        self._guard = Guard(records)
        self._reader = Rereader(records.database.client, timeout_ms=60_000)
        self._stored: dict[str, _Kept] = {}

    def run(self, writes: int) -> None:
        for shape in generator.SHAPES:
            for _ in range(OF_EACH_SHAPE):
                self._cache(shape, generator.query(shape, self._rng, self._guard.namespace))
        for _, images in self._guard.written(lambda: generator.write(self._rng, self._records), times=writes):
            self._deliver(images)

    def _cache(self, shape: str, query: Query) -> None:
        assert may_be_compared(query), shape
        result = comparable(answer(self._records, query), ordered=False)
        self._register(_Kept(shape, query, self._reader.read(query).digest, result))

    def _register(self, kept: _Kept) -> None:
        """As it was read at first, and in each further round."""
        registration_id, outcomes = self._guard.register(kept.query, answer(self._records, kept.query))
        self._stored[registration_id] = kept
        assert not any(isinstance(outcome, Invalidated) for outcome in outcomes), "nothing is written meanwhile"

    def _deliver(self, images: list[AfterImage]) -> None:
        gone = [i for outcome in self._guard.process(images) for i in outcome.registration_ids]
        for kept in [self._stored.pop(registration_id) for registration_id in gone]:
            if self._reader.read(kept.query).digest == kept.digest:
                self.kept[kept.shape] += 1
                self._register(kept)
            else:
                self.evicted[kept.shape] += 1
                self.vain[kept.shape] += self._now(kept.query) == kept.shown
                self._cache(kept.shape, kept.query)
        for kept in self._stored.values():
            assert self._now(kept.query) == kept.shown, (kept.shape, kept.query, images)

    def _now(self, query: Query) -> list[bytes]:
        return comparable(answer(self._records, query), ordered=False)
