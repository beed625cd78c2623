"""The environment of `make test-lowest` without extras: the core's dependencies have the lowest versions that are allowed."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
CORE = [Requirement(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]


@pytest.mark.skipif(Path(sys.prefix).name != ".venv-lowest-core", reason="runs in .venv-lowest-core (make test-lowest)")
def test_each_dependency_has_its_lowest_version() -> None:
    """A floor that no environment installs is a guess: code may use what only later versions have."""
    higher = {}
    for requirement in CORE:
        (floor,) = [Version(bound.version) for bound in requirement.specifier if bound.operator == ">="]
        installed = Version(metadata.version(requirement.name))
        if installed.release[: len(floor.release)] != floor.release:
            higher[str(requirement)] = str(installed)
    assert higher == {}


def test_every_dependency_of_the_core_names_a_floor() -> None:
    """Without a floor the lowest resolution would take the first version ever published."""
    assert [
        str(requirement) for requirement in CORE if ">=" not in {bound.operator for bound in requirement.specifier}
    ] == []
