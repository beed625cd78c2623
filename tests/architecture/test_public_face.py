"""The public face: what is documented is exported, what is exported is documented, and both have types."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import quaestor
from tests.architecture.sources import FOLDERS, PACKAGES, ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FACE = (*PACKAGES, "quaestor.tables", "quaestor.testing")
"""Modules that applications import from."""
API = (ROOT / "docs/api.md").read_text()
USE = Path(__file__).with_name("public_use.py")


def documented(package: str) -> set[str]:
    """The names in the first column of a package's table."""
    section = API.partition(f"## `{package}`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("package", FACE)
def test_exported_names_are_documented_and_documented_names_are_exported(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(documented(package))
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_the_names_that_type_checkers_see_are_those_that_are_imported() -> None:
    """`TYPE_CHECKING` imports and the table of lazy ones say the same."""
    text = Path(str(quaestor.__file__)).read_text()
    block = text.partition("if TYPE_CHECKING:")[2].partition("\n__all__")[0]
    seen = {
        name: module
        for module, names in re.findall(r"from ([\w.]+) import (\([^)]*\)|[^\n]+)", block)
        for name in re.findall(r"\w+", names)
    }
    assert seen == {name: module for module, names in quaestor._NAMES.items() for name in names.split()}
    assert sorted(seen) == sorted(quaestor.__all__)
    assert set(quaestor.__all__) <= set(dir(quaestor))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_import_from_the_public_face_only(document: Path) -> None:
    """No document imports from a module that may move."""
    for module, names in re.findall(
        r"^from (quaestor[\w.]*|middleware[\w.]*|cdn_adapters[\w.]*) import ([^\n]+)", document.read_text(), re.M
    ):
        assert module in FACE, f"{document.name}: from {module} import {names}"
        assert set(re.findall(r"\w+", names)) <= set(importlib.import_module(module).__all__)


def test_a_user_s_code_passes_a_strict_type_checker() -> None:
    """Every exported name is used as in the documents, in code outside the project's folder, like a user's code."""
    text = USE.read_text()
    unused = [name for package in FACE for name in documented(package) if not re.search(rf"\b{name}\b", text)]
    assert unused == []
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir=/dev/null", str(USE)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_ships_its_types(package: str) -> None:
    assert (ROOT / FOLDERS[package] / "py.typed").exists()
