"""How large a pipeline may become, beside how old. What is too large loses its oldest entries, read or not.

Readers that miss some find out (`streams.missed`) and take everything for changed; so that looking for it costs nothing
while they keep up, what is younger than YOUNGEST_TRIMMED_MS is never trimmed by size, and a reader asks when its place is older
than half of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.invalidation.event_layer import offsets
from quaestor.ports import EventLayer, MeasuredPipelines, PipelineSize
from quaestor.settings import Settings

YOUNGEST_TRIMMED_MS: Final = 2_000
_FURTHER: Final = 0.8
"""Trimmed to this part of the bound, so that it does not begin anew with the next entry."""


def doubtful_after_ms(retention_ms: int) -> int:
    """A reader whose place is older than this must ask whether it has missed anything."""
    return min(retention_ms, YOUNGEST_TRIMMED_MS) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineBounds:
    """entries, bytes: of one pipeline, roughly; a burst within YOUNGEST_TRIMMED_MS may exceed them."""

    entries: int = 2_000_000
    bytes: int = 512 * 1024 * 1024

    @classmethod
    def of(cls, settings: Settings) -> PipelineBounds:
        return cls(entries=settings.pipeline_max_entries, bytes=settings.pipeline_max_bytes)

    def __post_init__(self) -> None:
        if self.entries <= 0 or self.bytes <= 0:
            raise ConfigurationError(f"the bounds of pipelines must be positive, not {self.entries} and {self.bytes}")

    def enforce(self, layer: EventLayer, stream: str, *, now_ms: int, trims: bool = True) -> PipelineSize | None:
        """Trim if it is too large. Returns the size it had; None if the layer cannot tell. Raises EventLayerError.

        By time, as if entries had come evenly; what that leaves is trimmed by the next call.
        """
        if not isinstance(layer, MeasuredPipelines):
            return None
        size = layer.measure(stream)
        excess = max(size.entries / self.entries, size.bytes / self.bytes)
        first = layer.first_offset(stream) if trims and excess > 1 else None
        if first is not None:
            age_ms = now_ms - offsets.appended_at_ms(first)
            kept_ms = max(YOUNGEST_TRIMMED_MS, int(age_ms * _FURTHER / excess))
            layer.trim(stream, before_ms=now_ms - kept_ms)
        return size
