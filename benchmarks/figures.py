"""Published figures from the result files: five rows and a chart for README.md, and all of docs/performance.md.

Run: python -m benchmarks.figures (writes the three files); --check only compares, and exits with 1 if a file differs.
A result that was measured on a changed tree is refused, because nobody could measure it again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figure_rows import chart, grid, guarantees, headlines, live, serving, standing
from benchmarks.figure_rows.results import FiguresError, Row

ROOT: Final = Path(__file__).parent.parent
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs/performance.md"
CHART: Final = ROOT / "docs/images/hits.svg"
CHART_TITLE: Final = "Cache hits per second: 100 objects, one worker, 32 connections"
BEGIN: Final = "<!-- figures: written by `make figures` -->"
END: Final = "<!-- /figures -->"

SECTIONS: Final[Mapping[str, Sequence[Callable[[], list[Row]]]]] = {
    "Requests": (serving.requests, serving.idle, serving.imports),
    "From a write to its effects": (grid.latency, grid.bursts, guarantees.purges),
    "Exactness and faults": (guarantees.exactness,),
    "Matching": (grid.matching, grid.sustained, grid.cells),
    "Clients and CDNs": (serving.clients, serving.distance, guarantees.lifetimes, serving.lists),
    "Live queries": (live.sockets, live.followed),
    "Continuous queries and channels": (standing.continuous, standing.channels),
}
INTRODUCTION: Final = """# Performance

Each row names its condition, and puts an unfavourable figure of the same run beside the favourable one. Measure a row again:

```bash
make bench BENCHMARKS=http_peers
make figures
```

All parts ran on one machine with two shared cores. Each file in `benchmarks/results/` names its commit, machine and
versions. Peers run in the versions that `benchmarks/peers/http/` pins. `make figures` writes this page and README's
five figures from these files, and a test compares them. A figure that missed its aim stands beside the aim.

![Bar chart of cache hits per second](images/hits.svg)
"""


def table(heads: Row, rows: Sequence[Row]) -> str:
    """A table in Markdown."""
    return "\n".join([" | ".join(heads), "|".join("---" for _ in heads), *(" | ".join(cells) for cells in rows)])


def readme(text: str) -> str:
    """README's text with its five figures. Raises FiguresError if a mark is missing."""
    before, mark, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not mark or not closed:
        raise FiguresError(f"README.md has no {BEGIN if not mark else END}")
    figures = table(("on two shared cores", "measured", "unfavourable twin"), headlines.rows())
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


def page() -> str:
    """The whole of docs/performance.md."""
    sections = [
        f"## {title}\n\n"
        + table(("what, on what condition", "measured", "beside it"), [row for rows in group for row in rows()])
        for title, group in SECTIONS.items()
    ]
    return "\n".join([INTRODUCTION, "\n\n".join(sections), ""])


def written() -> dict[Path, str]:
    """Every generated file with its contents."""
    return {
        README: readme(README.read_text()),
        PAGE: page(),
        CHART: chart.svg(CHART_TITLE, headlines.bars()),
    }


def main() -> None:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    arguments = parser.parse_args()
    try:
        files = written()
    except FiguresError as error:
        sys.exit(str(error))
    for path, text in files.items():
        if path.exists() and path.read_text() == text:
            continue
        if arguments.check:
            sys.exit(f"{path.relative_to(ROOT)} differs from the result files; run: make figures")
        path.write_text(text)


if __name__ == "__main__":
    main()
