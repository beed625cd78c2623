"""The benchmark of query caching, small: real servers, real distance, and every answer is accounted for."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import quaestor_fig58
from benchmarks.query_caching import load, setups
from benchmarks.query_caching.mix import everything
from benchmarks.query_caching.prediction import Step
from quaestor.demo import servers
from tests.end_to_end.varnish_site import needs_varnish

STEPS = [Step("4", 4, 0.5, 1.0), Step("8", 8, 0.5, 1.0)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the distance, and only the most popular things are warm."""
    monkeypatch.setattr(setups, "ORIGIN_MS", 30.0)
    monkeypatch.setattr(setups, "CDN_MS", 4.0)
    popular = [one for one in everything() if one.key < 5]
    monkeypatch.setattr(load, "everything", lambda: popular)


def accounted(rows: list[dict[str, Any]]) -> None:
    """Every answer is in one bucket and of one layer, none failed, and each phase has a prediction."""
    for one in rows:
        assert one["failed"] == 0
        assert sum(one["histogram_ms"].values()) == one["count"]
        assert sum(one["layers"].values()) == pytest.approx(1.0, abs=0.001)
        assert sum(one["simulator"]["layers"].values()) == pytest.approx(1.0, abs=0.001)
        assert set(one["cores_used"]) >= {"clients", "app", "proxies", "mongod"}


@needs_varnish
def test_set_ups_answer_from_where_they_should_and_are_predicted() -> None:
    """Uncached: the database alone, never stale. With a CDN: mostly that, nothing from clients, which keep nothing."""
    with servers.running(servers.mongod_server, "mongod") as mongod:
        times, uncached = quaestor_fig58.one_setup(mongod, "uncached", STEPS, grid=False, delta_s=10)
        cdn_times, cdn = quaestor_fig58.one_setup(mongod, "CDN", STEPS, grid=False, delta_s=10)
    accounted([*uncached, *cdn])
    assert times.database_ms[0] >= setups.ORIGIN_MS
    assert [one["layers"]["database"] for one in uncached] == [1.0, 1.0]
    assert [one["stale"] for one in uncached] == [0.0, 0.0]
    assert cdn_times.cdn_ms is not None
    assert cdn_times.app_ms is not None
    assert setups.CDN_MS <= cdn_times.cdn_ms[0] < cdn_times.app_ms[0]
    assert cdn[1]["layers"]["cdn"] > 0
    assert [one["layers"]["browser"] for one in cdn] == [0.0, 0.0]


@needs_varnish
@pytest.mark.slow
def test_clients_that_keep_copies_answer_themselves_beside_a_grid() -> None:
    """All layers answer, and no part is forgotten."""
    with servers.running(servers.mongod_server, "mongod") as mongod:
        times, full = quaestor_fig58.one_setup(mongod, "full", STEPS, grid=True, delta_s=10)
    accounted(full)
    assert times.memory_ms is not None
    assert full[1]["layers"]["browser"] > 0
    assert full[1]["layers"]["cdn"] > 0
    assert set(full[0]["cores_used"]) >= {"varnish", "valkey", "grid"}
