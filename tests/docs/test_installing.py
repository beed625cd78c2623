"""docs/installing.md names every extra, and counts the examples rightly."""

from __future__ import annotations

import re
import tomllib

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/installing.md").read_text()
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def test_every_extra_has_a_row() -> None:
    """Except `docs`, which builds this site."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    named = re.findall(r"`quaestor\[([a-z-]+)\]`(?=[^|\n]* \|)", PAGE)
    assert set(named) == extras - {"docs"}


def test_the_number_of_examples_is_right() -> None:
    """Each heading of the examples' README is one application."""
    examples = len(re.findall("^## ", (ROOT / "examples/README.md").read_text(), re.MULTILINE))
    assert f"holds {NUMBERS[examples]} small apps" in PAGE
