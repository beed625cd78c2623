"""Representations of lists: which are kept as ids, by what was seen of each query and the cost rule.

A list that is kept whole is seen here only when it was a miss, so its reads are counted too low; what was seen of it while it was
kept as ids is remembered for a while. Bounded: the query seen longest ago is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from quaestor.policy import Representation
from quaestor.ttl.representation import Load, choose
from quaestor.ttl.write_rates import WriteRates

MAX_QUERIES: Final = 2_048
HOLD_MS: Final = 10_000
"""How long a choice stands before it is thought over."""
EVIDENCE: Final = 3
"""Changes that must have been seen before a list is kept as ids."""
REMEMBERED_MS: Final = 600_000
_HALF_LIFE_MS: Final = 60_000


@dataclass(slots=True)
class _Seen:
    """ids: a digest of those of the newest result, in order.
    etag: of that result.

    reads_hz, reads_at_ms: when it was last kept as ids.
    """

    ids: bytes | None = None
    etag: str = ""
    length: int = 0
    changes: int = 0
    chosen: Representation = Representation.OBJECTS
    chosen_at_ms: int = 0
    reads_hz: float = 0.0
    reads_at_ms: int = 0


class Representations:
    """Representations of the lists of one router.

    Use from one event loop. name: of a query, equal for equal ones.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._rates = WriteRates(half_life_ms=_HALF_LIFE_MS, max_records=3 * MAX_QUERIES)

    def choose(self, name: str, *, now_ms: int) -> Representation:
        """Choose how a list is to be kept, at one more read of its query."""
        seen = self._of(name)
        self._rates.observe((name, "read"), now_ms=now_ms)
        if seen.changes < EVIDENCE or now_ms - seen.chosen_at_ms < HOLD_MS:
            return seen.chosen
        reads_hz = self._rate(name, "read", now_ms)
        if seen.chosen is Representation.IDS:
            seen.reads_hz, seen.reads_at_ms = reads_hz, now_ms
        elif now_ms - seen.reads_at_ms < REMEMBERED_MS:
            reads_hz = max(reads_hz, seen.reads_hz)
        load = Load(
            length=seen.length,
            reads_hz=reads_hz,
            changes_hz=self._rate(name, "change", now_ms),
            moves_hz=self._rate(name, "move", now_ms),
        )
        chosen = choose(load, seen.chosen)
        seen.chosen_at_ms = now_ms if chosen is not seen.chosen else seen.chosen_at_ms
        seen.chosen = chosen
        return chosen

    def observe(self, name: str, *, ids: bytes, length: int, etag: str, now_ms: int) -> None:
        """Take note of what the list looks like now.

        ids: a digest of the ids in order.
        etag: of the records as well.
        """
        seen = self._of(name)
        if seen.ids is not None and seen.etag != etag:
            seen.changes += 1
            self._rates.observe((name, "change" if ids == seen.ids else "move"), now_ms=now_ms)
        seen.ids, seen.etag, seen.length = ids, etag, length

    def _of(self, name: str) -> _Seen:
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = _Seen()
            if len(self._seen) > MAX_QUERIES:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(name)
        return seen

    def _rate(self, name: str, kind: str, now_ms: int) -> float:
        return self._rates.rate_hz([(name, kind)], now_ms=now_ms)
