"""docs/coverage.md from coverage's JSON report: a row for each room. Run by `make coverage`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[1] / "coverage.md"


def room(path: str) -> str:
    """Return the room of a source file: the folder at the top, or the folder below `quaestor`."""
    top, *below = Path(path).parts
    return f"{top}/{below[0]}" if top == "quaestor" and len(below) > 1 else top


def page(report: dict[str, Any], tests: str, commit: str) -> str:
    """Return the page."""
    statements, missing = Counter[str](), Counter[str]()
    for path, measured in report["files"].items():
        statements[room(path)] += measured["summary"]["num_statements"]
        missing[room(path)] += measured["summary"]["missing_lines"]
    lines = [
        "# Coverage",
        "",
        "Written by `make coverage`, which also writes every line into `htmlcov/`:",
        "",
        "```bash",
        "make coverage",
        "```",
        "",
        f"Lines that these families run in one process: `{tests}`. Lines that run in other processes (servers, grids,",
        "browsers) or in slower families count as missed, so every figure is a lower bound.",
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on commit `{commit}`.",
        "",
        "| room | statements | run |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {statements[name]:,} | {share(statements[name], missing[name])} |" for name in sorted(statements)
    ]
    lines.append(f"| all | {statements.total():,} | {share(statements.total(), missing.total())} |")
    return "\n".join([*lines, ""])


def share(statements: int, missing: int) -> str:
    """Return the share of statements that ran, in percent."""
    return f"{100 * (statements - missing) / statements:.0f} %" if statements else "-"


if __name__ == "__main__":
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    PAGE.write_text(page(json.loads(Path(sys.argv[1]).read_text()), " ".join(sys.argv[2:]), head))
