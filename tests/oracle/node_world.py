"""One collection of a real mongod, its change stream, one node; and what each invalidation was good for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pymongo

from quaestor.invalidation.change_events import STAGES, after_images
from quaestor.invalidation.current_records import needs_record, with_current_records
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.query.plan import Result
from quaestor.invalidation.registering import dependencies, registration
from quaestor.model import AfterImage, CapturedRead, Cell, GridShape, Invalidated, WriteKind
from tests.oracle import node_generator
from tests.oracle.node_generator import Cached, Records

NOW_MS = 1_000
FOREVER_MS = 10**9
MARKS = "marks"


class Told(StrEnum):
    """How much the change stream tells of an update."""

    IMAGES = "pre- and post-images"
    LOOK_UPS = "look-ups"
    BEFORE_6_0 = "look-ups of an older server"


@dataclass
class Kept:
    """A registered answer. raced: a write came between its read and its registration."""

    cached: Cached
    answer: tuple[dict[str, Any], ...]
    raced: bool


class World:
    """vain: invalidations of answers that were still right, by kind of query; served: those that were not."""

    def __init__(self, records: Records, told: Told, rng: random.Random) -> None:
        self.records = records
        self.told = told
        self.rng = rng
        self.namespace = f"{records.database.name}.{records.name}"
        self.node = MatchingNode(
            Cell(query_partition=0, write_partition=0),
            GridShape(query_partitions=1, write_partitions=1),
            retention_ms=60_000,
        )
        self.kept: dict[str, Kept] = {}
        self.fired: list[Kept] = []
        self.counter = 0
        self.right = 0
        self.vain: Counter[str] = Counter()
        self.node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=self.now()), now_ms=NOW_MS)

    def now(self) -> int:
        """The database's current version."""
        reply = self.records.database.command("ping")
        return int(reply["operationTime"].time) << 32 | int(reply["operationTime"].inc)

    def watch(self) -> Any:
        """A change stream as ingest opens it."""
        if self.told is Told.BEFORE_6_0:
            return self.records.database.watch(full_document="updateLookup")
        return self.records.database.watch(
            list(STAGES), full_document="whenAvailable", full_document_before_change="whenAvailable"
        )

    def register(self, *, raced: bool = False) -> None:
        cached = node_generator.cached(self.rng, self.namespace)
        answer = cached.answer(self.records)
        shows = all("_id" in document for document in answer)
        read = CapturedRead(
            query=cached.query,
            read_at=self.now(),
            ids=tuple(document["_id"] for document in answer) if shows else None,
            last=answer[-1] if answer else None,
        )
        dependency = dependencies([read])[0]
        if dependency.plan.result is not Result.RECORDS:
            dependency = dependencies([CapturedRead(query=read.query, read_at=read.read_at, ids=None)])[0]
        self.counter += 1
        registered = registration(
            dependency,
            registration_id=f"app:{self.counter}",
            tenant="t",
            since=self.node.watermark,
            expires_at_ms=FOREVER_MS,
        )
        self.kept[registered.id] = Kept(cached, answer, raced)
        for outcome in self.node.register(registered, now_ms=NOW_MS):
            if isinstance(outcome, Invalidated):
                self.forget(outcome)

    def forget(self, outcome: Invalidated) -> None:
        self.fired.extend(self.kept.pop(registration_id) for registration_id in outcome.registration_ids)

    def deliver(self, events: Iterator[Any]) -> None:
        images = [image for event in events for image in self._images(event)]
        if any(map(needs_record, images)):
            images = with_current_records(self.records.database.client, images)
        for image in images:
            for outcome in self.node.process(image, now_ms=NOW_MS):
                self.forget(outcome)

    def _images(self, event: Any) -> list[AfterImage]:
        return after_images(event, post_images=self.told is not Told.BEFORE_6_0)

    def check(self) -> None:
        """Whoever was not told would read the same; who was told for nothing had a reason to be."""
        for kept in self.kept.values():
            assert self._same(kept), kept.cached.query
        for kept in self.fired:
            if not self._same(kept):
                self.right += 1
                continue
            query = kept.cached.query
            self.vain[query.operation.value] += 1
            if self.told is Told.IMAGES and kept.cached.exact and not kept.raced:
                raise AssertionError(f"invalidated for nothing: {query}, {kept.answer}")
        self.fired.clear()

    def _same(self, kept: Kept) -> bool:
        cached = kept.cached
        return cached.comparable(cached.answer(self.records)) == cached.comparable(kept.answer)


def populated(database: pymongo.database.Database[dict[str, Any]], told: Told, rng: random.Random) -> Records:
    """The collection that everything is about, with the indexes that its queries need."""
    images = {"enabled": told is Told.IMAGES}
    records = database.create_collection("records", changeStreamPreAndPostImages=images)
    records.insert_many([{"_id": key, **node_generator.record(rng)} for key in range(node_generator.RECORDS)])
    records.create_index([("at", "2dsphere")])
    records.create_index([("title", "text"), ("words", "text")], weights={"title": 2, "words": 1})
    return records
