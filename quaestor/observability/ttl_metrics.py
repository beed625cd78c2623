"""Metrics of the lifetimes: the canary with other parameters, if there is one."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class TtlMetrics:
    """Canary of an app, as this process judges it. Event loop only.

    share: percent of the results with the canary's parameters; 0: there is none.
    figures: shares over all processes: measured ones, and the ends of the band.
    ended: canaries that this process has ended by itself, by outcome.
    """

    def __init__(self, families: Families) -> None:
        self.share = families.gauge("ttl_canary_share", "percent of the results with a canary's parameters")
        self.ended = families.counters(
            "ttl_canaries_ended", "canaries ended without an operator", how=vocabularies.CANARY_ENDS
        )
        for how in vocabularies.CANARY_ENDS:  # from 0 on, so that the first one that ends is an increase
            self.ended.labels(how)
        self.figures = families.gauges(
            "ttl_canary_figures", "figures of a canary, of the rest, and the band of the judgement",
            figure=vocabularies.CANARY_FIGURES, of=vocabularies.CANARY_OF,
        )  # fmt: skip
