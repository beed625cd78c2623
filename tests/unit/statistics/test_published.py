"""The newest windows in the event layer: bounded, the same however often they are written, readable without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from quaestor.errors import ConfigurationError
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.statistics import command, published, reader
from quaestor.statistics.options import StatisticsOptions
from quaestor.statistics.published import MOST_ITEMS, MOST_WINDOWS
from quaestor.statistics.rows import MEASURES
from tests.unit.statistics.feed import WALL_MS


def row(start_s: int, scope: str, name: str, *, length_s: int = 10, top: int = 0, **measures: int) -> dict[str, Any]:
    return {
        "start": datetime.fromtimestamp(start_s, UTC),
        "window_s": length_s,
        "scope": scope,
        "name": name,
        "top": [{"item": f"k{n}", "count": 100 - n} for n in range(top)],
        **dict.fromkeys(MEASURES, 0),
        **measures,
    }


def put(layer: MemoryEventLayer, *rows: dict[str, Any]) -> published.Windows:
    published.put(layer, "d", rows, length_s=10, now_ms=WALL_MS)
    return published.get(layer, "d", 10)


def test_windows_are_kept_by_start_and_the_oldest_give_way() -> None:
    layer = MemoryEventLayer()
    for number in range(MOST_WINDOWS + 5):
        published_windows = put(layer, row(number * 10, "collection", "a.b", update=number))
    assert list(published_windows.by_start) == [number * 10_000 for number in range(5, MOST_WINDOWS + 5)]
    (newest,) = published_windows.by_start[(MOST_WINDOWS + 4) * 10_000]
    assert newest.measures == {"update": MOST_WINDOWS + 4}


def test_a_repeated_batch_changes_nothing() -> None:
    layer = MemoryEventLayer()
    rows = [row(10, "collection", "a.b", update=3, top=50), row(10, "query", "q", hit=2)]
    first = put(layer, *rows)
    assert put(layer, *rows) == first
    assert len(first.by_start[10_000][0].top) == MOST_ITEMS


def test_rows_of_another_length_are_not_mixed_in() -> None:
    assert put(MemoryEventLayer(), row(10, "collection", "a.b", length_s=60, update=1)).by_start == {}


@pytest.mark.parametrize("value", [b"nonsense", b"\x05\x00\x00\x00\x00"])
def test_a_value_that_is_not_understood_shows_nothing(value: bytes) -> None:
    layer = MemoryEventLayer()
    layer.put(published.value_name("d", 10), value)
    assert published.get(layer, "d", 10).by_start == {}


def test_rates_are_shown_for_people_and_as_json() -> None:
    layer = MemoryEventLayer()
    put(
        layer,
        row(10, "collection", "a.b\nx", update=25, top=2),
        row(10, "query", "q1", change=5, hit=10),
        row(10, "deployment", "", tick=4),
    )
    newest = reader.newest(layer, "d", [10, 60])
    text = reader.text(newest, "d")
    assert "collection a.b x: update 2.5/s   most: k0 x100, k1 x99" in text
    assert "query q1: change 0.5/s  hit 1.0/s" in text
    assert "no window of 60 s yet" in text
    (ten, sixty) = json.loads(reader.to_json(newest))
    assert ten["windows"][0]["rows"][1] == {
        "scope": "query",
        "name": "q1",
        "counts": {"change": 5, "hit": 10},
        "top": [],
    }
    assert sixty["windows"] == []


def test_reading_needs_neither_spark_nor_arrow() -> None:
    code = "import sys, quaestor.statistics.reader as r; print(sorted(m for m in ('pyspark', 'pyarrow') if m in sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"windows_s": ()}, "windows_s"),
        ({"windows_s": (0,)}, "0 s"),
        ({"trigger_s": 0}, "trigger_s"),
        ({"lateness_s": -1}, "lateness_s"),
        ({"top": 10, "tracked": 5}, "tracked"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path: Any, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        StatisticsOptions(redis_url="redis://x", deployment="d", directory=tmp_path, **wrong)


def test_window_lengths_are_numbers() -> None:
    assert command.lengths("60,10,10") == (10, 60)
    with pytest.raises(ConfigurationError, match="10,60"):
        command.lengths("a minute")
