"""README's size and shape, and its figures: as short as promised, and as the scripts generate them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.figure_rows import headlines
from benchmarks.figure_rows.results import count
from tests.docs.blocks import ROOT

TEXT = (ROOT / "README.md").read_text()
HEADINGS = [
    "Check it",
    "Highlights",
    "What it does not do",
    "Beside what people use today",
    "Figures",
    "Two commands",
    "Picture",
    "Links",
]


def test_readme_has_at_most_700_words() -> None:
    """Code, tables and links included."""
    assert len(TEXT.split()) <= 700


def test_the_first_code_begins_within_100_words() -> None:
    """The chart and all other text before it included."""
    before, fence, _ = TEXT.partition("```python\n")
    assert fence
    assert len(before.split()) <= 100


def test_the_first_screen_warns_of_background_runs_and_names_the_switch() -> None:
    """Before any other heading than the title."""
    screen = TEXT.partition("\n## ")[0]
    assert "run again in the background" in screen
    assert "`Quaestor(verification=False, early_refresh=0)`" in screen


def test_readme_has_its_parts_in_order() -> None:
    """Six highlights, eight caches, five figures, and each figure with an unfavourable twin."""
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == HEADINGS
    parts = dict(zip(HEADINGS, re.split(r"^## .+$", TEXT, flags=re.MULTILINE)[1:], strict=True))
    assert parts["Highlights"].count("\n- **") == 6
    caches = re.findall(r"^[^|\n]+(?: \| [^|\n]+){4}$", parts["Beside what people use today"], re.MULTILINE)[1:]
    assert len(caches) == 8
    rows = headlines.rows()
    assert len(rows) == 5
    assert all(condition and figure and twin for condition, figure, twin in rows)
    assert all(" | ".join(row) in parts["Figures"] for row in rows)


def test_readme_shows_the_three_steps_up() -> None:
    """Nothing besides, Redis, a grid: each with what the user writes."""
    _, _, steps = TEXT.partition("- **Scalable.** ")
    assert re.findall("`(.+?)`", steps.partition("\n\n")[0]) == [
        "Quaestor()", "--workers", "REDIS_URL", "Quaestor.from_env()", "quaestor grid", "quaestor cluster"
    ]  # fmt: skip


@pytest.mark.parametrize("path", [figures.README, figures.PAGE, figures.CHART], ids=lambda path: path.name)
def test_figures_are_those_of_the_result_files(path: Path) -> None:
    """`make figures` writes them."""
    assert figures.written()[path] == path.read_text()


def test_the_chart_has_four_bars_in_proportion() -> None:
    """Ours, the bare app and the two fastest peers; lengths from zero."""
    bars = headlines.bars()
    image = ET.fromstring(figures.CHART.read_text())
    space = "{http://www.w3.org/2000/svg}"
    lengths = [float(bar.attrib["width"]) for bar in image.iter(f"{space}rect")]
    labels = {label.text for label in image.iter(f"{space}text")}
    assert len(bars) == len(lengths) == 4
    longest = max(figure for _, figure in bars)
    assert [length / max(lengths) for length in lengths] == pytest.approx(
        [figure / longest for _, figure in bars], abs=0.001
    )
    assert {text for label, figure in bars for text in (label, count(figure))} <= labels
    assert [label for label, _ in bars[:2]] == ["Quaestor", "bare ASGI app"]
