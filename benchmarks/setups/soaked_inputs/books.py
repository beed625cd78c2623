"""Records in groups that no page mixes, each group with its own history and its own check: a book.

A record's contents follow from its number alone, so the numbers or the order in an answer show its states.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchmarks.setups.faults.checker import Checker, Served
from benchmarks.setups.faults.history import History
from benchmarks.setups.soaked_inputs.app import FORMS

ORGS = ("", "a", "b", "c", "d", "e", "f")
ADDRESSES = tuple(f"127.0.0.{n}" for n in range(2, 6))
POOLS = ("p0", "p1", "p2")
KINDS = ("k0", "k1", "k2")
OWN_WRITE_S = 4.0
"""How long after a write through a worker its answers are held to it; after that the staleness bound says more."""
MOMENT_S = 5.0
"""Between two records of the clock's pages."""
Fields = Callable[[int, int], "dict[str, Any] | None"]


@dataclass(slots=True)
class Answer:
    """One answer as a reader was given it. Moments are seconds since the epoch.

    known: by key, the newest write through this worker that had been answered when this was asked for.
    """

    worker: int
    address: str
    status: int
    body: Any
    hit: bool
    asked_s: float
    answered_s: float
    known: Mapping[int, int]


@dataclass(slots=True)
class Book:
    """A group of records.

    fields: what a record (its key) holds in a state (its number); None: it is deleted.
    ids: of the records in their collection, by key.
    weight: how often they are written, beside other books.
    hot: the keys to write now; None: all.
    """

    name: str
    collection: str
    ids: Sequence[Any]
    fields: Fields
    bound_s: float
    weight: float = 1.0
    hot: Callable[[], Sequence[int]] | None = None
    history: History = field(init=False)
    checker: Checker = field(init=False)
    writing: set[int] = field(default_factory=set)
    written_s: float = 0.0
    _own: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(len(self.ids), lambda key, number: 0, clock=time.time)
        self.checker = Checker(self.history, bound_s=self.bound_s)

    def documents(self) -> list[dict[str, Any]]:
        """As they are in the beginning: all exist."""
        return [{"_id": record_id, **(self.fields(key, 0) or {})} for key, record_id in enumerate(self.ids)]

    @contextmanager
    def write(self, key: int) -> Iterator[int]:
        """The number to write; acknowledged if the block ends in peace, otherwise it may have been performed or not."""
        record = self.history.records[key]
        number = record.begin()
        self.writing.add(key)
        try:
            yield number
            record.acknowledge(number, number)  # what is a version for the checker grows with the numbers
        finally:
            self.written_s = time.time()
            self.writing.discard(key)

    def quiet_since(self, moment_s: float) -> bool:
        return not self.writing and self.written_s < moment_s

    def own_write(self, worker: int, key: int, number: int) -> None:
        """Note that a worker has answered this write: later requests to this worker never get an older state."""
        self._own.setdefault(worker, {})[key] = (number, time.time())

    def known(self, worker: int, now_s: float) -> dict[int, int]:
        own = self._own.get(worker)
        if not own:
            return {}
        if any(at < now_s - OWN_WRITE_S for _, at in own.values()):
            own = self._own[worker] = {key: write for key, write in own.items() if write[1] >= now_s - OWN_WRITE_S}
        return {key: number for key, (number, _) in own.items()}

    def verdict(
        self,
        answer: Answer,
        shown: Mapping[int, int],
        *,
        key: int | None = None,
        agrees: Callable[[int, int], bool] | None = None,
        together: Callable[[Sequence[int]], bool] | None = None,
    ) -> str | None:
        """Return the fault of an answer that shows these states: stale, never, own write; None: no fault.

        key: the only shown record.
        """
        known = answer.known if key is None else {k: n for k, n in answer.known.items() if k == key}
        served = Served(
            worker=answer.worker, group=0 if key is None else None, key=key, shown=shown, asked_s=answer.asked_s,
            answered_s=answer.answered_s, hit=answer.hit, known=known, agrees=agrees, together=together,
        )  # fmt: skip
        problem = self.checker.check(served)
        return None if problem is None else {"known": "own write"}.get(problem.why, problem.why)


