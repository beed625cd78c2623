"""Metrics of the cache's verification of itself."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class VerificationMetrics:
    """Verifications of stored answers. Event loop only.

    verifications: by finding.
    divergences: verifications for which a route was quarantined.
    """

    def __init__(self, families: Families) -> None:
        self.verifications = families.counters(
            "verifications", "stored answers made again and compared", verdict=vocabularies.FINDINGS
        )
        self.divergences = families.counter("divergences", "routes quarantined because one of their answers diverged")
