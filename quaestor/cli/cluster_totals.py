"""Totals over the cells of a grid for what cells share: their pipelines and their tenants, which several cells report on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, CellStats, PipelineStats, TenantStats
from quaestor.observability.vocabularies import MOST_NAMES, OTHER

_LONGEST_NAME: Final = 64
_KINDS: Final = "wqmrnht"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Pipeline of the grid, with its size and its bounds.

    size.lag_ms: lag of its slowest reader among the cells.

    max_entries, max_bytes: the most that it may hold; 0: not reported.
    """

    size: PipelineStats
    max_entries: int
    max_bytes: int

    @property
    def share(self) -> float:
        """Used share of its bounds, 0 to 1; above 1 the pipeline is being trimmed."""
        of_entries = self.size.entries / self.max_entries if self.max_entries else 0.0
        return max(of_entries, self.size.bytes / self.max_bytes if self.max_bytes else 0.0)


def pipelines(cells: Iterable[CellStats]) -> list[Pipeline]:
    """Pipelines of the grid, each once, as the cell that looked last reports it; in the order of the data."""
    totals: dict[str, Pipeline] = {}
    for cell in sorted(cells, key=lambda cell: cell.at_ms):
        for size in cell.pipelines:
            known = totals.get(size.pipeline)
            slowest_ms = max(size.lag_ms, UNKNOWN_LAG if known is None else known.size.lag_ms)
            totals[size.pipeline] = Pipeline(
                size=replace(size, lag_ms=slowest_ms),
                max_entries=cell.pipeline_max_entries,
                max_bytes=cell.pipeline_max_bytes,
            )
    return sorted(
        totals.values(), key=lambda pipeline: (_KINDS.find(pipeline.size.pipeline[:1]), pipeline.size.pipeline.zfill(8))
    )


def tenants(cells: Iterable[CellStats]) -> list[TenantStats]:
    """Usage of the whole grid by tenant, the largest first, at most MOST_NAMES. The last row, OTHER, sums up the rest.

    A registration is held by each cell of its query partition, and counts once. Each cell reports its largest tenants only.
    """
    counted: dict[str, dict[int, int]] = {}
    totals: dict[str, TenantStats] = {}
    for cell in cells:
        for tenant in cell.tenants:
            name = tenant.tenant if len(tenant.tenant) <= _LONGEST_NAME and tenant.tenant.isprintable() else OTHER
            by_partition, partition = counted.setdefault(name, {}), cell.cell.query_partition
            by_partition[partition] = max(by_partition.get(partition, 0), tenant.registrations)
            totals[name] = _sum(name, totals.get(name), tenant, registrations=sum(by_partition.values()))
    ordered = sorted(totals.values(), key=lambda total: (total.tenant == OTHER, -total.bytes))
    if len(ordered) <= MOST_NAMES:
        return ordered
    rest: TenantStats | None = None
    for tenant in ordered[MOST_NAMES - 1 :]:
        registrations = tenant.registrations + (0 if rest is None else rest.registrations)
        rest = _sum(OTHER, rest, tenant, registrations=registrations)
    return [*ordered[: MOST_NAMES - 1], *([] if rest is None else [rest])]


def _sum(name: str, known: TenantStats | None, added: TenantStats, *, registrations: int) -> TenantStats:
    return TenantStats(
        tenant=name,
        registrations=registrations,
        bytes=added.bytes + (0 if known is None else known.bytes),
        tried_per_s=added.tried_per_s + (0.0 if known is None else known.tried_per_s),
        failed=added.failed + (0 if known is None else known.failed),
    )
