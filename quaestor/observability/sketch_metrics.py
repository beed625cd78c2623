"""Metrics of the Cache Sketch: the fill of its filters, and its cost."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class SketchMetrics:
    """Fill of the filters, by partition (`cache_sketch.partitions.label_of`); the partition `union` is all of them.

    keys: outdated resources that may have a living copy.
    fill: share of the bits that are set.
    false_positives: share of other resources that the filter names too: as theory predicts for this number of keys, and by
        the bits.
    lifetime_factor: factor that shortens lifetimes.
    removed: keys that have left the union since the sketch was begun.
    """

    def __init__(self, families: Families) -> None:
        self.keys = families.gauges(
            "sketch_keys", "outdated resources that may have a living copy somewhere", partition=None
        )
        self.fill = families.gauges("sketch_fill", "share of the filter's bits that are set", partition=None)
        self.false_positives = families.gauges(
            "sketch_false_positives", "share of unchanged resources that the sketch names too",
            partition=None, how=vocabularies.FALSE_POSITIVES,
        )  # fmt: skip
        self.lifetime_factor = families.gauges(
            "sketch_lifetime_factor",
            "factor that shortens lifetimes while the filter has too many keys",
            partition=None,
        )
        self.removed = families.gauge(
            "sketch_removed", "keys that have left the sketch since it was begun, because their copies are dead"
        )
