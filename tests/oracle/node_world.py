"""One collection of a real mongod, its change stream, one node; and what each invalidation was good for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pymongo

from benchmarks.setups.judging.guarded import Guard, Records, answer
from quaestor.invalidation.ingest.change_events import after_images
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import AfterImage, Document, Invalidated, MatchType, WriteKind
from quaestor.planning.plan import plan_query
from tests.oracle import node_generator
from tests.oracle.node_generator import Cached

MARKS = "marks"
_WRITE_AND_MARK = 2
_INDEX = ("a", "views")
"""A compound index: what is found by its first field comes in the order of the second."""


class ImageSource(StrEnum):
    """Source of the record that an update leaves."""

    IMAGES = "pre- and post-images"
    LOOK_UPS = "look-ups"
    LOOK_UPS_OF_SERVER = "look-ups of the server"
    BEFORE_6_0 = "look-ups of an older server"

    @property
    def records(self) -> RecordSource:
        """The records that updates of the change stream carry."""
        match self:
            case ImageSource.BEFORE_6_0:
                return RecordSource.LOOKED_UP_BEFORE_6_0
            case ImageSource.LOOK_UPS_OF_SERVER:
                return RecordSource.LOOKED_UP
        return RecordSource.IMAGES


@dataclass
class Kept:
    """A registered answer.

    raced: a write came between its read and its registration.
    contributed: its contributors were read as well.
    """

    cached: Cached
    answer: tuple[Document, ...]
    raced: bool
    contributed: bool

    def exact(self, source: ImageSource, change: MatchType) -> bool:
        """Whether only a change may end it."""
        if self.raced:
            return False
        settled = self.cached.settled and change is not MatchType.ADD
        by_images = source is ImageSource.IMAGES and (
            self.cached.exact or settled or (self.contributed and self.cached.contributed)
        )
        looked_up = source in (ImageSource.LOOK_UPS, ImageSource.LOOK_UPS_OF_SERVER)
        return by_images or (looked_up and self.contributed and self.cached.always)


class World:
    """A collection, its node and the answers that it guards.

    right: number of invalidations of answers that had changed.
    vain: invalidations of answers that were still right, by kind of query.

    Each of several writes at once may change an answer that all of them together leave unchanged.
    Such invalidations are not counted as a contributor's fault.
    """

    def __init__(self, records: Records, source: ImageSource, rng: random.Random) -> None:
        self.records = records
        self.source = source
        self.rng = rng
        self.guard = Guard(records)
        self.kept: dict[str, Kept] = {}
        self.fired: list[tuple[Kept, MatchType]] = []
        self.right = 0
        self.vain: Counter[str] = Counter()
        self._single = True
        self._written: set[Any] = set()

    def watch(self) -> Any:
        """A change stream as ingest opens it."""
        if self.source is ImageSource.BEFORE_6_0:
            return self.records.database.watch(full_document="updateLookup")
        return self.guard.watch(self.source.records)

    def register(self, *, raced: bool = False) -> None:
        cached = node_generator.cached(self.rng, self.guard.namespace)
        if plan_query(cached.query).index_order.is_open:
            cached = replace(cached, query=replace(cached.query, index_keys=(_INDEX,)))
        result = answer(self.records, cached.query)
        contributed = self.rng.random() < 0.8
        registration_id, outcomes = self.guard.register(cached.query, result, contributors=contributed)
        self.kept[registration_id] = Kept(cached, result, raced, contributed)
        for outcome in outcomes:
            if isinstance(outcome, Invalidated):
                self.forget(outcome)

    def forget(self, outcome: Invalidated) -> None:
        self.fired.extend((self.kept.pop(known), outcome.match_type) for known in outcome.registration_ids)

    def deliver(self, events: Iterator[Any]) -> None:
        images = [image for event in events for image in self._images(event)]
        self._written = {image.key for image in images}
        self._single = sum(image.kind is not WriteKind.TICK for image in images) <= _WRITE_AND_MARK
        for outcome in self.guard.process(images):
            self.forget(outcome)

    def _images(self, event: Any) -> list[AfterImage]:
        return after_images(event, records=self.source.records)

    def check(self) -> None:
        """Check that an answer without invalidation would read the same, and that each vain invalidation had a reason."""
        for kept in self.kept.values():
            assert self._same(kept), (kept.cached.query, kept.answer, answer(self.records, kept.cached.query))
        for kept, change in self.fired:
            if not self._same(kept):
                self.right += 1
                continue
            query = kept.cached.query
            self.vain[query.operation.value] += 1
            if kept.exact(self.source, change) and (self._single or kept.cached.exact) and not self._from_an_end(kept):
                raise AssertionError(f"invalidated for nothing by {change}: {query}, {kept.answer}")
        self.fired.clear()

    def _from_an_end(self, kept: Kept) -> bool:
        """Return whether a write met the first or last record that a hidden order shows.

        The distance of the records around them is not known, so such a record may have kept its place.
        """
        query, shown = kept.cached.query, kept.answer
        if not kept.cached.hides_order or not shown:
            return False
        ends = [shown[0]] * bool(query.skip) + [shown[-1]] * bool(query.limit)
        return any(end.get("_id") in self._written for end in ends)

    def _same(self, kept: Kept) -> bool:
        cached = kept.cached
        return cached.comparable(answer(self.records, cached.query)) == cached.comparable(kept.answer)


def populated(database: pymongo.database.Database[dict[str, Any]], source: ImageSource, rng: random.Random) -> Records:
    """The collection that everything is about, with the indexes that its queries need."""
    images = {"enabled": source is ImageSource.IMAGES}
    records = database.create_collection("records", changeStreamPreAndPostImages=images)
    records.insert_many([{"_id": key, **node_generator.record(rng)} for key in range(node_generator.RECORDS)])
    records.create_index([(path, 1) for path in _INDEX])
    records.create_index([("at", "2dsphere")])
    records.create_index([("title", "text"), ("words", "text")], weights={"title": 2, "words": 1})
    return records
