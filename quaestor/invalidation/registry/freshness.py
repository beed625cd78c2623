"""Freshness of the query partitions, as their cells' heartbeats prove it: a lagging partition stops only its own queries.

Only the cells of its query partition guard a registration. An answer may therefore be served while each of its query
partitions is fresh; the state of other partitions does not matter. A lagging write partition concerns a cell of every query
partition, and stops all queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quaestor.invalidation.registry.registration_ids import partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Times until which each query partition's answers may be served, as known at one moment.

    Replaced as a whole, so that a reader on another thread never sees a mixture of two moments.

    until_ms: by query partition; () while the grid is unknown.
    all_until_ms: the first of these times, 0 if there are none.
    any_until_ms: the last of these times, 0 if there are none.
    """

    until_ms: tuple[int, ...] = ()
    all_until_ms: int = 0
    any_until_ms: int = 0

    @classmethod
    def of(cls, partitions_ms: Sequence[int], *, bound_ms: int, now_ms: int) -> Freshness:
        """Return the freshness that the heartbeats received so far prove.

        A heartbeat never proves a future moment. A clock that is ahead by more than the bound proves nothing, and no clock
        prolongs its proof.

        partitions_ms: result of GridView.partitions_ms.
        bound_ms: largest staleness of an answer.
        """
        latest_ms = now_ms + bound_ms
        until_ms = tuple(
            min(fresh_ms + bound_ms, latest_ms) if 0 < fresh_ms <= latest_ms else 0 for fresh_ms in partitions_ms
        )
        return cls(until_ms=until_ms, all_until_ms=min(until_ms, default=0), any_until_ms=max(until_ms, default=0))

    def is_fresh(self, registration_ids: Iterable[str], *, now_ms: int) -> bool:
        """Whether all query partitions of these ids are fresh; an id without its partition needs every partition fresh."""
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
        """Return the query partitions that are not fresh."""
        return [partition for partition, until_ms in enumerate(self.until_ms) if now_ms > until_ms]
