"""Benchmark of continuous queries at a tiny size: its figures agree with each other, and its plots are drawn from a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tapestry
from quaestor.continuous.executors.duckdb import DuckDbExecutor

pytest.importorskip("matplotlib")


def test_figures_of_a_tiny_history_and_their_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is new in a run over all messages, so it has the rows of the full query; the copy gives the same rows."""
    monkeypatch.setattr(tapestry, "QUERIES", {"Q3": tapestry.QUERIES["Q3"].replace("comp.databases", "talk.topic1")})
    monkeypatch.setattr(tapestry, "FIGURE_7", (1.0, 0.1))
    monkeypatch.setattr(tapestry, "FIGURE_8_NEW", 50)
    with tapestry.messages_in(tmp_path / "messages", 2_000) as messages, DuckDbExecutor(threads=1) as executor:
        monkeypatch.setitem(tapestry.QUERIES, "Q1", "SELECT msgid FROM msgs WHERE newsgroup = 'talk.topic1'")
        bench = tapestry.Bench(messages, executor, repeats=1)
        result = bench.result()
    figures = result["queries"]["Q3"]
    counts = [figures[name]["rows"] for name in ("full", "full_kept")]
    assert counts == [figures["single"][0]["rows"]] * 2
    assert counts[0] > 5
    assert figures["full"]["rows_read"] == 2_000
    assert figures["full"]["bytes_read"] > 2_000
    assert [point["messages"] for point in result["figure_8"]] == list(range(200, 2_001, 200))
    path = tmp_path / "plot.svg"
    tapestry.draw(path, result)
    assert "<svg" in path.read_text()
