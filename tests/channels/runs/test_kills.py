"""SIGKILL at each durable step of a feed and of the runs of a channel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT


def test_a_kill_at_any_step_loses_no_record_and_delivers_none_twice(tmp_path: Path) -> None:
    """Bounds and results of a run are one entry, and so are records and position of a feed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.channels.runs.killed_runs", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout)
    assert len(states) >= 8
    for state in states:
        assert sorted(state["delivered"]) == [10, 11, 20, 21]
        assert state["records"] == 4
        assert state["runs"] == sorted(set(state["runs"]))
