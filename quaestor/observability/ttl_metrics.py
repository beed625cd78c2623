"""Metrics of the lifetimes: the canary of other parameters, if there is one."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class TtlMetrics:
    """Canary of an app, as this process judges it. Event loop only.

    share: percent of the results that have the canary's parameters; 0: there is none.
    figures: of all processes, shares: what was measured, and the ends of the band.
    ended: canaries that this process has ended by itself, by how.
    """

    def __init__(self, families: Families) -> None:
        self.share = families.gauge("ttl_canary_share", "percent of the results that have a canary's parameters")
        self.ended = families.counters(
            "ttl_canaries_ended", "canaries that were ended without an operator", how=vocabularies.CANARY_ENDS
        )
        for how in vocabularies.CANARY_ENDS:  # from 0 on: the first one that ends is an increase
            self.ended.labels(how)
        self.figures = families.gauges(
            "ttl_canary_figures", "figures of a canary, of the rest, and the band that it is judged by",
            figure=vocabularies.CANARY_FIGURES, of=vocabularies.CANARY_OF,
        )  # fmt: skip
