"""SIGKILL at each durable step of runs and deliveries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT


@pytest.mark.parametrize("engine", ["plain", "sql", pytest.param("joined", marks=pytest.mark.slow)])
def test_a_kill_at_any_step_loses_nothing_and_publishes_nothing_twice(tmp_path: Path, engine: str) -> None:
    """Each result is published once. The file has each once; a receiver without a memory gets repetitions with equal keys."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.continuous.runs.killed_at_each_step", str(tmp_path), engine],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout)
    assert len(states) > 20
    for state in states:
        assert sorted(identity for _, identity in state["results"]) == [1, 2]
        assert state["file"] == state["results"]
        assert {tuple(delivery) for delivery in state["log"]} == {tuple(result) for result in state["results"]}
    assert any(len(state["log"]) > len(state["results"]) for state in states)
    if engine == "joined":
        assert sum(state["struck"] for state in states) > 10
        assert {state["files"] for state in states} == {1}
