"""SIGKILL at each durable step of a feed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kill_at_any_step_writes_each_record_and_each_letter_exactly_once(tmp_path: Path) -> None:
    """With two partitions, and with larger batches after the restart."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.channels.feeds.killed_at_each_step", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    states = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(states) > 20
    for step, state in enumerate(states, 1):
        assert state == {"records": [1, 2, 3, 4], "letters": [1], "stored": 4}, step