def notes(org: str, weight: float, bound_s: float) -> Book:
    return Book(
        name=f"notes of {org!r}", collection="notes", ids=[f"{org}:{key}" for key in range(3)], bound_s=bound_s, weight=weight,
        fields=lambda key, number: {"org": org, "key": key, "n": number},
    )  # fmt: skip


def secrets(weight: float, bound_s: float) -> Book:
    return Book(
        name="secrets", collection="secrets", ids=range(1, 5), bound_s=bound_s, weight=weight,
        fields=lambda key, number: {"n": number, "text": "secret"},
    )  # fmt: skip


def in_pool(key: int, number: int) -> bool:
    """Whether a record of a pool belongs to its results in this state; otherwise it is deleted, or no longer wanted."""
    return number % 5 < 3


def pool(name: str, weight: float, bound_s: float) -> Book:
    def fields(key: int, number: int) -> dict[str, Any] | None:
        if number % 5 == 3:
            return None
        x = (key * 3 + number) % 7 + 1 if in_pool(key, number) else -1
        return {"pool": name, "key": key, "n": number, "x": x, "tie": 1}

    ids = [f"{name}:{key}" for key in range(6)]
    return Book(name=f"pool {name}", collection="pools", ids=ids, fields=fields, bound_s=bound_s, weight=weight)


def rank(key: int, number: int) -> int:
    """No two records have the same."""
    return (key * 3 + number * 7) % 20 * 10 + key


def kind(name: str, weight: float, bound_s: float) -> Book:
    return Book(
        name=f"kind {name}", collection="ranked", ids=[f"{name}:{key}" for key in range(4)], bound_s=bound_s, weight=weight,
        fields=lambda key, number: {"kind": name, "key": key, "rank": rank(key, number)},
    )  # fmt: skip


class Moments:
    """The records of the clock's pages: one every few seconds, each with every form of its own time.

    begun_s, for_s: the time that they cover.
    """

    def __init__(self, begun_s: float, for_s: float, weight: float, bound_s: float) -> None:
        self._begun_s = begun_s
        self._count = int(for_s / MOMENT_S)
        times = [datetime.fromtimestamp(begun_s + MOMENT_S * key, UTC) for key in range(self._count)]
        self._values = [[comparable(of(time)) for time in times] for _, of in FORMS]
        self._stored = [{f"f{n}": of(time) for n, (_, of) in enumerate(FORMS)} for time in times]
        self.book = Book(
            name="moments", collection="moments", ids=range(self._count), fields=lambda key, number: {"n": number},
            bound_s=bound_s, weight=weight, hot=self._hot,
        )  # fmt: skip

    def documents(self) -> list[dict[str, Any]]:
        return [{**document, **self._stored[document["_id"]]} for document in self.book.documents()]

    def first(self, form: int, at_s: float) -> int | None:
        """The key of the first record that is not over at this moment."""
        values = self._values[form]
        value = comparable(FORMS[form][1](datetime.fromtimestamp(at_s, UTC)))
        if values[0] <= values[-1]:
            position = bisect_left(values, value)
            return position if position < len(values) else None
        return next((key for key, limit in enumerate(values) if limit >= value), None)  # the day ends meanwhile

    def shown(self, form: int, at_s: float) -> str:
        """The value itself at this moment, as a page shows it."""
        return str(FORMS[form][1](datetime.fromtimestamp(at_s, UTC)))

    def _hot(self) -> list[int]:
        """The next keys, and the keys that begin this minute and this hour."""
        now_s = time.time()
        chosen = [self.first(form, now_s) for form in (0, len(FORMS) - 15, len(FORMS) - 13)]
        soon = int((now_s - self._begun_s) / MOMENT_S) + 1
        return sorted({key for key in (*chosen, soon, soon + 1) if key is not None and key < self._count})


def comparable(value: Any) -> Any:
    """A value as the database compares it: times in whole milliseconds, of UTC."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1000 // 1)
    return value
