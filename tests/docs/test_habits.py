"""Habits of the project: decisions, news fragments, releases and the files of the forge are in order."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TYPES = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
DECISIONS = sorted(path for path in (ROOT / "docs/adr").glob("*.md") if path.name != "README.md")
STATUS = re.compile(r"proposed|accepted|withdrawn|superseded by (?P<successor>\d{4})")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_each_decision_has_number_status_and_date(path: Path) -> None:
    """The number is the file's; a successor exists; the date is a date."""
    title, empty, status, date, *_ = path.read_text().splitlines()
    assert title.startswith(f"# {int(path.name[:4])}. ")
    assert empty == ""
    match = STATUS.fullmatch(status.removeprefix("- Status: "))
    assert match is not None
    assert match["successor"] is None or any(other.name.startswith(match["successor"]) for other in DECISIONS)
    assert datetime.date.fromisoformat(date.removeprefix("- Date: "))


def test_numbers_of_decisions_are_unique_and_without_holes() -> None:
    """Each number names one file, so "ADR 7" is unambiguous."""
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_each_fragment_has_a_known_type_and_is_short() -> None:
    """`word.type.md`, at most 60 words."""
    for path in (ROOT / "changes").glob("*.md"):
        if path.name != "README.md":
            kind = path.name.removesuffix(".md").rsplit(".", 1)[-1]
            assert kind in TYPES, path.name
            assert 0 < len(path.read_text().split()) <= 60, path.name


def test_the_changelog_is_for_users() -> None:
    """Short: a reader sees a release on two screens; no file of the sources is named but packages and folders."""
    text = (ROOT / "CHANGELOG.md").read_text()
    assert PROJECT["tool"]["towncrier"]["start_string"] in text
    assert all(len(section.splitlines()) <= 100 for section in text.split("\n## "))
    assert re.findall(r"`(?:quaestor|middleware|cdn_adapters|tests)/[\w/]+\.py`", text) == []


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the files that a release touches, and one fragment."""
    folder = tmp_path / "clone"
    for name in ("pyproject.toml", "CHANGELOG.md", ".ci/release.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "changes").mkdir()
    (folder / "changes/README.md").write_text("")
    (folder / "changes/+tea.added.md").write_text("Tea is cached.\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, as a user without settings, and return its output."""
    names = {
        f"GIT_{who}_{what}": "somebody@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=os.environ | names, check=True, capture_output=True, text=True
    ).stdout.strip()  # fmt: skip


