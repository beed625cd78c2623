"""The grid's figures for Prometheus: samples from the reports of the cells, and the small server that exports them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from quaestor.cli import cluster_status, main
from quaestor.cli.cluster_metrics import FAMILIES, exposition
from quaestor.cli.cluster_status import ClusterStatus
from quaestor.cli.cluster_totals import pipelines, tenants
from quaestor.errors import ConfigurationError
from quaestor.event_layer import codec, streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, CellStats, PipelineStats, TenantStats, encode_stats
from quaestor.model import Cell, GridShape, Heartbeat
from quaestor.observability.metrics_server import MetricsServer
from quaestor.observability.vocabularies import MOST_NAMES, OTHER
from quaestor.realtime import stats as standing_stats
from quaestor.realtime.stats import StageStats, encode_stage_stats

NOW_MS = 1_700_000_000_000
SHAPE = GridShape(query_partitions=1, write_partitions=2)
STATS = CellStats(
    cell=SHAPE.cells[0], shape=SHAPE, at_ms=NOW_MS - 400, queries=7, registrations=9, bytes=5_000, writes=100, tried=50,
    failed=1, evicted=2, writes_per_s=12.5, tried_per_write=0.5, lag_p50_ms=3.0, lag_p99_ms=8.0, rss_bytes=1 << 20,
    tenants=(TenantStats(tenant="shop", registrations=9, bytes=5_000, tried_per_s=4.0),),
    pipelines=(
        PipelineStats(pipeline="q0", entries=500, bytes=3_000, lag_ms=0),
        PipelineStats(pipeline="w0", entries=20, bytes=7_500, lag_ms=40),
        PipelineStats(pipeline="n", entries=3, bytes=300, lag_ms=UNKNOWN_LAG),
    ),
    pipeline_max_entries=1_000, pipeline_max_bytes=10_000,
)  # fmt: skip
SECOND = replace(
    STATS,
    cell=SHAPE.cells[1],
    at_ms=NOW_MS - 100,
    lag_p50_ms=-1.0,
    lag_p99_ms=-1.0,
    pipelines=(PipelineStats(pipeline="q0", entries=510, bytes=3_100, lag_ms=70),),
)

STAGE = StageStats(
    query_partition=0, shape=SHAPE, at_ms=NOW_MS - 300, queries=4, subscriptions=6, bytes=2_000_000, behind=1, renewals=3,
    matched=1_000, refused=2, matched_per_s=25.0, lag_ms=90,
)  # fmt: skip


@pytest.fixture
def status() -> ClusterStatus:
    """Status of two cells that reported figures, one of them heard lately, and of a stage."""
    layer = MemoryEventLayer(clock=lambda: NOW_MS - 10)
    for stats in (STATS, SECOND):
        layer.put(streams.stats("d", stats.cell), encode_stats(stats))
    beat = Heartbeat(
        cell=STATS.cell, shape=SHAPE, at_ms=NOW_MS, fresh_as_of_ms=NOW_MS - 200, watermark=7, registrations=9, writes=5
    )
    layer.append(streams.heartbeats("d"), [codec.encode_notification(beat)])
    layer.put(streams.stage_stats("d", 0), encode_stage_stats(STAGE))
    return cluster_status.look(layer, "d", now_ms=NOW_MS)


def sampled(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and label values, checked against the declared labels."""
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = FAMILIES[sample.name][1]
            assert sample.labels.keys() == set(labels), sample.name
            samples[sample.name, tuple(sample.labels[label] for label in labels)] = sample.value
    return samples


def test_every_figure_is_in_the_text(status: ClusterStatus) -> None:
    samples = sampled(exposition(status, staleness_bound_ms=2_000))
    assert {name for name, _ in samples} == FAMILIES.keys() - {"quaestor_cell_restarts"}, "no process was announced"
    assert samples["quaestor_grid_up", ()] == 1
    assert (samples["quaestor_grid_cells", ()], samples["quaestor_grid_cells_ready", ()]) == (2, 1)
    assert samples["quaestor_cell_lag_ms", ("0", "0")] == 200
    assert ("quaestor_cell_lag_ms", ("0", "1")) not in samples, "silent"
    assert samples["quaestor_cell_writes_total", ("0", "1")] == 100
    assert samples["quaestor_cell_write_latency_ms", ("0", "0", "0.99")] == 8
    assert ("quaestor_cell_write_latency_ms", ("0", "1", "0.99")) not in samples, "nothing was written"
    assert samples["quaestor_pipeline_entries", ("q0",)] == 510, "as who looked last says"
    assert samples["quaestor_pipeline_lag_ms", ("q0",)] == 70
    assert ("quaestor_pipeline_lag_ms", ("n",)) not in samples
    assert samples["quaestor_pipeline_max_bytes", ("w0",)] == 10_000
    assert samples["quaestor_stage_queries", ("0",)] == 4
    assert samples["quaestor_stage_matched_total", ("0",)] == 1_000
    assert samples["quaestor_stage_lag_ms", ("0",)] == 90
    assert samples["quaestor_stage_silence_ms", ("0",)] >= 300
    assert samples["quaestor_tenant_registrations", ("shop",)] == 9, "both rows hold the same ones"
    assert samples["quaestor_tenant_bytes", ("shop",)] == 10_000


def test_a_grid_that_nobody_has_heard_of_is_no_error() -> None:
    nothing = ClusterStatus(deployment="d", at_ms=NOW_MS, shape=None, cells=())
    assert sampled(exposition(nothing, staleness_bound_ms=2_000)) == {("quaestor_grid_up", ()): 1}


