"""Lists of fields in docstrings, as lists of the documentation site: lines that begin with `name: text`."""

from __future__ import annotations

import re
from typing import Any

import griffe

_FIELD = re.compile(r"^(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): (?P<text>\S.*)$")


class Fields(griffe.Extension):
    """Rewriter of every docstring before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Make list items of the fields."""
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """The docstring with its fields as a Markdown list; continuation lines belong to their field."""
    lines: list[str] = []
    within = False
    for line in text.splitlines():
        found = _FIELD.match(line)
        if found:
            if not within:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in found["names"].split(", "))
            lines.append(f"- {names}: {found['text']}")
            within = True
        else:
            within = within and line.startswith("    ")
            lines.append(line)
    return "\n".join(lines)
