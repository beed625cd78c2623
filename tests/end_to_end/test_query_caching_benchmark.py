"""The benchmark of query caching, small: real servers, real distance, and every answer is accounted for."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from benchmarks import harness, quaestor_fig58
from benchmarks.query_caching import load, network, service_times, setups
from benchmarks.query_caching.app import APP
from benchmarks.query_caching.mix import everything
from benchmarks.query_caching.prediction import Step
from quaestor.testing import servers
from tests.end_to_end.varnish_site import needs_varnish
from tests.support import PATIENT

STEPS = [Step("4", 4, 0.2, 1.3), Step("8", 8, 0.2, 1.3)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the distance; only the most popular things are warm; a machine that stands still does not bypass the cache."""
    monkeypatch.setattr(setups, "ORIGIN_MS", 30.0)
    monkeypatch.setattr(setups, "CDN_MS", 4.0)
    popular = [write for write in everything() if write.key < 5]
    monkeypatch.setattr(load, "everything", lambda: popular)
    for name, value in PATIENT.items():
        monkeypatch.setenv(f"QUAESTOR_{name.upper()}", str(value))


def accounted(rows: list[dict[str, Any]]) -> None:
    """Every answer is in one bucket and of one layer, none failed, and each phase has a prediction."""
    for row in rows:
        assert row["failed"] == 0
        assert sum(row["histogram_ms"].values()) == row["count"]
        assert sum(row["layers"].values()) == pytest.approx(1.0, abs=0.001)
        assert sum(row["simulator"]["layers"].values()) == pytest.approx(1.0, abs=0.001)
        assert set(row["cores_used"]) >= {"clients", "app", "proxies", "mongod"}


@needs_varnish
@pytest.mark.slow
def test_set_ups_answer_from_where_they_should_and_are_predicted() -> None:
    """Uncached: the database alone, never stale. With a CDN: mostly that, nothing from clients, which keep nothing."""
    with servers.running(servers.mongod_server, "mongod") as mongod:
        times, uncached = quaestor_fig58.one_setup(mongod, "uncached", STEPS, grid=False, delta_s=10)
        cdn_times, cdn = quaestor_fig58.one_setup(mongod, "CDN", STEPS, grid=False, delta_s=10)
    accounted([*uncached, *cdn])
    assert times.database_ms[0] >= setups.ORIGIN_MS
    assert [row["layers"]["database"] for row in uncached] == [1.0, 1.0]
    assert [row["stale"] for row in uncached] == [0.0, 0.0]
    assert cdn_times.cdn_ms is not None
    assert cdn_times.app_ms is not None
    assert cdn_times.cdn_ms[0] >= setups.CDN_MS
    assert cdn_times.app_ms[0] >= setups.ORIGIN_MS
    assert cdn[1]["layers"]["cdn"] > 0
    assert [row["layers"]["browser"] for row in cdn] == [0.0, 0.0]


def test_a_failed_measurement_leaves_no_connection_open(mongo_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If service times cannot be measured, the error names the reason, and every connection is closed when it is
    raised.
    """
    connections: weakref.WeakSet[network.Connection] = weakref.WeakSet()

    class Noted(network.Connection):
        def __init__(self) -> None:
            super().__init__()
            connections.add(self)

    async def measure(url: str) -> None:
        with pytest.raises(RuntimeError, match="answered by the layer that is measured"):
            await service_times.of_cached(url, delta_s=None)
        assert connections
        assert not [connection for connection in connections if not connection.lost.is_set()]

    monkeypatch.setattr(network, "Connection", Noted)
    with harness.uvicorn(APP, environment={"MONGO_URL": mongo_url}, path="/openapi.json") as app:
        asyncio.run(measure(app.url))


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
