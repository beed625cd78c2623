"""Index of events in docs/failure_modes.md: complete and current."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/failure_modes.md"


def failure_index() -> ModuleType:
    """Return the script that writes the index."""
    spec = spec_from_file_location("failure_index", ROOT / "docs/site/failure_index.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_names_every_event_of_the_tables() -> None:
    """`make failure-index` writes it."""
    text = PAGE.read_text()
    assert text == failure_index().replaced(text)


def test_every_row_of_the_failures_names_its_events() -> None:
    """A row that the index cannot read has no event of the form `room.what_failed` in its second column."""
    section = PAGE.read_text().partition("## Failures, part by part\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    named = sum(len(names) for names in failure_index().events(section).values())
    assert len(rows) > 70
    assert named >= len(rows)
    assert [row for row in rows if not re.match(r"\| [^|]+ \| `[a-z_]+\.[a-z_]+`", row)] == []
