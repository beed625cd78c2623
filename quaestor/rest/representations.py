"""Representations of lists: whole, as ids or maintained, chosen by observations of each query and the cost rule.

Reads are counted where they are answered: misses and assembled lists here, hits by the middleware's memory, which reports them
once a second. A list that is kept whole or as ids shows its changes when it is read again, so several in between count as one. A
maintained list shows each change. Its write rate is remembered for a while after that. Otherwise a list with more writes than
reads would be given up and taken up again and again. Bounded: the query seen longest ago is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from quaestor.policy import Representation
from quaestor.ttl.representation import COSTS_OF, Costs, Load, choose
from quaestor.ttl.write_rates import WriteRates

MAX_QUERIES: Final = 2_048
HOLD_MS: Final = 10_000
"""How long a choice stands before it is reconsidered."""
EVIDENCE: Final = 3
"""Changes that must have been seen before a list is kept other than whole."""
REMEMBERED_MS: Final = 600_000
_HALF_LIFE_MS: Final = 60_000
_MEMBER_WEIGHT: Final = 0.1


@dataclass(slots=True)
class _Seen:
    """Observations of one query.

    ids: a digest of the newest result's ids, in order.
    etag: of that result.
    length, record_bytes: number of its records, and their mean size.
    member_hits: see Load; a moving average.

    writes_hz, writes_at_ms: when it was last maintained.
    """

    ids: bytes | None = None
    etag: str = ""
    length: int = 0
    record_bytes: float = 0.0
    member_hits: float = 0.0
    changes: int = 0
    chosen: Representation = Representation.OBJECTS
    chosen_at_ms: int = 0
    writes_hz: float = 0.0
    writes_at_ms: int = -REMEMBERED_MS


class Representations:
    """Representations of the lists of one router.

    Use from one event loop. name: of a query, equal for equal queries.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._rates = WriteRates(half_life_ms=_HALF_LIFE_MS, max_records=3 * MAX_QUERIES)

    def choose(self, name: str, *, now_ms: int, maintainable: bool = False) -> Representation:
        """Choose how a list is to be kept, and count one more read of its query.

        maintainable: whether it may be maintained.
        """
        seen = self._of(name)
        self.read(name, now_ms=now_ms)
        if seen.changes < EVIDENCE or now_ms - seen.chosen_at_ms < HOLD_MS:
            return seen.chosen
        chosen = choose(self._load(name, seen, now_ms), seen.chosen, maintainable=maintainable)
        seen.chosen_at_ms = now_ms if chosen is not seen.chosen else seen.chosen_at_ms
        seen.chosen = chosen
        return chosen

    def read(self, name: str, *, now_ms: int, times: int = 1) -> None:
        """Count reads of a list."""
        self._rates.add((name, "read"), now_ms=now_ms, count=times)

    def present(self, name: str) -> Representation | None:
        """Return the representation in which a list is kept now; None: nothing is known of it."""
        seen = self._seen.get(name)
        return None if seen is None else seen.chosen

    def observe(
        self,
        name: str,
        *,
        ids: bytes,
        length: int,
        etag: str,
        now_ms: int,
        size: int = 0,
        member_hit: bool | None = None,
        changes: int = 1,
    ) -> None:
        """Note the present state of the list.

        ids: a digest of the ids in order.
        etag: of the records as well.
        size: bytes of the records together.
        member_hit: whether changed members were here again already; None: it is not kept as ids.
        changes: number of changes since the last call, as far as is known.
        """
        seen = self._of(name)
        if seen.ids is not None and seen.etag != etag:
            seen.changes += 1
            moved = ids != seen.ids
            self._rates.add((name, "move" if moved else "change"), now_ms=now_ms, count=max(1, changes))
            if member_hit is not None and not moved:
                seen.member_hits += _MEMBER_WEIGHT * (member_hit - seen.member_hits)
        seen.ids, seen.etag, seen.length = ids, etag, length
        seen.record_bytes = size / length if length else 0.0

    def changed(self, name: str, etag: str) -> bool:
        """Whether a list differs from the one last observed."""
        seen = self._seen.get(name)
        return seen is not None and seen.etag != etag

    def explained(self, name: str, *, now_ms: int) -> Mapping[str, Any]:
        """Return the reasons for the choice: the measured rates, and the cost of each representation in µs a second."""
        seen = self._of(name)
        load = self._load(name, seen, now_ms)
        costs = {
            f"{representation.value}_us": round(cost(load, Costs()), 1) for representation, cost in COSTS_OF.items()
        }
        return {
            "kept": seen.chosen.value, "length": seen.length, "record_bytes": round(seen.record_bytes),
            "reads_hz": round(load.reads_hz, 3), "changes_hz": round(load.changes_hz, 3),
            "moves_hz": round(load.moves_hz, 3), "member_hits": round(seen.member_hits, 2), **costs,
        }  # fmt: skip

    def _load(self, name: str, seen: _Seen, now_ms: int) -> Load:
        changes_hz, moves_hz = self._rate(name, "change", now_ms), self._rate(name, "move", now_ms)
        if seen.chosen is Representation.MAINTAINED:
            seen.writes_hz, seen.writes_at_ms = changes_hz + moves_hz, now_ms
        elif now_ms - seen.writes_at_ms < REMEMBERED_MS and seen.writes_hz > changes_hz + moves_hz > 0:
            more = seen.writes_hz / (changes_hz + moves_hz)
            changes_hz, moves_hz = changes_hz * more, moves_hz * more
        return Load(
            length=seen.length,
            reads_hz=self._rate(name, "read", now_ms),
            changes_hz=changes_hz,
            moves_hz=moves_hz,
            record_bytes=seen.record_bytes,
            member_hits=seen.member_hits,
        )

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
