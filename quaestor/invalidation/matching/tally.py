"""Counts of the cost of matching in a node."""

from __future__ import annotations

from dataclasses import dataclass, field

from quaestor.invalidation.matching.trial_rates import TrialRates


@dataclass(slots=True)
class Tally:
    """Running counts of one node.

    writes: images of records processed.
    tried: predicates evaluated.
    tried_last: predicates evaluated for the latest write.
    failed: predicates and comparisons that raised, and so invalidated their queries.
    failing: ids of these queries until the node takes them (bounded).
    unreadable: why writes that were kept unread could not be read, until the cell takes them.
    evicted: registrations evicted for room.
    trial_rates: recent rate of trials of each predicate.
    """

    writes: int = 0
    tried: int = 0
    tried_last: int = 0
    failed: int = 0
    evicted: int = 0
    failing: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    trial_rates: TrialRates = field(default_factory=TrialRates)
