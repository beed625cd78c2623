"""Record of a whole run of the tests, written by the run itself: `make test-all` names the document in TESTED_DOCUMENT.

Nothing is written of a part of the tests, of a run that was broken off, or by the workers of pytest-xdist.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TESTED_DOCUMENT"
_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_MOST_REASONS = 20
_HEAD = (
    "# Tested",
    "",
    "Written by `make test-all` at the end of a whole run, the slow families included.",
    "",
    "| | |",
    "|---|---|",
)


def pytest_configure(config: pytest.Config) -> None:
    """Begin a record, if one is asked for."""
    document = os.environ.get(VARIABLE)
    if document and not hasattr(config, "workerinput") and _is_whole(config):
        config.pluginmanager.register(WholeRun(config.rootpath, config.rootpath / document), "whole-run")


class WholeRun:
    """Record of one run. The commit is the one that it began with."""

    def __init__(self, root: Path, document: Path) -> None:
        self._document = document
        self._began = datetime.now(UTC)
        self._began_s = time.monotonic()
        self._commit = _git(root, "rev-parse", "--short=12", "HEAD") or "none"
        changed = _git(root, "status", "--porcelain").splitlines()
        self._tree = f"{len(changed)} files differ from it" if changed else "clean tree"

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Write the document, unless the run was broken off."""
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        stats: Mapping[str, Sequence[Any]] = terminalreporter.stats
        self._document.write_text(self._text(stats))
        terminalreporter.write_line(f"written: {self._document}")

    def _text(self, stats: Mapping[str, Sequence[Any]]) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._began_s), 60)
        rows = {
            "began": f"{self._began:%Y-%m-%d %H:%M} UTC",
            "commit": f"{self._commit}, {self._tree}",
            "lasted": f"{minutes} min {seconds} s",
            **{name: f"{len(stats.get(name, ())):,}" for name in _OUTCOMES if name == "passed" or stats.get(name)},
            "machine": _machine(),
        }
        lines = [*_HEAD]
        lines += [f"| {name} | {value} |" for name, value in rows.items()]
        if not_passed := sorted({report.nodeid for name in ("failed", "error") for report in stats.get(name, ())}):
            lines += ["", "## Not passed", "", *(f"- `{nodeid}`" for nodeid in not_passed)]
        if skipped := Counter(map(_why, stats.get("skipped", ()))):
            lines += [
                "",
                "## Skipped",
                "",
                *(f"- {count} x {why}" for why, count in skipped.most_common(_MOST_REASONS)),
            ]
        return "\n".join(lines) + "\n"


def _is_whole(config: pytest.Config) -> bool:
    """Whether nothing was left out by the command line."""
    option = config.option
    selected = option.keyword or option.markexpr or option.deselect or option.maxfail or getattr(option, "lf", False)
    return not selected and list(config.args) == list(config.getini("testpaths"))


def _why(report: Any) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(str(reason).removeprefix("Skipped: ").split())[:200]


def _machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {system}"


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
