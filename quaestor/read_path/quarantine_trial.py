"""Trial of a quarantined route: its handler runs repeatedly; once enough runs agree, the quarantine ends early. Pure.

Runs agree if each gives the same answer as the run before it, by the same queries as the diverged entry. A handler with a memo
runs fewer queries, and a handler that shows chance or a counter never gives the same answer twice. Neither is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.read_path.verification import Fingerprint, differences

TRIAL_SHARE: Final = 1 / 360
"""Pause between two runs, as a share of the quarantine: 10 s of an hour."""
ENOUGH: Final = 6
"""Consecutive runs that have to agree."""
MOST_RUNS: Final = 30
"""After so many runs the quarantine lasts for its whole time."""


@dataclass(slots=True)
class Trial:
    """Progress of one trial.

    diverged: fingerprint of the entry that diverged.
    latest: the answer of the latest run.
    """

    diverged: Fingerprint
    latest: Fingerprint
    runs: int = 0
    agreed: int = 0

    def judge(self, again: Fingerprint | None) -> bool | None:
        """Judge one more run. True: enough runs have agreed. False: the trial is over. None: go on.

        again: its answer; None: it failed, or wrote.
        """
        self.runs += 1
        if again is None:
            self.agreed = 0
        else:
            same = not differences(self.latest, again) and again.queries == self.diverged.queries
            self.agreed, self.latest = self.agreed + 1 if same else 0, again
        if self.agreed >= ENOUGH:
            return True
        return False if self.runs >= MOST_RUNS else None
