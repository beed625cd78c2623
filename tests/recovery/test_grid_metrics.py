"""A running grid is scraped over HTTP: what it does is seen in its figures, and when Redis is away that is seen as well."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quaestor.cli import cluster_metrics, cluster_status
from quaestor.settings import Settings
from quaestor.testing import servers
from tests.recovery.cell_harness import DEADLINE_S, Harness

Figures = dict[tuple[str, ...], float]
CELL = ("0", "0")


def scraped(url: str) -> Figures:
    """By name and label values."""
    answer = httpx.get(url, timeout=DEADLINE_S)
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def until_scraped(url: str, expected: Figures) -> Figures:
    """Once the figures are these."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        samples = scraped(url)
        if all(samples.get(name) == value for name, value in expected.items()):
            return samples
        assert time.monotonic() < deadline, {name: samples.get(name) for name in expected}


def test_the_work_of_a_grid_is_seen_in_its_figures(harness: Harness, redis_url: str) -> None:
    settings = Settings(deployment=harness.deployment, redis_url=redis_url, staleness_bound_ms=60_000)
    with cluster_metrics.served(settings, host="127.0.0.1", port=0) as url:
        assert scraped(url) == {("quaestor_grid_up",): 1}
        with harness.cell() as node:
            harness.settled()
            for name in ("jfk", "ewr"):
                harness.register(name, origin=name)
                harness.activated(name)
            for number in range(10):
                harness.write(number, origin="lga")
            expected: Figures = {
                ("quaestor_grid_cells",): 1,
                ("quaestor_grid_cells_ready",): 1,
                ("quaestor_grid_generation",): 0,
                ("quaestor_cell_registrations", *CELL): 2,
                ("quaestor_cell_writes_total", *CELL): 10,
                ("quaestor_pipeline_entries", "q0"): 2,
            }
            samples = until_scraped(url, expected)
            assert [value for name, value in samples.items() if name[0] == "quaestor_tenant_registrations"] == [2]
            assert samples["quaestor_pipeline_entries", "w0"] >= 10
            assert samples["quaestor_pipeline_bytes", "q0"] > 0
            assert samples["quaestor_pipeline_max_entries", "q0"] == Settings().grid.pipeline_max_entries
            assert samples["quaestor_cell_bytes", *CELL] == node.bytes
            assert samples["quaestor_cell_resident_bytes", *CELL] > 1_000_000
            harness.write(11, origin="jfk")
            until_scraped(url, {("quaestor_cell_registrations", *CELL): 1, ("quaestor_cell_writes_total", *CELL): 11})
            text, _ = cluster_status.run(settings, form=cluster_status.text)
            assert "queries 0" in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_an_event_layer_that_is_away_is_seen_and_comes_back(tmp_path: Path) -> None:
    server = servers.redis_server(tmp_path)
    server.start()
    settings = Settings(deployment="d", redis_url=server.url)
    try:
        with cluster_metrics.served(settings, host="127.0.0.1", port=0) as url:
            until_scraped(url, {("quaestor_grid_up",): 1})
            server.stop()
            assert until_scraped(url, {("quaestor_grid_up",): 0}).keys() == {("quaestor_grid_up",)}
            server.start()
            until_scraped(url, {("quaestor_grid_up",): 1})
    finally:
        server.stop()
