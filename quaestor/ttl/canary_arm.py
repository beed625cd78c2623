"""A canary in one process: its results' estimator, and what is counted of them and of the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from quaestor.event_layer.partitioning import query_hash
from quaestor.ports import LifetimeEstimator
from quaestor.ttl.canary import Canary, in_canary, result_of
from quaestor.ttl.canary_counts import Counts, Meter


class ExplainedEstimator(LifetimeEstimator, Protocol):
    """Estimator that tells the numbers behind a lifetime."""

    def reasons(
        self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str
    ) -> dict[str, float | str]:
        """The numbers behind the lifetime that these queries would get now."""
        ...


class CanaryArm:
    """Canary of one process. Use from its event loop.

    estimator: of the canary's results; learns from nothing else.
    own, rest: what was counted here since it was taken up.
    """

    def __init__(self, canary: Canary, estimator: ExplainedEstimator) -> None:
        self.canary = canary
        self.estimator = estimator
        self.own, self.rest = Counts(), Counts()
        self._meter = Meter(self._counts_of, delta_ms=canary.delta_ms)

    def has(self, query_ids: Sequence[str]) -> bool:
        """Whether the result of these queries belongs to the canary."""
        return in_canary(result_of(map(query_hash, query_ids)), self.canary.share)

    def observe_read(
        self,
        query_ids: Sequence[str],
        *,
        now_ms: int,
        ttl_ms: int | None,
        given_ms: int | None,
        write_rate_hz: float,
        kind: str,
    ) -> bool:
        """See LifetimeEstimator. Returns whether the result is the canary's."""
        hashes = [query_hash(query_id) for query_id in query_ids]
        result = result_of(hashes)
        if given_ms is not None:  # else its route has said how long, and no estimator
            self._meter.filled(result, hashes, now_ms=now_ms, given_ms=given_ms)
        if not in_canary(result, self.canary.share):
            return False
        self.estimator.observe_read(
            query_ids, now_ms=now_ms, ttl_ms=ttl_ms, given_ms=given_ms, write_rate_hz=write_rate_hz, kind=kind
        )
        return True

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self._meter.changed(query_hash(query_id), now_ms=now_ms)
        self.estimator.observe_invalidation(query_id, now_ms=now_ms)

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        self._meter.withdrawn(query_hash(query_id))
        self.estimator.observe_withdrawal(query_id, now_ms=now_ms)

    def served(self, served: Iterable[tuple[tuple[str, ...], int]], *, now_ms: int) -> None:
        """Note what was served from memory since the last call.

        served: registrations of each entry, and how often it was.
        """
        for registrations, times in served:
            try:
                result = result_of(int(registration.rpartition("#")[2], 16) for registration in registrations)
            except ValueError:  # no id of ours, from the shared store
                continue
            self._meter.served(result, times, now_ms=now_ms)

    def _counts_of(self, result: Hashable) -> Counts:
        assert isinstance(result, int)
        return self.own if in_canary(result, self.canary.share) else self.rest
