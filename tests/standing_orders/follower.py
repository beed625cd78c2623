"""A follower applies the events of one query, and checks that no event contradicts its rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quaestor.event_layer.partitioning import write_partition
from quaestor.incremental import ResultEvent, replay
from quaestor.model import Operation, Query, Version
from quaestor.query.bson_order import order_key
from quaestor.realtime.live import LiveResult, Whole
from tests.standing_orders.database import APART, BASE, Database, State, execute

Cut = tuple[int, ...]
"""For each write partition, how many of its writes are contained."""


class Truth:
    """A query's result as of every cut: every state, or with several write partitions every combination of theirs."""

    def __init__(self, database: Database, partitions: int) -> None:
        self._own = [
            [number for number, image in enumerate(database.log) if write_partition(image.key, partitions) == each]
            for each in range(partitions)
        ]
        self.last: Cut = tuple(map(len, self._own))
        self.cuts: Mapping[Cut, State] = {
            cut: self._state(database, cut) for cut in itertools.product(*(range(size + 1) for size in self.last))
        }
        self._answers: dict[int, dict[Cut, list[Any]]] = {}

    def _state(self, database: Database, cut: Cut) -> State:
        state = dict(database.states[0])
        for number in sorted(n for own, size in zip(self._own, cut, strict=True) for n in own[:size]):
            image = database.log[number]
            if image.after is None:
                state.pop(image.key, None)
            else:
                state[image.key] = dict(image.after)
        return state

    def answers(self, query: Query) -> Mapping[Cut, list[Any]]:
        answers = self._answers.get(id(query))
        if answers is None:
            answers = {cut: comparable(query, execute(query, state)) for cut, state in self.cuts.items()}
            self._answers[id(query)] = answers
        return answers

    def least(self, version: Version) -> Cut:
        """The cut that contains every write up to a version, and no other."""
        written = (version - BASE) // APART
        return tuple(sum(number < written for number in own) for own in self._own)


def comparable(query: Query, answer: Sequence[Any]) -> list[Any]:
    """Without a sort, the order is nobody's promise."""
    return list(answer) if query.sort or query.operation is Operation.COUNT else sorted(answer, key=order_key)


@dataclass(eq=False)
class Follower:
    """A subscriber that checks its events.

    cuts: the cuts whose result may be the shown one, none older than one before.
    shown: every result there was, one after the other.
    """

    live: LiveResult
    truth: Truth
    rows: list[tuple[Any, Any]] = field(default_factory=list)
    wholes: int = 0
    events: int = 0
    cuts: set[Cut] = field(default_factory=set)
    shown: list[list[Any]] = field(default_factory=list)
    reached: Version = 0

    def take(self) -> None:
        """Everything that has arrived. Each event fits the list, and changes it: none was missed, none comes twice."""
        while self.live.waiting:
            rows = _now(self.live)
            if isinstance(rows, Whole):
                assert not self.wholes, "the whole result a second time"
                self.rows, self.wholes = list(rows.rows), 1
            elif isinstance(rows, ResultEvent):
                before, self.rows = self.rows, replay(self.rows, [rows])
                self.events += 1
                assert self.rows != before, f"received known rows again: {rows}"
        if self.wholes:
            self._check()

    def _check(self) -> None:
        """Check that the shown result is the database's as of some moment.

        The moment is no earlier than the last shown one, and no older than the version that the result claims to have
        reached.
        """
        query = self.live.query
        result = comparable(query, [document for _, document in self.rows])
        assert result == comparable(query, [document for _, document in self.live.rows()])
        assert self.live.version >= self.reached, "the version goes backwards"
        self.reached = self.live.version
        least = self.truth.least(self.reached)
        known = self.cuts
        self.cuts = {
            cut
            for cut, answer in self.truth.answers(query).items()
            if answer == result and _contains(cut, least) and (not known or any(_contains(cut, row) for row in known))
        }
        assert self.cuts, (
            f"{query.operation}: shown {result}, reached {self.reached}, before that one of {sorted(known)}"
        )
        if not self.shown or self.shown[-1] != result:
            self.shown.append(result)

    def finish(self, version: Version) -> None:
        """Everything has been said: it is the database's answer, and known to be."""
        assert self.wholes == 1
        assert self.live.version == version, f"reached {self.live.version}, written {version}"
        assert self.truth.last in self.cuts


def _contains(cut: Cut, other: Cut) -> bool:
    return all(mine >= its for mine, its in zip(cut, other, strict=True))


def _now(live: LiveResult) -> Any:
    """The next that has arrived, without an event loop's turn."""
    try:
        live.__anext__().send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("it waits although something has arrived")
