"""Counts of what matching has cost a node so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from quaestor.invalidation.matching.trial_rates import TrialRates


@dataclass(slots=True)
class Tally:
    """Running counts of one node.

    writes: images of records looked at.
    tried: predicates evaluated.
    tried_last: for the latest write alone.
    failed: predicates and comparisons that raised, whose queries were invalidated for it.
    failing: ids of these queries until somebody takes them away (bounded).
    evicted: registrations that had to make room.
    trial_rates: how often each predicate is tried lately.
    """

    writes: int = 0
    tried: int = 0
    tried_last: int = 0
    failed: int = 0
    evicted: int = 0
    failing: list[str] = field(default_factory=list)
    trial_rates: TrialRates = field(default_factory=TrialRates)
