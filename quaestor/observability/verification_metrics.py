"""Metrics of what the cache finds when it verifies itself."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class VerificationMetrics:
    """Verifications of stored answers. Event loop only.

    verifications: by what they found.
    divergences: of them those for which a route was quarantined.
    """

    def __init__(self, families: Families) -> None:
        self.verifications = families.counters(
            "verifications", "stored answers made again and compared", verdict=vocabularies.FINDINGS
        )
        self.divergences = families.counter("divergences", "routes quarantined because an answer of them diverged")
