"""Bounds of a pipeline's size, beside its age. A pipeline that is too large loses its oldest entries, read or not.

Readers that miss entries detect it (`streams.missed`) and take everything for changed. The check shall cost nothing while
readers keep up. Entries younger than YOUNGEST_TRIMMED_MS are therefore never trimmed by size, and a reader checks only when
its position is older than half of that. The query pipeline holds the registrations and has further rules: see
invalidation/grid/query_retention.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.event_layer import offsets
from quaestor.ports import EventLayer, MeasuredPipelines, PipelineSize
from quaestor.settings import Settings

YOUNGEST_TRIMMED_MS: Final = 2_000
FURTHER: Final = 0.8
"""Part of the bound that trimming leaves, so that the next entry does not start it anew."""


def doubtful_after_ms(retention_ms: int) -> int:
    """Return the age of a position, in ms, from which its reader must check for missed entries."""
    return min(retention_ms, YOUNGEST_TRIMMED_MS) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineBounds:
    """Largest size of one pipeline.

    entries, bytes: approximate bounds; a burst within YOUNGEST_TRIMMED_MS may exceed them."""

    entries: int = 2_000_000
    bytes: int = 512 * 1024 * 1024

    @classmethod
    def of(cls, settings: Settings) -> PipelineBounds:
        return cls(entries=settings.grid.pipeline_max_entries, bytes=settings.grid.pipeline_max_bytes)

    def __post_init__(self) -> None:
        if self.entries <= 0 or self.bytes <= 0:
            raise ConfigurationError(f"the bounds of pipelines must be positive, not {self.entries} and {self.bytes}")

    def excess(self, size: PipelineSize) -> float:
        """Return the pipeline's size as a multiple of its bound; above 1 it is too large."""
        return max(size.entries / self.entries, size.bytes / self.bytes)

    def enforce(self, layer: EventLayer, sizes: Mapping[str, PipelineSize]) -> None:
        """Trim the pipelines among these that are too large.

        sizes: result of `measured`, just taken. Raises EventLayerError.

        Trims by time, as if entries had come evenly; the next call trims the rest. The time is the layer's own, so the age
        of an entry does not depend on a wrong clock elsewhere.
        """
        for stream, size in sizes.items():
            excess = self.excess(size)
            first = layer.first_offset(stream) if excess > 1 else None
            if first is not None:
                age_ms = size.at_ms - offsets.appended_at_ms(first)
                kept_ms = max(YOUNGEST_TRIMMED_MS, int(age_ms * FURTHER / excess))
                layer.trim(stream, before_ms=size.at_ms - kept_ms)


def measured(layer: EventLayer, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
    """Trim each of these pipelines by time, unless None; return their sizes, or nothing if the layer cannot measure.

    One round trip to each server that has some of them. Raises EventLayerError; some may have been trimmed then.
    """
    if isinstance(layer, MeasuredPipelines):
        return layer.trim_and_measure(before_ms)
    for stream, before in before_ms.items():
        if before is not None:
            layer.trim(stream, before_ms=before)
    return {}
