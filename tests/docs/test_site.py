"""The documentation site is built whole, and needs nothing from elsewhere."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import quaestor
from quaestor import cdn_adapters, middleware
from quaestor.settings.whole import GROUPS, setting_rows
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.timeout(900)
"""A build takes 45 s of a processor, and other tests run beside it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; broken links and pages without a place in the navigation end the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=840)
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


def test_every_public_name_and_every_command_is_in_the_reference(site: Path) -> None:
    """Generated from the code, so nothing is left out and nothing is out of date."""
    page = (site / "reference/python.html").read_text()
    for module in (quaestor, middleware, cdn_adapters):
        missing = [name for name in module.__all__ if f">{name}</span>" not in page]
        assert missing == [], module.__name__
    commands = (site / "reference/command_line.html").read_text()
    for name in ("explain", "audit", "cluster resize", "statistics show", "proxy", "demo"):
        assert f"<code>quaestor {name}</code>" in commands


def test_fields_are_a_list(site: Path) -> None:
    """As docstrings have them, a line each."""
    assert "<li><code>clock</code>: " in (site / "reference/python.html").read_text()


def test_every_setting_is_in_the_reference(site: Path) -> None:
    """Generated from the tables of the settings: a row each, in the section of its group."""
    page = (site / "reference/settings.html").read_text()
    for name, row in setting_rows().items():
        assert f"<td><code>{name}</code></td>" in page
        assert html.escape(row.values, quote=False) in page
    for group in GROUPS:
        assert f'<h2 id="{group}">' in page


def test_every_event_of_the_index_of_failures_has_its_row(site: Path) -> None:
    """Each link of the index leads to an anchor in a table."""
    page = (site / "failure_modes.html").read_text()
    links = set(re.findall(r'href="#([a-z_]+\.[a-z_]+)"', page))
    anchors = re.findall(r'<a id="([a-z_]+\.[a-z_]+)"></a>', page)
    assert len(links) > 80
    assert links == set(anchors)


def test_search_finds_words_of_pages(site: Path) -> None:
    """A setting, a reason and an event, each on its page."""
    documents = json.loads((site / "search/search_index.json").read_text())["docs"]
    for word, page in (
        ("journal_flush_ms", "write_concern.html"),
        ("doorkeeper", "reasons.html"),
        ("ingest.stream_failed", "failure_modes.html"),
    ):
        assert any(word in document["text"] and document["location"].startswith(page) for document in documents), word


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    """Pages load no fonts, scripts or pictures of other sites, so reading them reveals nothing to strangers."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="(https?:[^"]*)"', text)
        assert loaded == [], page.name


def test_every_document_has_a_page(site: Path) -> None:
    """Every document has a page that the navigation reaches; decisions stay in the repository."""
    index = (site / "index.html").read_text()
    for document in (ROOT / "docs").glob("*.md"):
        page = document.with_suffix(".html").name
        assert f'href="{page}"' in index or page == "index.html", f"{document.name} is not in mkdocs.yml"
