"""Options of the statistics job: its source, its destination, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quaestor.errors import ConfigurationError

LONGEST_WINDOW_S: Final = 86_400
_MOST_WINDOWS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """Options of one statistics job.

    directory: on a file system that driver and executors share; holds both tables and the checkpoints.

    windows_s: lengths of the tumbling windows, in seconds.
    lateness_s: a window is final when the job has read this far past its end.
    trigger_s: time between two batches.
    most_entries, most_bytes: bounds of one batch, over all pipelines; a backlog takes several batches.
    top: records kept for each collection and query in a window.
    tracked: records counted at a time to find them; with more different ones in a window, small counts are estimates.
    keep_days: age up to which history and windows are kept; 0: for ever.
    maintain_every_s: time between two maintenances, which join small files and remove old ones.
    file_bytes: size from which a file is left alone.
    grace_s: time for which files replaced by a compaction stay, for their present readers.
    """

    redis_url: str
    deployment: str
    directory: Path
    windows_s: tuple[int, ...] = (10, 60)
    lateness_s: int = 10
    trigger_s: float = 5.0
    most_entries: int = 20_000
    most_bytes: int = 64 * 1024 * 1024
    top: int = 20
    tracked: int = 1_000
    keep_days: int = 30
    maintain_every_s: float = 600.0
    file_bytes: int = 64 * 1024 * 1024
    grace_s: float = 3_600.0

    def __post_init__(self) -> None:
        if not 1 <= len(set(self.windows_s)) <= _MOST_WINDOWS:
            raise ConfigurationError(f"windows_s must name 1..{_MOST_WINDOWS} lengths, not {self.windows_s}")
        for length in self.windows_s:
            if not 1 <= length <= LONGEST_WINDOW_S:
                raise ConfigurationError(f"a window of {length} s must lie in 1..{LONGEST_WINDOW_S} s")
        for name in ("trigger_s", "most_entries", "most_bytes", "top", "maintain_every_s", "file_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("lateness_s", "keep_days", "grace_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not self.top <= self.tracked <= 100_000:
            raise ConfigurationError(f"tracked ({self.tracked}) must lie between top ({self.top}) and 100000")

    @property
    def history(self) -> Path:
        """Table of after-images."""
        return self.directory / "history"

    @property
    def windows(self) -> Path:
        """Table of windows."""
        return self.directory / "windows"

    def checkpoint(self, query: str) -> str:
        """Return the folder in which the streaming query of this name keeps its position and its state."""
        return str(self.directory / "checkpoints" / query)
