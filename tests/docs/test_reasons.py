"""Page of the reasons: each word of `detail=` in Cache-Status is explained, in the words of the dashboard."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location

from quaestor.observability import vocabularies
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/reasons.md"


def test_each_reason_is_explained_with_a_remedy() -> None:
    """The page explains exactly the reasons that can be counted."""
    rows = re.findall(r'^\| <a id="([a-z-]+)"></a>`([a-z-]+)` \| (.+) \| (.+) \|$', PAGE.read_text(), re.MULTILINE)
    assert sorted(word for word, *_ in rows) == sorted(vocabularies.REASONS)
    assert all(anchor == word and meaning and remedy for anchor, word, meaning, remedy in rows)


def test_words_that_the_code_writes_itself_are_explained() -> None:
    """Of Cache-Status: every value of `detail` and `fwd` in the source of the middleware."""
    source = "".join(path.read_text() for path in (ROOT / "middleware").glob("*.py"))
    details = set(re.findall(r'b"[^"]*detail=([a-z-]+)', source))
    forwarded = set(re.findall(r'b"[^"]*fwd=([a-z-]+)', source))
    assert {"absent", "error"} <= details
    assert {"bypass", "uri-miss", "stale"} <= forwarded
    text = PAGE.read_text()
    assert [word for word in details if f"detail={word}`" not in text] == []
    assert [word for word in forwarded if f"fwd={word}" not in text and f"`{word}`" not in text] == []


def test_the_page_has_the_dashboards_explanations() -> None:
    """`make reasons` writes them."""
    spec = spec_from_file_location("reasons", ROOT / "docs/site/reasons.py")
    assert spec is not None
    assert spec.loader is not None
    reasons = module_from_spec(spec)
    spec.loader.exec_module(reasons)
    text = PAGE.read_text()
    assert text == reasons.replaced(text)
