"""Until when what the cells guard may be served: for each query partition by itself, so that one that lags stops its own
queries and nobody else's.

A registration is guarded by the cells of its column alone, so it may be served while each of these is fresh; how other columns
are does not matter. A write partition that lags concerns a cell of every column, and stops everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quaestor.invalidation.registry.registration_ids import partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """What was known at one moment; replaced as a whole, so that a reader on another thread sees one moment and no mixture.

    until_ms: by query partition; () while nothing is known of the grid.
    all_until_ms, any_until_ms: the first and the last of these, 0 if there are none.
    """

    until_ms: tuple[int, ...] = ()
    all_until_ms: int = 0
    any_until_ms: int = 0

    @classmethod
    def of(cls, columns_ms: Sequence[int], *, bound_ms: int, now_ms: int) -> Freshness:
        """columns_ms: what GridView.columns_ms tells.
        bound_ms: how stale an answer may be.

        Nothing is vouched for from a moment that is still to come: a clock that is ahead by more than the bound proves nothing,
        and none prolongs what it proves.
        """
        latest_ms = now_ms + bound_ms
        until_ms = tuple(
            min(fresh_ms + bound_ms, latest_ms) if 0 < fresh_ms <= latest_ms else 0 for fresh_ms in columns_ms
        )
        return cls(until_ms=until_ms, all_until_ms=min(until_ms, default=0), any_until_ms=max(until_ms, default=0))

    def vouches(self, registration_ids: Iterable[str], *, now_ms: int) -> bool:
        """Whether every column that these need is fresh. Of an id that does not tell its column: whether all are. O(ids)."""
        if now_ms <= self.all_until_ms:
            return True
        if now_ms > self.any_until_ms:
            return False
        until_ms = self.until_ms
        for registration_id in registration_ids:
            column = partition_of(registration_id, len(until_ms))
            if column is None or now_ms > until_ms[column]:
                return False
        return True

    def lagging(self, *, now_ms: int) -> list[int]:
        """The query partitions that are not fresh."""
        return [column for column, until_ms in enumerate(self.until_ms) if now_ms > until_ms]
