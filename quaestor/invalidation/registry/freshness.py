"""Freshness of the query partitions, as their cells' heartbeats prove it: each by itself, so that one that lags stops its own
queries and nobody else's.

A registration is guarded by the cells of its query partition alone, so it may be served while each of these is fresh; how other
partitions are does not matter. A write partition that lags concerns a cell of every query partition, and stops everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quaestor.invalidation.registry.registration_ids import partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The moments until which what each query partition guards may be served, as known at one moment.

    Replaced as a whole, so that a reader on another thread sees one moment and no mixture.

    until_ms: by query partition; () while nothing is known of the grid.
    all_until_ms: the first of these, 0 if there are none.
    any_until_ms: the last of these, 0 if there are none.
    """

    until_ms: tuple[int, ...] = ()
    all_until_ms: int = 0
    any_until_ms: int = 0

    @classmethod
    def of(cls, partitions_ms: Sequence[int], *, bound_ms: int, now_ms: int) -> Freshness:
        """Freshness that the heartbeats heard so far prove.

        Nothing is proved of a moment that is still to come: a clock that is ahead by more than the bound proves nothing, and none
        prolongs what it proves.

        partitions_ms: what GridView.partitions_ms tells.
        bound_ms: how stale an answer may be.
        """
        latest_ms = now_ms + bound_ms
        until_ms = tuple(
            min(fresh_ms + bound_ms, latest_ms) if 0 < fresh_ms <= latest_ms else 0 for fresh_ms in partitions_ms
        )
        return cls(until_ms=until_ms, all_until_ms=min(until_ms, default=0), any_until_ms=max(until_ms, default=0))

    def is_fresh(self, registration_ids: Iterable[str], *, now_ms: int) -> bool:
        """Whether every query partition that these need is fresh; of an id that does not tell its own, whether all are."""
        if now_ms <= self.all_until_ms:
            return True
        if now_ms > self.any_until_ms:
            return False
        until_ms = self.until_ms
        for registration_id in registration_ids:
            partition = partition_of(registration_id, len(until_ms))
            if partition is None or now_ms > until_ms[partition]:
                return False
        return True

    def lagging(self, *, now_ms: int) -> list[int]:
        """The query partitions that are not fresh."""
        return [partition for partition, until_ms in enumerate(self.until_ms) if now_ms > until_ms]
