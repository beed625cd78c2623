"""Parts of the benchmark of query caching: requests, what is called stale, figures, prediction, report, distance."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.query_caching import figures, prediction, report
from benchmarks.query_caching.delaying_proxy import DelayingProxy, DelayLine
from benchmarks.query_caching.load import APP, BROWSER, CDN, DATABASE, Phase, Read, layer_of
from benchmarks.query_caching.mix import RESOURCES, Mix, Request, changed, everything, resource
from benchmarks.query_caching.prediction import Step
from benchmarks.query_caching.service_times import ServiceTimes, latency
from benchmarks.query_caching.staleness import Written
from quaestor.testing.servers import HOST, free_port
from tests.support import eventually

TIMES = ServiceTimes(
    memory_ms=(0.1, 0.01), cdn_ms=(5.0, 0.2), app_ms=(151.0, 1.0), database_ms=(154.0, 2.0), write_ms=170.0, purged_s=0.1,
    memory_cpu_ms=0.2, network_cpu_ms=0.5,
)  # fmt: skip
UPDATE, RECORD, QUERY = (Request(kind, 3, key, 7) for kind, key in (("update", 107), ("record", 107), ("query", 7)))


def record(key: int, n: int = 0) -> dict[str, Any]:
    return {"_id": key, "group": 7, "n": n}


def test_a_connection_asks_for_the_same_again_and_deletes_what_it_inserted() -> None:
    """One seed, one sequence; about 1 % of it writes of three kinds; numbers of what is read and changed exist."""
    first, again, other = ([mix.next() for _ in range(20_000)] for mix in (Mix("a", 1), Mix("a", 1), Mix("a", 2)))
    assert first == again
    assert first != other
    kinds = Counter(request.kind for request in first)
    assert 0.007 < (kinds["update"] + kinds["insert"] + kinds["delete"]) / len(first) < 0.013
    assert abs(kinds["record"] - kinds["query"]) < 1_000
    inserted = [write.key for write in first if write.kind == "insert"]
    deleted = [write.key for write in first if write.kind == "delete"]
    assert deleted == inserted[: len(deleted)]
    assert deleted
    for request in first:
        numbers = [resource(request)] if request.kind in ("record", "query") else changed(request)
        assert all(0 <= number < RESOURCES for number in numbers)


def test_each_resource_has_a_number_of_its_own_and_an_update_changes_record_and_query() -> None:
    assert [resource(request) for request in everything()] == list(range(RESOURCES))
    assert set(changed(UPDATE)) == {resource(RECORD), resource(QUERY)}


def test_an_answer_is_stale_since_the_oldest_update_that_it_does_not_show() -> None:
    """Writes after the request, and writes of other records or collections, do not make an answer stale."""
    written = Written()
    for n, at_s in ((2, 20.0), (1, 10.0), (3, 30.0)):
        written.acknowledged(UPDATE, record(107, n), at_s)
    written.acknowledged(Request("update", 4, 8, 8), record(8, 1), 5.0)
    assert written.stale_s(RECORD, record(107), 25.0, 25.1) == 15.0
    assert written.stale_s(QUERY, [record(8), record(107, 1)], 25.0, 25.1) == 5.0
    assert written.stale_s(RECORD, record(107, 2), 25.0, 25.1) == 0.0
    assert written.stale_s(RECORD, record(107, 2), 40.0, 40.1) == 10.0
    assert written.stale_s(Request("record", 4, 107, 7), record(107), 40.0, 40.1) == 0.0


def test_a_query_is_stale_without_what_was_inserted_and_with_what_was_deleted() -> None:
    """Between the sending of a deletion and its acknowledgement both answers are right."""
    written, new = Written(), Request("insert", 3, 5_000, 7)
    gone = Request("delete", 3, 5_000, 7)
    written.sent(new, 9.0)
    assert written.stale_s(QUERY, [record(107), record(5_000)], 9.5, 9.6) == 0.0
    written.acknowledged(new, record(5_000), 10.0)
    assert written.stale_s(QUERY, [record(107)], 12.0, 12.1) == 2.0
    assert written.stale_s(QUERY, [record(107), record(5_000)], 12.0, 12.1) == 0.0
    written.sent(gone, 13.0)
    assert written.stale_s(QUERY, [record(107)], 12.0, 13.5) == 0.0
    assert written.stale_s(QUERY, [record(107), record(5_000)], 13.2, 13.3) == 0.0
    written.acknowledged(gone, {"deleted": 1}, 14.0)
    assert written.stale_s(QUERY, [record(107), record(5_000)], 17.0, 17.1) == 3.0
    assert written.stale_s(QUERY, [record(107)], 17.0, 17.1) == 0.0
    assert written.count == 2


def test_the_farthest_cache_with_a_hit_is_the_one_that_answered() -> None:
    stored = {"cache-status": "Quaestor; hit, Varnish; fwd=miss; stored", "x-varnish-cache": "miss"}
    assert layer_of(stored) == APP
    assert layer_of(stored | {"x-varnish-cache": "hit"}) == CDN
    assert layer_of({"cache-status": "Quaestor; fwd=uri-miss; stored", "x-varnish-cache": "miss"}) == DATABASE
    assert layer_of({}) == DATABASE


def phase() -> Phase:
    """Ten reads in 2 s: six from memory, two of the CDN (one stale by 3 s), one of the app, one of the database."""
    reads = [Read(float(i), 0.0002, i, 0, BROWSER, 0.0) for i in range(6)]
    reads += [Read(7.0, 0.004, 7, 1, CDN, 0.0), Read(8.0, 0.005, 7, 1, CDN, 3.0)]
    reads += [Read(9.0, 0.150, 9, 2, APP, 0.0), Read(9.5, 0.155, 9, 2, DATABASE, 0.0)]
    return Phase(20, 7.0, 9.0, reads, writes=1, cores={"clients": 0.96, "app": 0.1})


def test_figures_are_counts_and_shares_of_the_reads() -> None:
    """Each read is in one bucket; a part without processor time left is named."""
    row = figures.row(phase(), cores=2)
    assert row["throughput_hz"] == 5.0
    assert row["mean_ms"] == pytest.approx(31.52, abs=0.01)
    assert row["layers"] == {"browser": 0.6, "cdn": 0.2, "app": 0.1, "database": 0.1}
    assert row["histogram_ms"]["1"] == 6
    assert row["histogram_ms"]["5"] + row["histogram_ms"]["10"] == 2
    assert row["histogram_ms"]["160"] == 2
    assert sum(row["histogram_ms"].values()) == 10
    assert (row["stale"], row["stale_max_s"]) == (0.1, 3.0)
    assert row["limited_by"] == ["clients"]
    assert figures.limits({"clients": 0.9, "app": 0.5, "mongod": 0.55}, cores=2, late_ms=0.1) == ["machine"]
    assert figures.limits({"clients": 0.5, "app": 0.5}, cores=2, late_ms=0.1) == []
    assert figures.limits({"clients": 0.8, "app": 0.5}, cores=2, late_ms=9.0) == ["clients"]


def test_a_phase_without_answers_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no read was answered with 20 connections, 4 failed"):
        figures.row(Phase(20, 0.0, 1.0, failed=4), cores=2)


def test_predictions_are_compared_layer_by_layer() -> None:
    measured = figures.row(phase(), cores=2)
    layers = {"browser": 0.605, "cdn": 0.2, "app": 0.1, "database": 0.095}
    said = measured | {"layers": layers, "p50_ms": 0.21, "p99_ms": 300.0}
    off = figures.beside(measured, said)
    assert off["points"] == {"browser": 0.5, "cdn": 0.0, "app": 0.0, "database": -0.5}
    assert off["aims_held"] == {"hit_rates": True, "p50_ms": True, "p99_ms": False}


def test_set_ups_stand_over_the_uncached_one() -> None:
    base = {"connections": 10, "mean_ms": 150.0, "throughput_hz": 60.0}
    cdn, full = base | {"mean_ms": 25.0, "throughput_hz": 360.0}, base | {"mean_ms": 5.0, "throughput_hz": 660.0}
    (row,) = figures.over_uncached({"uncached": [base], "CDN": [cdn], "full": [full]})
    assert row["CDN"]["lower_mean_latency"] == 6.0
    assert row["CDN"]["aims_held"] == {"lower_mean_latency": False, "throughput": True}
    assert row["full"]["aims_held"] == {"lower_mean_latency": True, "throughput": True}


def test_uncached_is_predicted_by_distance_and_service_time_alone() -> None:
    """Connections over their cycle: 154 ms for 99 of 100 requests, 170 ms for a write; and what the clients can ask for."""
    few, many = prediction.uncached(TIMES, [Step("1", 10, 1.0, 1.0), Step("2", 1_000, 1.0, 1.0)])
    assert few["mean_ms"] == pytest.approx(154.0, rel=0.01)
    assert few["throughput_hz"] == pytest.approx(0.99 * 10_000 / (0.99 * 154 + 0.01 * 170 + 0.1), rel=0.01)
    assert many["throughput_hz"] == pytest.approx(0.99 * 2_000)


def test_a_cached_set_up_is_predicted_from_warm_caches_step_by_step() -> None:
    """Warm: the CDN answers nearly all where clients keep nothing; where they do, their own copies answer more and more."""
    steps = [Step("1", 4, 1.0, 1.0), Step("2", 4, 1.0, 2.0)]
    cdn = prediction.cached(TIMES, steps, browsers=False, delta_s=10.0, warm_s=5.0)
    full = prediction.cached(TIMES, steps, browsers=True, delta_s=10.0, warm_s=5.0)
    for said in (*cdn, *full):
        assert sum(said["layers"].values()) == pytest.approx(1.0, abs=0.001)
    assert cdn[0]["layers"]["cdn"] > 0.9
    assert cdn[0]["layers"]["browser"] == 0.0
    assert full[1]["layers"]["browser"] > full[0]["layers"]["browser"] > 0.1
    assert full[1]["throughput_hz"] > cdn[1]["throughput_hz"]
    assert prediction.cached(TIMES, steps, browsers=True, delta_s=10.0, warm_s=5.0) == full


def test_a_latency_is_not_moved_by_an_outlier() -> None:
    assert latency([1.0] * 9 + [900.0]) == (1.0, 0.0)


def test_document_and_plot_say_what_was_measured_and_what_was_missed(tmp_path: Path) -> None:
    rows = {}
    for setup in ("uncached", "CDN", "full"):
        row = figures.row(phase(), cores=2)
        said = row | {"p99_ms": 300.0}
        rows[setup] = [row | {"simulator": said, "simulator_off_by": figures.beside(row, said)}]
    result = {
        "what": "Closed loop.", "beside_the_app": "Nothing", "cores": 2, "delta_s": 10, "seconds": 15.0, "settle_s": 10.0,
        "over_uncached": figures.over_uncached(rows), "service_times": dict.fromkeys(rows, TIMES.report()), "setups": rows,
    }  # fmt: skip
    text = report.text(result)
    assert "| 20 | 1.0x, 1.0x (missed) | 1.0x, 1.0x (missed) |" in text
    assert "60.0, 20.0, 10.0, 10.0" in text
    assert "off: p99_ms" in text
    report.draw(tmp_path / "plot.svg", result)
    assert "Mean latency" in (tmp_path / "plot.svg").read_text()


@pytest.mark.anyio
async def test_messages_arrive_in_order_and_not_before_their_time() -> None:
    """By the clock of the loop; things that are put in later are not waited for."""
    loop = asyncio.get_running_loop()
    line, arrived, delay_s = DelayLine(0.01), list[tuple[int, float]](), 0.01
    put_s = []

    def note(number: int) -> None:
        arrived.append((number, loop.time()))

    for number in range(50):
        put_s.append(loop.time())
        line.put(partial(note, number))
        await asyncio.sleep(0)
    await eventually(lambda: len(arrived) == 50)
    assert [number for number, _ in arrived] == list(range(50))
    resolution_s = time.get_clock_info("monotonic").resolution
    assert all(at_s >= put_s[number] + delay_s - resolution_s for number, at_s in arrived)
    assert all(arrival[1] <= other[1] for arrival, other in pairwise(arrived))


@asynccontextmanager
async def connected(server_port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to that server through a proxy that delays."""
    port = free_port()
    proxy = asyncio.create_task(DelayingProxy(port, server_port, round_trip_ms=2).serve())
    try:
        connections = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

        async def tried() -> bool:
            with suppress(OSError):
                connections.append(await asyncio.open_connection(HOST, port))
            return bool(connections)

        await eventually(tried)
        yield connections[0]
        connections[0][1].close()
        await connections[0][1].wait_closed()
    finally:
        proxy.cancel()
        with suppress(asyncio.CancelledError):
            await proxy


@pytest.mark.anyio
async def test_a_delaying_proxy_passes_on_everything_in_order_and_both_ends() -> None:
    """Sent bytes come back whole; the close of one side is seen on the other."""
    closed = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(data)
        writer.close()
        closed.set()

    async with (
        await asyncio.start_server(echo, HOST, 0) as server,
        connected(server.sockets[0].getsockname()[1]) as (reader, writer),
    ):
        sent = bytes(range(256)) * 2_000
        writer.write(sent)  # at once: the proxy may not have reached the server yet
        assert await reader.readexactly(len(sent)) == sent
        writer.write_eof()
        assert await reader.read() == b""
        await eventually(closed.is_set)


@pytest.mark.anyio
async def test_a_server_that_is_away_is_away_behind_the_proxy_too() -> None:
    """The connection ends; nobody waits."""
    async with connected(free_port()) as (reader, _):
        assert await reader.read() == b""
