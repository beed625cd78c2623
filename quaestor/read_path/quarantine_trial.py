"""Trial of a quarantined route: its handler is run again and again; once enough runs agree, the quarantine ends early. Pure.

Runs agree if each answers as the one before it, by the same queries as the entry that diverged. A handler with a memo of its own
runs fewer queries than that, and a handler that shows chance or a counter never answers twice the same: neither is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.read_path.verification import Fingerprint, differences

TRIAL_SHARE: Final = 1 / 360
"""Pause between two runs, as a share of the quarantine: 10 s of an hour."""
ENOUGH: Final = 6
"""Runs in a row that have to agree."""
MOST_RUNS: Final = 30
"""After so many runs the quarantine lasts for its whole time."""


@dataclass(slots=True)
class Trial:
    """Progress of one trial.

    diverged: the entry that was found out.
    latest: the answer of the latest run.
    """

    diverged: Fingerprint
    latest: Fingerprint
    runs: int = 0
    agreed: int = 0

    def judge(self, again: Fingerprint | None) -> bool | None:
        """Take in one more run. True: enough have agreed. False: the trial is over. None: go on.

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
