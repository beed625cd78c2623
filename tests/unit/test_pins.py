"""Installed packages are the locked ones, checked by hash: dependencies, build back-end and uv. The licence is named in one
way."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
FILES = ("requirements.lock", "requirements-build.txt", "requirements-uv.txt")


def pins(file: str) -> dict[str, str]:
    """The versions in a file of requirements, by name; every one of them has hashes."""
    text = re.sub(r"\s*\\\n\s*", " ", (ROOT / file).read_text())
    results = {}
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            pin = re.match(r"([\w.-]+)(?:\[[\w,]+\])?==(\S+)", line)
            assert pin is not None, line
            assert "--hash=sha256:" in line, line
            results[pin[1]] = pin[2]
    return results


@pytest.mark.parametrize("file", FILES)
def test_everything_is_pinned_by_hash(file: str) -> None:
    assert pins(file)


def test_the_build_back_end_is_the_one_that_is_pinned_by_hash() -> None:
    """A build for others resolves within `requires`, which knows no hashes; ours installs the file, and isolates nothing."""
    [required] = PROJECT["build-system"]["requires"]
    name, _, version = required.partition("==")
    assert pins("requirements-build.txt")[name] == version


def test_packages_in_several_files_have_one_version() -> None:
    """The packages of all files share one environment."""
    locked = pins("requirements.lock")
    for file in FILES[1:]:
        assert {name: version for name, version in pins(file).items() if locked.get(name, version) != version} == {}
    assert pins("requirements-uv.txt").keys() == {"uv"}


def test_the_environment_is_made_of_these_files_alone() -> None:
    """No step of the set-up installs what has no hash, but the project itself."""
    rules = (ROOT / "Makefile").read_text()
    rules = rules[rules.index("# --- set-up") :]
    steps = [line for line in rules.splitlines() if re.search(r"pip (install|sync)", line)]
    assert len(steps) == 3
    assert all("--require-hashes" in step or ("--no-deps" in step and "--no-build-isolation" in step) for step in steps)


def test_the_licence_is_named_and_there() -> None:
    """As PEP 639 has it, so that the wheel carries the text."""
    assert PROJECT["project"]["license"] == "Apache-2.0"
    [file] = PROJECT["project"]["license-files"]
    text = (ROOT / file).read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
