"""The documents name what is there."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.figure_rows import results
from tests.recovery import report
from tests.recovery.failures import FAILURES

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
)
FAILURE = re.compile(r'failure\(\s*"(?P<part>[a-z-]+)",\s*f?"(?P<name>[a-z_]+\.[a-z_{}]+)"')


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = {
        ROOT / path
        for path in re.findall(r"`((?:quaestor|middleware|cdn_adapters|tests|docs|benchmarks)/[\w/.-]+)`", text)
    }
    named |= {(ROOT / document).parent / path for path in re.findall(r"\]\(((?!http)[\w/.-]+)\)", text)}
    assert named or document.startswith("docs/")
    assert [str(path) for path in sorted(named) if not path.exists()] == []


@pytest.mark.parametrize("document", ["SECURITY.md", "docs/compatibility.md"])
def test_documents_name_the_versions_of_python_that_the_package_names(document: str) -> None:
    """Users read in both documents which versions are tested; the package's classifiers decide."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classifiers = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert f"{', '.join(classifiers[:-1])} and {classifiers[-1]}" in (ROOT / document).read_text()


def test_every_failure_that_the_code_can_report_is_in_the_documents() -> None:
    """By its event name; names with a part filled in at run time are written out there."""
    sources = subprocess.run(
        ["git", "ls-files", "quaestor/*.py", "middleware/*.py", "cdn_adapters/*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    text = (ROOT / "docs/failure_modes.md").read_text()
    missing = []
    for source in sources:
        if not (ROOT / source).exists():
            continue
        for match in FAILURE.finditer((ROOT / source).read_text()):
            names = [match["name"]]
            if "{" in match["name"]:
                names = [re.sub(r"{\w+}", part, match["name"]) for part in ("store", "sketch")]
            missing += [f"{source}: {name}" for name in names if f"`{name}`" not in text]
    assert missing == []


def test_warnings_of_clients_with_the_sketch_are_in_the_documents() -> None:
    """Neither they nor a sketch that is begun report failures, but both change what an operator sees."""
    sources = [*(ROOT / "quaestor/client").glob("*.py"), *(ROOT / "quaestor/cache_sketch").glob("*.py")]
    names = {
        name
        for path in sources
        for name in re.findall(r'(?:warning|event)\("((?:client|sketch)\.\w+)', path.read_text())
    }
    assert {"client.storage_failed", "sketch.begun"} <= names
    text = (ROOT / "docs/failure_modes.md").read_text()
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_the_measured_failures_in_the_documents_are_those_of_the_last_run() -> None:
    """The part that `python -m tests.recovery.report` writes, and every failure of the tests in it."""
    result = json.loads(report.RESULT.read_text())
    assert result["failures"].keys() == FAILURES.keys()
    assert all(failure["violations"] == 0 for failure in result["failures"].values())
    text = report.DOCUMENT.read_text()
    assert text == report.with_section(text, report.section(result))
    assert all(failure.what in text for failure in FAILURES.values())


def test_every_event_that_a_tried_failure_is_seen_by_is_one_that_is_explained() -> None:
    explained = report.DOCUMENT.read_text().partition(report.BEGIN)[0]
    named = {name for failure in FAILURES.values() for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", failure.seen)}
    assert named
    assert sorted(name for name in named if f"`{name}`" not in explained) == []


def test_figures_of_a_changed_tree_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the command to run."""
    (tmp_path / "soak.json").write_text(json.dumps({"commit": "0123456789abcdef+changes"}))
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    with pytest.raises(
        results.FiguresError, match=r"soak.json was measured on a changed tree .* python -m benchmarks.soak"
    ):
        results.result("soak")
    with pytest.raises(results.FiguresError, match=r"matching.json is missing; run: python -m benchmarks.matching"):
        results.result("matching")
