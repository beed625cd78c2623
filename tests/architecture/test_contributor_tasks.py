"""Tasks of contributors in CONTRIBUTING.md: at least twenty, each answered by files that exist."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.architecture.sources import ROOT

TASKS_AT_LEAST: Final = 20
_ROW: Final = re.compile(r"^\| (?P<task>[^|]+) \| (?P<answer>[^|]+) \|$", re.MULTILINE)
_PATH: Final = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
_TARGET: Final = re.compile(r"`make ([a-z-]+)`")


def rows(heading: str) -> dict[str, str]:
    """Return the answers of a table of CONTRIBUTING.md, by task."""
    _, _, below = (ROOT / "CONTRIBUTING.md").read_text().partition(f"| {heading} | file |\n|---|---|\n")
    table, _, _ = below.partition("\n\n")
    return {row["task"]: row["answer"] for row in _ROW.finditer(table)}


QUESTIONS: Final = rows("question")
TASKS: Final = rows("task")


def test_contributors_find_twenty_tasks_with_different_answers() -> None:
    assert len(TASKS) >= TASKS_AT_LEAST
    assert len(set(TASKS.values())) == len(TASKS)


@pytest.mark.parametrize("task", [*QUESTIONS, *TASKS])
def test_the_answer_to_a_task_names_files_that_exist(task: str) -> None:
    """An answer names at least one file or folder; each named path and each named target of `make` exists."""
    answer = (QUESTIONS | TASKS)[task]
    paths = _PATH.findall(answer)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in _TARGET.findall(answer) if f"\n{target}: " not in makefile] == []
