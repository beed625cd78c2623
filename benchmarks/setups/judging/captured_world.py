"""Answers made of captured reads, guarded by one node, and what each of their evictions was good for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import bson
import pymongo

from benchmarks.setups.judging.captured_shapes import Read
from benchmarks.setups.judging.guarded import Guard, Records
from quaestor.capture.catalog import Catalog
from quaestor.capture.context import recording
from quaestor.capture.listener import Capture
from quaestor.capture.rereading import Rereader
from quaestor.capture.views import is_definition
from quaestor.invalidation.registry.recheck_rule import RecheckRule
from quaestor.invalidation.registry.registration_building import Dependency, dependencies, recheckable
from quaestor.model import AfterImage, CapturedRead

QUERY_MS = 2.0
ANSWER_MS = 6.0
"""Assumed costs of a query and of its answer, with the driver, the framework and the registration."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One cached answer. exact: every query behind it is matched exactly. guards: its registrations."""

    shape: str
    read: Read
    shown: bytes
    exact: bool
    guards: tuple[str, ...]


class CapturedWorld:
    """Cached answers of one database.

    contributors: they are read before the next write; if not, the write comes first.
    evicted, vain: by (shape, exact). missed: by shape. rechecked, kept: by shape.
    """

    def __init__(self, url: str, records: Records, *, contributors: bool, recheck: str) -> None:
        capture = Capture()
        self._capture = capture
        self._client = pymongo.MongoClient[dict[str, Any]](url, event_listeners=[capture])
        self._database = self._client[records.database.name]
        self._catalog = Catalog(records.database.client, clock=lambda: 0)
        self._guard = Guard(records)
        self._reader = Rereader(records.database.client, timeout_ms=10_000)
        self._rule = RecheckRule(recheck)
        self._contributors = contributors
        self._answers: dict[str, Answer] = {}
        self._known: dict[str, Dependency] = {}
        self.evicted: Counter[tuple[str, bool]] = Counter()
        self.vain: Counter[tuple[str, bool]] = Counter()
        self.vain_by_write: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.rechecked: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self._now_ms = 0
        self._views: set[str] = set()

    def __enter__(self) -> CapturedWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def written(self, write: Callable[[], str], *, times: int) -> Iterator[tuple[str, list[AfterImage]]]:
        """See Guard."""
        return self._guard.written(write, times=times)

    def cache(self, shape: str, read: Read) -> None:
        """Run a read as a handler does and register what was captured of it."""
        with recording(capture=self._capture) as recorder:
            shown = comparable(read(self._database))
        outcome = recorder.outcome(0)
        assert not outcome.reasons, (shape, outcome.reasons)
        resolved = anyio.run(self._catalog.examine, outcome.reads)
        read_dependencies = dependencies(resolved.reads)
        if self._seen_views(outcome.reads, read_dependencies):
            return self.cache(shape, read)
        guards = tuple(self._registered(dependency) for dependency in read_dependencies)
        answer = Answer(
            shape, read, shown, all(dependency.plan.match == "exact" for dependency in read_dependencies), guards
        )
        self._answers.update(dict.fromkeys(guards, answer))
        return None

    def _seen_views(self, reads: Sequence[CapturedRead], read_dependencies: Sequence[Dependency]) -> bool:
        """Whether views among these were read for the first time: what comes next has digests."""
        collections = {
            dependency.query.namespace for dependency in read_dependencies if not is_definition(dependency.query)
        }
        new = {read.query.namespace for read in reads} - collections - self._views
        self._views |= new
        self._capture.compare(new)
        return bool(new)

    def _registered(self, dependency: Dependency) -> str:
        registration_id, _ = self._guard.register_read(dependency, contributors=self._contributors)
        self._known[registration_id] = dependency
        self._rule.registered(dependency.plan.query_id, query_ms=QUERY_MS)
        self._rule.answered(dependency.plan.query_id, cost_ms=ANSWER_MS)
        return registration_id

    def deliver(self, images: Sequence[AfterImage], write: str, *, every_ms: int = 100) -> None:
        """Judge every answer after one write."""
        self._now_ms += every_ms
        gone: dict[str, bool] = {}
        for outcome in self._guard.process(images):
            gone.update(dict.fromkeys(outcome.registration_ids, outcome.certain))
        ended: dict[int, Answer] = {}
        for registration_id, certain in gone.items():
            dependency, answer = self._known.pop(registration_id), self._answers.pop(registration_id, None)
            if answer is None or id(answer) in ended:
                continue
            if not certain and (renewed_read := self._same_again(answer, dependency)) is not None:
                again = self._registered(renewed_read)
                guards = tuple(again if guard == registration_id else guard for guard in answer.guards)
                renewed = Answer(answer.shape, answer.read, answer.shown, answer.exact, guards)
                self._answers.update(dict.fromkeys(guards, renewed))
            else:
                ended[id(answer)] = answer
                for guard in answer.guards:
                    self._answers.pop(guard, None)
        for answer in {id(answer): answer for answer in self._answers.values()}.values():
            self.missed[answer.shape] += not self._may_stand(answer)
        for answer in ended.values():
            key = answer.shape, answer.exact
            self.evicted[key] += 1
            if self._same(answer):
                self.vain[key] += 1
                self.vain_by_write[f"{answer.shape}: {write}"] += 1
            self.cache(answer.shape, answer.read)

    def _same_again(self, answer: Answer, dependency: Dependency) -> Dependency | None:
        query_id = dependency.plan.query_id
        self._rule.served(query_id, 1)
        if not recheckable(dependency) or not self._rule.wanted(query_id, now_ms=self._now_ms, waiting=0):
            return None
        read = self._reader.read(dependency.read.asked or dependency.query)
        same = read.digest is not None and read.digest == dependency.read.digest
        self._rule.rechecked(query_id, kept=same, query_ms=QUERY_MS)
        self.rechecked[answer.shape] += 1
        self.kept[answer.shape] += same
        return replace(dependency, read=replace(dependency.read, read_at=read.read_at)) if same else None

    def _same(self, answer: Answer) -> bool:
        return comparable(answer.read(self._database)) == answer.shown

    def _may_stand(self, answer: Answer) -> bool:
        """Whether an answer is one that the database may give now: which of several equal records a window shows is left open."""
        now = answer.read(self._database)
        if comparable(now) == answer.shown:
            return True
        if not ("ties" in answer.shape and "limit" in answer.shape):
            return False
        before, there = bson.decode(answer.shown)[""], {record["_id"]: record for record in now}
        kept = all(there.get(record["_id"], record) == record for record in before)
        return kept and [record["stock"] for record in before] == [record["stock"] for record in now]


def comparable(shown: Any) -> bytes:
    """The bytes of what is shown: equal for what is the same to a reader."""
    return bson.encode({"": shown})
