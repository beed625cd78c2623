"""Requests of the benchmark as the source's mix has them: 1 % writes, 49.5 % reads of records, 49.5 % queries; Zipf.

Collection, record and query of each request are drawn from Zipf distributions of their own. The requests of a connection depend
on the seed alone, so the simulator can receive the same requests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Final

COLLECTIONS: Final = 10
RECORDS: Final = 1_000
"""Of a collection at the beginning; the source has 10,000."""
QUERIES: Final = 100
"""Of a collection; each finds 10 records at the beginning."""
WRITES: Final = 0.01
SKEW: Final = 0.99
"""YCSB's exponent; the source does not name its own."""
RESOURCES: Final = COLLECTIONS * (RECORDS + QUERIES)
READS: Final = ("record", "query")
_NEW: Final = 1_000_000
"""Keys of inserted records begin here."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    kind: "record", "query", "update", "insert" or "delete".
    key: of the record; of a query its group.
    group: what its record belongs to: the query that finds it.
    """

    kind: str
    collection: int
    key: int
    group: int

    @property
    def path(self) -> str:
        """Path of its URL, with its query string."""
        if self.kind == "query":
            return f"/queries/{self.collection}/{self.group}"
        return f"/records/{self.collection}/{self.key}" + (f"?group={self.group}" if self.kind == "insert" else "")


def resource(request: Request) -> int:
    """Number of what a read asks for (0..RESOURCES - 1)."""
    if request.kind == "query":
        return COLLECTIONS * RECORDS + request.collection * QUERIES + request.group
    return request.collection * RECORDS + request.key


def changed(request: Request) -> Sequence[int]:
    """Numbers of what a write changes. Nobody reads inserted records by their keys."""
    query = COLLECTIONS * RECORDS + request.collection * QUERIES + request.group
    return (query, request.collection * RECORDS + request.key) if request.kind == "update" else (query,)


def everything() -> list[Request]:
    """A read of each resource, by number."""
    records = [Request("record", c, k, k % QUERIES) for c in range(COLLECTIONS) for k in range(RECORDS)]
    return records + [Request("query", c, g, g) for c in range(COLLECTIONS) for g in range(QUERIES)]


@cache
def _weights(count: int) -> Sequence[float]:
    """Cumulative weights of Zipf's distribution."""
    return list(accumulate(1 / (i + 1) ** SKEW for i in range(count)))


class Mix:
    """Requests of one connection, which deletes only its own inserted records, in their order."""

    def __init__(self, seed: str, connection: int) -> None:
        self._dice = random.Random(f"{seed} {connection}")
        self._inserted: list[Request] = []
        self._next_key = _NEW * (1 + self._dice.randrange(1_000_000)) + connection * 1_000

    def next(self) -> Request:
        """The next request."""
        roll = self._dice.random()
        if roll < WRITES:
            return self._write()
        collection = self._drawn(COLLECTIONS)
        if roll < WRITES + (1 - WRITES) / 2:
            key = self._drawn(RECORDS)
            return Request("record", collection, key, key % QUERIES)
        group = self._drawn(QUERIES)
        return Request("query", collection, group, group)

    def _write(self) -> Request:
        kind = self._dice.choice(("update", "insert", "delete"))
        if kind == "delete" and self._inserted:
            gone = self._inserted.pop(0)
            return Request("delete", gone.collection, gone.key, gone.group)
        collection = self._drawn(COLLECTIONS)
        if kind == "update":
            key = self._drawn(RECORDS)
            return Request("update", collection, key, key % QUERIES)
        self._next_key += 1
        new = Request("insert", collection, self._next_key, self._drawn(QUERIES))
        self._inserted.append(new)
        return new

    def _drawn(self, count: int) -> int:
        return self._dice.choices(range(count), cum_weights=_weights(count))[0]
