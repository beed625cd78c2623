"""The record of a whole run: written by the run itself, of nothing less than a whole run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole_run import VARIABLE

ROOT = Path(__file__).parents[2]
CHECKS = """
import pytest

def test_one(): pass
def test_two(): pass
def test_wrong(): assert False
@pytest.mark.skip(reason="no such server here")
def test_left(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project under version control with four tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = checks\naddopts = -p no:cacheprovider\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_it.py").write_text(CHECKS)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "checks"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command], cwd=tmp_path, check=True)
    return tmp_path


def run(project: Path, *arguments: str, requested: bool = True) -> str | None:
    """The record after a run; None: none was written."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({VARIABLE: "tested.md"} if requested else {})
    if not requested:
        environment.pop(VARIABLE, None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.whole_run", *arguments]
    subprocess.run(command, cwd=project, env=environment, capture_output=True, check=False, timeout=120)
    document = project / "tested.md"
    return document.read_text() if document.exists() else None


@pytest.mark.parametrize("side_by_side", [pytest.param((), marks=pytest.mark.slow), ("-n", "2")])
def test_a_whole_run_is_recorded_with_its_commit_and_its_numbers(project: Path, side_by_side: tuple[str, ...]) -> None:
    """Once, also where workers run the tests."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=project, capture_output=True, text=True, check=True
    ).stdout.strip()
    text = run(project, *side_by_side)
    assert text is not None
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", text, re.MULTILINE))
    assert rows["commit"] == f"{commit}, clean tree"
    assert (rows["passed"], rows["failed"], rows["skipped"]) == ("2", "1", "1")
    assert rows.keys() == {"began", "commit", "lasted", "passed", "failed", "skipped", "machine"}
    assert "- `checks/test_it.py::test_wrong`" in text
    assert "- 1 x no such server here" in text


def test_a_tree_that_differs_from_its_commit_is_called_so(project: Path) -> None:
    (project / "checks" / "test_more.py").write_text("def test_more(): pass\n")
    assert "1 files differ from it" in str(run(project))


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "one"),
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (("-m", "not slow"), ("checks/test_it.py",), ("-x",))
        ),
    ],
)
def test_a_part_of_the_tests_is_not_recorded(project: Path, arguments: tuple[str, ...]) -> None:
    assert run(project, *arguments) is None


def test_nothing_is_recorded_unless_it_is_asked_for(project: Path) -> None:
    assert run(project, requested=False) is None


def test_a_run_that_is_broken_off_is_not_recorded(project: Path) -> None:
    (project / "checks" / "test_end.py").write_text("def test_end(): raise KeyboardInterrupt\n")
    assert run(project) is None
