"""Bar chart as SVG: legible on light and dark pages, no fonts, scripts or files of others."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.figure_rows.results import count

WIDTH, BAR_HEIGHT, GAP, LABEL_WIDTH, FIGURE_WIDTH, TOP = 640, 26, 10, 150, 90, 36
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#24292f}.ours{fill:#0a7d5a}.other{fill:#8c959f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ours{fill:#2ea67a}}"
)


def svg(title: str, bars: Sequence[tuple[str, float]]) -> str:
    """The chart. The first bar is ours; lengths are proportional to the figures, from zero."""
    height = TOP + len(bars) * (BAR_HEIGHT + GAP)
    longest = max(figure for _, figure in bars)
    spoken = f"{title}: " + ", ".join(f"{label} {count(figure)}" for label, figure in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'aria-label="{escape(spoken)}">',
        f"<style>{STYLE}</style>",
        f'<text x="0" y="18">{escape(title)}</text>',
    ]
    for number, (label, figure) in enumerate(bars):
        top = TOP + number * (BAR_HEIGHT + GAP)
        length = (WIDTH - LABEL_WIDTH - FIGURE_WIDTH) * figure / longest
        lines += [
            f'<text x="{LABEL_WIDTH - 10}" y="{top + 18}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{"other" if number else "ours"}" x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" '
            f'height="{BAR_HEIGHT}" rx="3"/>',
            f'<text x="{LABEL_WIDTH + length + 8:.1f}" y="{top + 18}">{count(figure)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
