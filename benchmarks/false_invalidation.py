"""How many invalidations were for nothing: of what a write evicted, the share whose query gives the same answer again.

A real mongod with one writer and its change stream, one matching node; after every write, what the node invalidates is executed
again and compared with the cached answer (then it is cached anew), and what it does not invalidate is executed again too: a
changed answer among those would be a missed change. A shop's reads and writes (benchmarks/workloads/mixed.py), with and without
pre- and post-images.

Run: python -m benchmarks.false_invalidation [WRITES]
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pymongo

from benchmarks import harness
from benchmarks.workloads import mixed
from benchmarks.workloads.mixed import KINDS, Kind
from quaestor.demo import servers
from quaestor.invalidation.ingest.change_events import after_images
from quaestor.model import Document, Invalidated, Query
from tests.oracle.guarded import Guard, Records, answer, comparable

WRITES = 300
OF_EACH_KIND = 4
SEED = 20_270_101
DATABASE = "false_invalidation"


@dataclass(frozen=True, slots=True)
class Kept:
    """One cached answer."""

    kind: Kind
    query: Query
    answer: tuple[Document, ...]


class Run:
    """evicted, vain: by (kind, exact). missed: kinds of queries whose answer changed without a word."""

    def __init__(self, records: Records, *, images: bool, seed: int) -> None:
        self._records = records
        self._images = images
        self._rng = random.Random(seed)
        self._guard = Guard(records)
        self._kept: dict[str, Kept] = {}
        self.evicted: Counter[tuple[str, bool]] = Counter()
        self.vain: Counter[tuple[str, bool]] = Counter()
        self.vain_by_write: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()

    def run(self, writes: int) -> None:
        for kind in KINDS:
            for _ in range(OF_EACH_KIND):
                self._cache(kind, mixed.query(kind, self._rng, self._guard.namespace))
        writer = mixed.Writer(self._records, self._rng)
        with self._guard.watch() as stream:
            for _ in range(writes):
                name = writer.write()
                self._deliver(next(stream), name)

    def _cache(self, kind: Kind, query: Query) -> None:
        told = answer(self._records, query)
        registration_id, outcomes = self._guard.register(query, told)
        self._kept[registration_id] = Kept(kind, query, told)
        for outcome in outcomes:
            assert not isinstance(outcome, Invalidated), "nothing is written while a query is read"

    def _deliver(self, event: Any, write: str) -> None:
        gone: list[tuple[Kept, bool]] = []
        for told in self._guard.process(after_images(event, post_images=True)):
            gone += [(self._kept.pop(i), told.exact) for i in told.registration_ids]
        for kept in self._kept.values():
            if not self._same(kept):
                self.missed[kept.kind.name] += 1
        for kept, exact in gone:
            self.evicted[kept.kind.name, exact] += 1
            if self._same(kept):
                self.vain[kept.kind.name, exact] += 1
                self.vain_by_write[f"{kept.kind.name}: {write}"] += 1
            self._cache(kept.kind, kept.query)

    def _same(self, kept: Kept) -> bool:
        now = answer(self._records, kept.query)
        return comparable(now, ordered=kept.kind.ordered) == comparable(kept.answer, ordered=kept.kind.ordered)

    def result(self) -> dict[str, Any]:
        return {
            "missed": self.missed.total(),
            "missed_by_kind": dict(self.missed),
            "exact": _share(self.evicted, self.vain, exact=True),
            "widened": _share(self.evicted, self.vain, exact=False),
            "vain_by_write": dict(self.vain_by_write.most_common()),
        }


def _share(evicted: Counter[tuple[str, bool]], vain: Counter[tuple[str, bool]], *, exact: bool) -> dict[str, Any]:
    names = [name for name, judged in evicted if judged is exact]
    total = sum(evicted[name, exact] for name in names)
    wasted = sum(vain[name, exact] for name in names)
    return {
        "evictions": total,
        "in_vain": wasted,
        "share": round(wasted / total, 4) if total else 0.0,
        "by_kind": {name: [vain[name, exact], evicted[name, exact]] for name in sorted(names)},
    }


def measured(client: pymongo.MongoClient[dict[str, Any]], *, images: bool, writes: int, seed: int = SEED) -> Run:
    """One run on a collection of its own, which is dropped afterwards."""
    client.drop_database(DATABASE)
    database = client[DATABASE]
    records = database.create_collection("items", changeStreamPreAndPostImages={"enabled": images})
    rng = random.Random(seed)
    records.insert_many([{"_id": key, **mixed.record(rng)} for key in range(mixed.RECORDS)])
    records.create_index([("at", "2dsphere")])
    records.create_index([("title", "text")])
    run = Run(records, images=images, seed=seed)
    try:
        run.run(writes)
    finally:
        client.drop_database(DATABASE)
    return run


def main() -> None:
    writes = int(sys.argv[1]) if len(sys.argv) > 1 else WRITES
    with servers.mongo_url() as url, pymongo.MongoClient[dict[str, Any]](url) as client:
        results = {
            name: measured(client, images=images, writes=writes).result()
            for name, images in (("with_images", True), ("without_images", False))
        }
    harness.save(
        "false_invalidation",
        {
            "what": f"{writes} writes each, {len(KINDS) * OF_EACH_KIND} cached queries of {len(KINDS)} kinds over "
            f"{mixed.RECORDS} records; by_kind: [in vain, evictions]",
            "seed": SEED,
            **results,
            "aim": "missed = 0; share = 0 for exact queries",
        },
    )


if __name__ == "__main__":
    main()
