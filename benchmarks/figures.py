"""Table of figures in README.md, from the result files: headlines with their conditions, figures beside their unfavourable twins.

Run: python -m benchmarks.figures (writes the table between its two marks); --check only compares, and exits with 1 if README
says anything else. A result that was measured on a tree with changes is refused: nobody could measure it again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figure_rows import grid, guarantees, serving
from benchmarks.figure_rows.results import FiguresError, Row

README: Final = Path(__file__).parent.parent / "README.md"
BEGIN: Final = "<!-- figures: written by `make figures` -->"
END: Final = "<!-- /figures -->"

ROWS: Final[Sequence[Callable[[], list[Row]]]] = (
    serving.requests,
    grid.latency,
    grid.matching,
    grid.sustained,
    grid.cells,
    guarantees.exactness,
    guarantees.purges,
    serving.clients,
    serving.distance,
    guarantees.lifetimes,
    serving.lists,
)


def table() -> str:
    """The table in Markdown, between its marks."""
    lines = [BEGIN, "| what, on what condition | measured | beside it in the same run |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for rows in ROWS for row in rows()]
    return "\n".join([*lines, END])


def replaced(text: str) -> str:
    """README's text with the table as it should be. Raises FiguresError if a mark is missing."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise FiguresError(f"README.md has no {BEGIN if not found else END}")
    return before + table() + after


def main() -> None:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if README says anything else")
    arguments = parser.parse_args()
    try:
        text = README.read_text()
        wanted = replaced(text)
    except FiguresError as error:
        sys.exit(str(error))
    if wanted == text:
        return
    if arguments.check:
        sys.exit("README.md's table of figures is not what the result files say; run: make figures")
    README.write_text(wanted)


if __name__ == "__main__":
    main()
