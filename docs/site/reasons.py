"""Table of docs/reasons.md, from the explanations that the dashboard shows (quaestor/dashboard/assets/reasons.html).

Run: python docs/site/reasons.py (writes the table between its two marks).
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/reasons.md"
EXPLANATIONS: Final = ROOT / "quaestor/dashboard/assets/reasons.html"
BEGIN: Final = "<!-- reasons: written by `make reasons` -->"
END: Final = "<!-- /reasons -->"
_ENTRY: Final = re.compile(
    r'<dt id="([a-z-]+)"><code>[a-z-]+</code></dt>\s*<dd>(.+?) <span class="soft">(.+?)</span></dd>', re.DOTALL
)
_OF_MISSES: Final = "miss-"


def table() -> str:
    """Return the table in Markdown, between its marks: the reasons that `detail=` can hold."""
    lines = [BEGIN, "| detail | what it means | what to do |", "|---|---|---|"]
    for name, meaning, remedy in _ENTRY.findall(EXPLANATIONS.read_text()):
        if not name.startswith(_OF_MISSES):
            lines.append(f'| <a id="{name}"></a>`{name}` | {unescape(meaning)} | {unescape(remedy)} |')
    return "\n".join([*lines, END])


def replaced(text: str) -> str:
    """Return the page's text with the table as it should be."""
    return text.partition(BEGIN)[0] + table() + text.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
