"""The lines of `quaestor status`."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.admin.status_text import text


@pytest.mark.parametrize(
    ("serving", "lagging", "said"),
    [
        (True, [], "yes"),
        (True, [1, 3], "yes, except answers that query partition 1, 3 guards: it lags"),
        (False, [0], "no: everything goes to the handlers"),
        (False, [], "no: everything goes to the handlers"),
    ],
)
def test_omitted_parts_are_named(serving: bool, lagging: list[int], said: str) -> None:
    status: dict[str, Any] = {
        "serving": serving, "lagging": lagging, "mode": "embedded", "deployment": "d", "grid": None, "counts": {},
        "registered_urls": 0,
    }  # fmt: skip
    first = text(status).splitlines()[0]
    assert first.split("  ", 1)[1].strip() == said


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("none", "RFC 9111 only, no MongoDB is watched"),
        ("embedded", "embedded: this process runs the matching for itself"),
        ("elected", "elected: the app process shop-1:77 runs the matching for all"),
        ("grid", "grid: quaestor grid or quaestor cluster runs the matching"),
        ("nobody", "nobody runs the matching"),
        ("unknown", "unknown: Redis does not answer"),
    ],
)
def test_each_mode_is_a_sentence(mode: str, sentence: str) -> None:
    status: dict[str, Any] = {
        "serving": True, "lagging": [], "mode": mode, "leader": "shop-1:77" if mode == "elected" else None, "deployment": "d",
        "grid": None, "counts": {}, "registered_urls": 0,
    }  # fmt: skip
    (line,) = [line for line in text(status).splitlines() if line.startswith("mode ")]
    assert line.removeprefix("mode").strip() == sentence


def test_an_entry_in_memory_has_an_average_size() -> None:
    """Of this process's memory alone: what Redis uses is more than entries."""
    status: dict[str, Any] = {
        "serving": True, "lagging": [], "mode": "embedded", "deployment": "d", "grid": None, "registered_urls": 0,
        "counts": {"store_bytes": {"memory": 9_000, "redis": 50_000}, "store_entries": {"memory": 4, "redis": 5}},
    }  # fmt: skip
    assert text(status).splitlines()[-1].split() == ["bytes", "per", "entry", "memory", "2,250"]
    status["counts"]["store_entries"]["memory"] = 0
    assert "per entry" not in text(status)


def test_continuous_queries_have_a_line_where_they_run() -> None:
    """The line shows the factor of the periods while load stretches them."""
    counts = {
        "continuous_queries": {"active": 3.0, "quarantined": 1.0, "paused": 0.0}, "continuous_lag_seconds": {"all": 0.25},
        "continuous_runs": {"published": 1_200.0, "failed": 5.0}, "continuous_stretch": {"all": 4.0},
    }  # fmt: skip
    status: dict[str, Any] = {
        "serving": True, "lagging": [], "mode": "grid", "deployment": "d", "grid": None, "counts": counts, "registered_urls": 0,
    }  # fmt: skip
    (line,) = [line for line in text(status).splitlines() if line.startswith("continuous queries")]
    shown = "3 active, 1 quarantined; 1,200 runs, 5 failed; the latest run began 0.2 s late"
    assert line.split("  ", 1)[1].strip() == f"{shown}; periods are stretched up to 4 times"
    counts["continuous_stretch"] = {"all": 1.0}
    assert text(status).count(shown) == 1
    assert "stretched" not in text(status)
    counts["continuous_queries"] = {"active": 0.0}
    assert "continuous" not in text(status)


def test_channels_have_a_line_where_they_run() -> None:
    counts = {
        "channels": {"all": 2.0}, "channel_runs": {"published": 1_200.0, "failed": 3.0}, "channel_rows": {"all": 40.0},
        "channel_lag_seconds": {"all": 0.25},
    }  # fmt: skip
    status: dict[str, Any] = {
        "serving": True, "lagging": [], "mode": "grid", "deployment": "d", "grid": None, "counts": counts, "registered_urls": 0,
    }  # fmt: skip
    (line,) = [line for line in text(status).splitlines() if line.startswith("channels")]
    assert line.split("  ", 1)[1].strip() == "2; 1,200 runs, 3 failed, 40 results; the latest run began 0.2 s late"
    counts["channel_brokers_down"] = {"all": 2.0}
    assert "0.2 s late; 2 brokers are down" in text(status)
    status["counts"] = {"channels": {"all": 0.0}}
    assert "channels" not in text(status)
