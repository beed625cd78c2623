"""SIGKILL of a process whose run is on Spark."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

MODULE = "tests.continuous.executors.killed_with_spark"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kill_during_a_run_on_spark_loses_nothing_and_publishes_nothing_twice(tmp_path: Path) -> None:
    """A process is killed while Spark executes, before the rows are published, and after. Its JVM ends with it."""
    for moment in ("stage", "rows", "published", "end"):
        done = subprocess.run(
            [sys.executable, "-m", MODULE, str(tmp_path), moment], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == (0 if moment == "end" else -signal.SIGKILL), done.stderr[-2000:]
        _wait_for_the_end(int((tmp_path / "jvm").read_text()))
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["rows"] == 4 * 700
    assert outcome["results"] == list(range(0, outcome["rows"], 7))


def _wait_for_the_end(process: int) -> None:
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 120)[0], "the JVM outlived its process"
    finally:
        os.close(handle)