def test_status_shows_the_stages_of_subscribed_queries(status: ClusterStatus) -> None:
    lines = [line.split() for line in cluster_status.text(status).splitlines()]
    assert ["0", "running", "90", "4", "6", "1", "25", "3", "2", "2.0"] in lines


def test_a_stage_that_has_heard_of_no_cell_has_no_lag_and_one_that_is_quiet_is_silent() -> None:
    layer = MemoryEventLayer(clock=lambda: NOW_MS - 10)
    layer.put(streams.stats("d", STATS.cell), encode_stats(STATS))
    quiet = replace(STAGE, at_ms=NOW_MS - 2 * cluster_status.WINDOW_MS, lag_ms=standing_stats.UNKNOWN_LAG)
    layer.put(streams.stage_stats("d", 0), encode_stage_stats(quiet))
    status = cluster_status.look(layer, "d", now_ms=NOW_MS)
    lines = [line.split() for line in cluster_status.text(status).splitlines()]
    assert ["0", "silent", "4", "6", "1", "25", "3", "2", "2.0"] in lines
    assert '"lag_ms": null, "queries": 4' in cluster_status.to_json(status)
    assert ("quaestor_stage_lag_ms", ("0",)) not in sampled(exposition(status, staleness_bound_ms=2_000))


def test_status_shows_the_pipelines_in_a_third_table(status: ClusterStatus) -> None:
    lines = [line.split() for line in cluster_status.text(status).splitlines()]
    assert lines[-4:] == [
        ["pipeline", "entries", "MB", "of", "its", "bound", "lag", "ms"],
        ["writes", "0", "20", "0.0", "75.0%", "40"],
        ["queries", "0", "510", "0.0", "51.0%", "70"],
        ["notifications", "3", "0.0", "3.0%"],
    ]


def test_pipelines_are_shown_once_and_in_the_order_of_the_data() -> None:
    names = ("t", "n", "q10", "q2", "w1", "h", "m0", "r0")
    sizes = tuple(PipelineStats(pipeline=name, entries=1, bytes=1, lag_ms=0) for name in names)
    sizes_shown = pipelines([replace(STATS, pipelines=sizes), replace(SECOND, pipelines=sizes)])
    assert [pipeline.size.pipeline for pipeline in sizes_shown] == ["w1", "q2", "q10", "m0", "r0", "n", "h", "t"]


def test_however_many_tenants_there_are_their_names_are_bounded() -> None:
    def of(number: int) -> CellStats:
        some = (
            TenantStats(tenant=f"t{number}", registrations=1, bytes=number, tried_per_s=0.5),
            TenantStats(tenant="x" * 10_000, registrations=1, bytes=1, tried_per_s=0.5),
            TenantStats(tenant="a\nb", registrations=1, bytes=1, tried_per_s=0.5),
        )
        return replace(STATS, cell=Cell(query_partition=number, write_partition=0), tenants=some)

    tenants_shown = tenants(map(of, range(1, 301)))
    assert len(tenants_shown) == MOST_NAMES
    assert [usage.tenant for usage in tenants_shown[:2]] == ["t300", "t299"]
    assert tenants_shown[-1].tenant == OTHER
    assert sum(usage.bytes for usage in tenants_shown) == sum(range(1, 301)) + 600
    assert all(usage.tenant.isprintable() and len(usage.tenant) <= 64 for usage in tenants_shown)


# The server


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Gauge("quaestor_answer", "to everything", registry=registry).set(42)
    with MetricsServer(registry, host="127.0.0.1", port=0) as server:
        server.start()
        yield server


def test_metrics_are_served_and_nothing_else(server: MetricsServer) -> None:
    answer = httpx.get(server.url)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "quaestor_answer 42.0" in answer.text
    assert httpx.get(f"{server.url}/more").status_code == 404
    assert httpx.post(server.url).status_code == 501


def test_clients_that_say_nothing_are_bounded_and_keep_nobody_out_for_ever(server: MetricsServer) -> None:
    """Eight may dawdle; the ninth is hung up on, and when they have gone everybody is welcome again."""
    place = ("127.0.0.1", int(server.url.rsplit(":")[-1].partition("/")[0]))
    idle = [socket.create_connection(place) for _ in range(8)]
    with socket.create_connection(place) as ninth:
        ninth.settimeout(10)
        assert ninth.recv(1) == b""
    for connection in idle:
        connection.settimeout(10)
        assert connection.recv(1) == b"", "hung up on when it had said nothing for a while"
        connection.close()
    assert httpx.get(server.url).status_code == 200


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 65_536), ("no.such.host.invalid", 0)])
def test_where_nobody_can_listen_is_said_in_one_sentence(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError) as raised:
        MetricsServer(CollectorRegistry(), host=host, port=port)
    assert "\n" not in str(raised.value)
    assert str(port) in str(raised.value)


def test_a_grid_whose_port_is_taken_is_not_started(
    server: MetricsServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the grid was started")

    monkeypatch.setattr("quaestor.cli.grid_run.run_grid", never)
    port = server.url.rsplit(":")[-1].partition("/")[0]
    with pytest.raises(SystemExit) as ended:
        main.main([
            "cluster", "--master", "local[9,8]", "--mongo-url", "mongodb://127.0.0.1:1", "--redis-url",
            "redis://127.0.0.1:1", "--metrics-port", port,
        ])  # fmt: skip
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 1
    assert port in output
    assert "--metrics-port" in output


def test_two_forms_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["cluster", "status", "--json", "--prometheus", "--redis-url", "redis://127.0.0.1:1"])
    assert ended.value.code == 2
    assert "choose one" in capsys.readouterr().err