def commit(folder: Path) -> None:
    """Commit all changes."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "A change")


def release(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run the script of `make release`."""
    names = {
        f"GIT_{who}_{what}": "somebody@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return subprocess.run(
        [sys.executable, ".ci/release.py", version],
        cwd=folder, env=os.environ | names, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_release_takes_notes_version_and_tag_from_one_number(clone: Path) -> None:
    """The fragment is in the notes and gone; the tag names the commit; the next version must follow."""
    done = release(clone, "7.0.0")
    assert done.returncode == 0, done.stderr
    assert tomllib.loads((clone / "pyproject.toml").read_text())["project"]["version"] == "7.0.0"
    notes = (clone / "CHANGELOG.md").read_text()
    assert re.search(r"^## 7\.0\.0 \(\d{4}-\d\d-\d\d\)\n\n### Added\n\n- Tea is cached\.$", notes, re.MULTILINE)
    assert notes.index("## 7.0.0") < notes.index("## Before 0.1.0")
    assert [path.name for path in (clone / "changes").iterdir()] == ["README.md"]
    assert git(clone, "describe", "--exact-match") == "v7.0.0"
    assert git(clone, "status", "--porcelain") == ""
    (clone / "changes/+mint.fixed.md").write_text("Mint is cached.\n")
    commit(clone)
    assert "does not follow 7.0.0" in release(clone, "7.0.0").stderr
    assert release(clone, "7.0.1").returncode == 0


@pytest.mark.parametrize(
    ("version", "spoilt", "sentence"),
    [
        ("tea", None, "'tea' is no version; for example: make release VERSION=0.2.0"),
        ("0.0.1", None, "0.0.1 does not follow"),
        ("7.0.0", "changed", "the tree has changes; commit them first"),
        ("7.0.0", "no fragment", "changes/ has no fragment"),
        ("7.0.0", "tagged", "the tag v7.0.0 exists"),
    ],
)
def test_a_release_that_cannot_be_is_refused(clone: Path, version: str, spoilt: str | None, sentence: str) -> None:
    """The sentence names the value and the remedy; nothing is committed."""
    match spoilt:
        case "changed":
            (clone / "CHANGELOG.md").write_text("")
        case "no fragment":
            (clone / "changes/+tea.added.md").unlink()
            commit(clone)
        case "tagged":
            git(clone, "tag", "v7.0.0")
    head = git(clone, "rev-parse", "HEAD")
    done = release(clone, version)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert git(clone, "rev-parse", "HEAD") == head


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_commands_that_exist(path: Path) -> None:
    """Each step is an action of a fixed version, a make target, or a script of this repository."""
    workflow: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert steps
    for step in steps:
        match step:
            case {"uses": uses}:
                assert re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", uses)
            case {"run": command}:
                program, *arguments = command.split()
                assert arguments[0] in TARGETS if program == "make" else os.access(ROOT / program, os.X_OK), command
            case _:
                pytest.fail(f"a step without a command: {step}")


def test_continuous_integration_tests_on_each_supported_python() -> None:
    """The workflow installs each version that the package names. The oldest is the default, and the others must be found."""
    named = [classifier.rpartition(" ")[2] for classifier in PROJECT["project"]["classifiers"] if " 3." in classifier]
    oldest, *others = named
    workflow = yaml.load((ROOT / ".github/workflows/ci.yml").read_text(), Loader=yaml.BaseLoader)
    job = workflow["jobs"]["test"]
    (installed,) = [step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {})]
    assert installed.split() == [*others, oldest]
    assert job["env"]["PYTHONS_NEEDED"].split() == others


@pytest.mark.parametrize(("needed", "fails"), [("", False), ("3.12 3.13", True)])
def test_a_missing_python_fails_where_it_is_needed(needed: str, *, fails: bool) -> None:
    """`make test-pythons` on a machine without other versions: it goes on, unless PYTHONS_NEEDED names a version."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    # The set-up is as good as done: `-o` names a file that make takes for up to date.
    done = subprocess.run(
        ["make", "-o", ".venv/.ready", "test-pythons", "PYTHONS="], cwd=ROOT, env=kept | {"PYTHONS_NEEDED": needed},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode != 0) is fails, done.stderr
    assert ("Python 3.12 is needed and not here" if fails else "going on without") in done.stderr


def test_publishing_is_tried_without_an_upload_by_continuous_integration() -> None:
    """`.ci/run` and the workflow run `make publish` on changes; only a tag uploads."""
    assert re.search(r"^make publish\b(?!.*--upload)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    workflow = yaml.load((ROOT / ".github/workflows/publish.yml").read_text(), Loader=yaml.BaseLoader)
    assert {"push", "pull_request"} == workflow["on"].keys()
    runs = [step for step in workflow["jobs"]["publish"]["steps"] if "run" in step]
    assert [step["run"] for step in runs] == ["make publish", "make publish ARGS=--upload"]
    assert "if" not in runs[0]
    assert runs[1]["if"] == "github.ref_type == 'tag'"


def test_the_bot_looks_where_dependencies_are() -> None:
    """Each directory of its configuration holds a manifest of its ecosystem."""
    manifests = {"pip": "pyproject.toml", "npm": "package.json", "github-actions": ".github/workflows"}
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == manifests.keys()
    for update in updates:
        for directory in update.get("directories", [update.get("directory")]):
            assert (ROOT / directory.lstrip("/") / manifests[update["package-ecosystem"]]).exists(), directory


def test_issue_forms_ask_for_what_a_maintainer_needs() -> None:
    """A fault: what is seen, how to see it, the doctor's output, the version; a change: a test and a fragment."""
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())
    assert {"seen", "reproduce", "doctor", "version"} == {field["id"] for field in form["body"] if "id" in field}
    assert all(field.get("validations", {}).get("required") for field in form["body"] if "id" in field)
    template = (ROOT / ".github/pull_request_template.md").read_text()
    assert "changes/" in template
    assert "A test fails without the change" in template
