"""A test that stands still is ended, wherever it does: nothing waits for it for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMITS = "[pytest]\naddopts = -p no:cacheprovider\ntimeout = 1\nended_by_force_after = 2\n"
EARLIER = "import threading, time, pytest\n\nfor_ever = threading.Event().wait\n"
STANDING = {
    "in the teardown of a test that has failed": """
@pytest.fixture
def server():
    yield
    for_ever()

def test_it(server):
    assert False
""",
    "in a test that takes no notice of its timeout": """
def test_it():
    while True:
        try:
            time.sleep(0.1)
        except BaseException:
            pass
""",
    "in a thread that Python waits for": """
def test_it():
    threading.Thread(target=for_ever).start()
""",
}


def run(project: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest on one test, with nothing but what it needs."""
    (project / "pytest.ini").write_text(LIMITS)
    (project / "test_standing.py").write_text(EARLIER + test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_timeout", "-p", "tests.ended_by_force", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.parametrize("where", STANDING)
def test_a_test_that_stands_still_is_ended_and_its_stack_printed(where: str, tmp_path: Path) -> None:
    """The test is ended also where pytest's own limits do not reach it."""
    done = run(tmp_path, STANDING[where])
    assert done.returncode == 1
    assert "Timeout (0:00:0" in done.stderr
    assert "most recent call first" in done.stderr


def test_in_a_worker_the_others_go_on(tmp_path: Path) -> None:
    """The test is one that failed, with its name, and the run ends."""
    (tmp_path / "test_well.py").write_text("def test_well(): pass\n")
    done = run(tmp_path, STANDING["in the teardown of a test that has failed"], "-p", "xdist", "-n", "1")
    assert "crashed while running 'test_standing.py::test_it'" in done.stdout
    assert "1 passed" in done.stdout
