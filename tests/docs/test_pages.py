"""Shape of the documentation: four kinds of pages, an example on each first screen, bounded length, a search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT

KINDS = ("Tutorial", "How-to", "Reference", "Explanation")
MOST_WORDS = 2_500
SCREEN_LINES, SCREEN_WORDS = 25, 200
WRITTEN_BY_A_RUN = "tested.md"
"""A record without prose."""
CONFIGURATION = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)


def paths(item: Any) -> Iterator[str]:
    """Return the pages below an item of the navigation."""
    if isinstance(item, str):
        yield item
    else:
        for child in item.values() if isinstance(item, dict) else item:
            yield from paths(child)


KIND_BY_PAGE = {
    page: kind
    for item in CONFIGURATION["nav"]
    if isinstance(item, dict)
    for kind, below in item.items()
    for page in paths(below)
}
PAGES = sorted(
    path.relative_to(ROOT / "docs").as_posix() for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/cdn/*.md")]
)


def words(text: str) -> int:
    """Count what holds a letter or a digit."""
    return sum(1 for word in text.split() if re.search(r"\w", word))


def test_the_navigation_has_the_four_kinds() -> None:
    """Tutorial, how-to, reference and explanation, each with pages."""
    kinds = list(dict.fromkeys(kind for kind in KIND_BY_PAGE.values() if kind in KINDS))
    assert kinds == list(KINDS)
    assert {page for page in PAGES if page not in KIND_BY_PAGE} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page != WRITTEN_BY_A_RUN])
def test_each_page_has_an_example_on_its_first_screen(page: str) -> None:
    """A fenced block begins within 25 lines and 200 words."""
    before, fence, _ = (ROOT / "docs" / page).read_text().partition("\n```")
    assert fence
    assert before.count("\n") + 1 <= SCREEN_LINES
    assert words(before) <= SCREEN_WORDS


@pytest.mark.parametrize("page", [page for page in PAGES if KIND_BY_PAGE.get(page) != "Reference"])
def test_no_page_but_references_is_too_long(page: str) -> None:
    """At most 2,500 words."""
    assert words((ROOT / "docs" / page).read_text()) <= MOST_WORDS


def test_pages_can_be_searched() -> None:
    """The search plug-in is on; `test_site` finds words in its index."""
    assert "search" in [
        next(iter(plugin)) if isinstance(plugin, dict) else plugin for plugin in CONFIGURATION["plugins"]
    ]


@pytest.mark.parametrize(
    "page", ["installing", "production", "testing", "migrating", "when_not_to_use", "compatibility", "performance"]
)
def test_pages_that_a_newcomer_looks_for_exist(page: str) -> None:
    """Each is reached from README or the first page of the site."""
    assert Path(ROOT / f"docs/{page}.md").exists()
    assert f"{page}.md" in (ROOT / "README.md").read_text() + (ROOT / "docs/index.md").read_text()


def test_architecture_opens_with_five_ideas_and_a_picture() -> None:
    """On one screen: 40 lines before the first step."""
    opening = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", opening, re.MULTILINE) == list("12345")
    assert "```text\n" in opening
    assert opening.count("\n") <= 40
