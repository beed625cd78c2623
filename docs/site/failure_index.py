"""Index of events in docs/failure_modes.md: every event of the tables by its first word, with links. Run by `make failure-index`.

The site gives each row the anchors that the links need (`anchored`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "failure_modes.md"
BEGIN: Final = "<!-- index: written by `make failure-index` -->"
END: Final = "<!-- /index -->"
_EVENT_CELL: Final = re.compile(r"^(\| [^|]+ \| )((?:`[a-z_]+\.[a-z_]+`(?:, )?)+)", re.MULTILINE)
_EVENT: Final = re.compile(r"`([a-z_]+)\.([a-z_]+)`")


def events(text: str) -> dict[str, list[str]]:
    """Return the events of the tables' second column: first word to second words, each sorted."""
    words: dict[str, set[str]] = {}
    for _, cell in _EVENT_CELL.findall(text):
        for room, event in _EVENT.findall(cell):
            words.setdefault(room, set()).add(event)
    return {room: sorted(words[room]) for room in sorted(words)}


def index(text: str) -> str:
    """Return the index in Markdown, between its marks."""
    lines = [BEGIN, "| event begins with | and ends with |", "|---|---|"]
    for room, names in events(text).items():
        lines.append(f"| `{room}.` | {', '.join(f'[{name}](#{room}.{name})' for name in names)} |")
    return "\n".join([*lines, END])


def replaced(text: str) -> str:
    """Return the page's text with the index as it should be."""
    return text.partition(BEGIN)[0] + index(text) + text.partition(END)[2]


def anchored(text: str) -> str:
    """Return the text with an anchor for each event of the tables."""

    def with_anchors(row: re.Match[str]) -> str:
        return row[1] + _EVENT.sub(r'<a id="\1.\2"></a>`\1.\2`', row[2])

    return _EVENT_CELL.sub(with_anchors, text)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
