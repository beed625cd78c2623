"""The documents name what is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
FAILURE = re.compile(r'failure\(\s*"(?P<part>[a-z-]+)",\s*f?"(?P<name>[a-z_]+\.[a-z_{}]+)"')


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`((?:quaestor|middleware|cdn_adapters|tests|docs|benchmarks)/[\w/.-]+)`", text))
    named |= set(re.findall(r"\]\(((?!http)[\w/.-]+)\)", text))
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


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
        for found in FAILURE.finditer((ROOT / source).read_text()):
            names = [found["name"]]
            if "{" in found["name"]:
                names = [re.sub(r"{\w+}", part, found["name"]) for part in ("store", "sketch")]
            missing += [f"{source}: {name}" for name in names if f"`{name}`" not in text]
    assert missing == []
