"""Staleness of answers, by the writes that were acknowledged before each was asked for."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.query_caching.mix import Request


@dataclass(slots=True)
class Inserted:
    """Record that was inserted; times by one clock, in s.

    from_s: its insertion was acknowledged.
    deleted_from_s, deleted_s: its deletion was sent, and acknowledged.
    """

    from_s: float
    deleted_from_s: float = math.inf
    deleted_s: float = math.inf


@dataclass(slots=True)
class Written:
    """All that was written so far."""

    _updates: dict[tuple[int, int], list[tuple[int, float]]] = field(default_factory=dict)
    _inserted: dict[tuple[int, int], dict[int, Inserted]] = field(default_factory=dict)
    count: int = 0

    def acknowledged(self, request: Request, answer: Mapping[str, Any], at_s: float) -> None:
        """Note an acknowledged write.

        answer: to an update, the record with its new number n.
        """
        self.count += 1
        if request.kind == "update":
            insort(self._updates.setdefault((request.collection, request.key), []), (answer["n"], at_s))
        elif request.kind == "insert":
            self._inserted.setdefault((request.collection, request.group), {})[request.key] = Inserted(at_s)
        else:
            self._of(request).deleted_s = at_s

    def sent(self, request: Request, at_s: float) -> None:
        """Note that a write is sent: what it deletes may be gone from now on."""
        if request.kind == "delete":
            self._of(request).deleted_from_s = at_s

    def stale_s(self, request: Request, shown: Any, asked_s: float, answered_s: float) -> float:
        """Time from the oldest acknowledged write that an answer does not show until it was asked for; 0: it shows all.

        shown: the record, or the records that the query found.
        """
        records: Sequence[Mapping[str, Any]] = shown if request.kind == "query" else [shown]
        oldest_s = asked_s
        for record in records:
            updates = self._updates.get((request.collection, record["_id"]), ())
            missing = bisect_left(updates, (record["n"] + 1, -math.inf))
            oldest_s = min(oldest_s, min((at_s for _, at_s in updates[missing:]), default=asked_s))
        if request.kind == "query" and (inserted := self._inserted.get((request.collection, request.group))):
            keys = {record["_id"] for record in records}
            for key, insertion in inserted.items():
                if key in keys:
                    oldest_s = min(oldest_s, insertion.deleted_s)
                elif insertion.deleted_from_s > answered_s:
                    oldest_s = min(oldest_s, insertion.from_s)
        return asked_s - oldest_s

    def _of(self, request: Request) -> Inserted:
        return self._inserted.setdefault((request.collection, request.group), {}).setdefault(
            request.key, Inserted(math.inf)
        )
