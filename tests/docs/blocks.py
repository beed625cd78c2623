"""Code blocks of the documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *(f"docs/{named.name}" for named in (ROOT / "docs").glob("*.md")),
    *(f"docs/cdn/{named.name}" for named in (ROOT / "docs" / "cdn").glob("*.md")),
)
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    number: among the blocks of its language in its document, from 1.
    """

    document: str
    language: str
    number: int
    text: str

    @property
    def name(self) -> str:
        """For a test's id."""
        return f"{self.document}-{self.language or 'unlabelled'}-{self.number}"


def blocks() -> list[Block]:
    """Every block of every document."""
    results: list[Block] = []
    for document in sorted(DOCUMENTS):
        numbers: dict[str, int] = {}
        for block in _BLOCK.finditer((ROOT / document).read_text()):
            language = block["language"]
            numbers[language] = numbers.get(language, 0) + 1
            results.append(Block(document, language, numbers[language], block["text"]))
    return results
