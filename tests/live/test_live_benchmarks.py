"""The benchmarks of live answers and live queries, at a small size: each delivers all that it counts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks import (
    live_cell_memory,
    live_followers,
    live_long_polls,
    live_peers,
    live_restart,
    live_scalability,
    live_selectors,
    live_sockets,
    realtime_fig6,
)
from quaestor.testing import servers
from tests.end_to_end.varnish_site import needs_varnish

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


async def test_followers_of_both_applications_receive_each_write(mongo_url: str) -> None:
    """Each of 4 rounds sends one write to 5 followers of either application."""
    result = await live_followers.measured(mongo_url, followers=5, writes=4)
    assert result["acknowledged_to_follower"]["count"] == result["bare"]["count"] == 20


async def test_sockets_and_change_streams_receive_each_selectors_writes() -> None:
    """Both sides end only after each written selector has its event; mongod's processor time is counted, also of bare writes."""
    with servers.running(partial(servers.mongod_server, journal_ms=10), "mongod") as mongod:
        result = await live_selectors.measured(mongod, selectors=3, writes=6)
    assert set(result["mongod_cpu_ms_a_write"]) == {"writes", "live", "watch"}
    assert all(value > 0 for value in result["mongod_cpu_ms_a_write"].values())


async def test_sockets_of_both_applications_receive_each_write(mongo_url: str) -> None:
    """Equal subscribers receive each fan-out, and each distinct query its own write."""
    result = await live_sockets.measured(mongo_url, sockets=5, queries=6, rate_hz=100)
    fanned_out = result["one_write_to_all"]
    assert fanned_out["live"]["count"] == fanned_out["bare"]["count"] == live_sockets.FANOUTS
    assert result["acknowledged_to_socket"]["count"] == 6


async def test_both_sides_of_figure_6_receive_each_insert(mongo_url: str, redis_url: str, tmp_path: Path) -> None:
    """Each point has a latency for every insert, without a socket and through one."""
    result = await realtime_fig6.measured(mongo_url, redis_url, tmp_path, queries=[3], rates_hz=[50], writes=9)
    assert [(found["grid"]["count"], found["socket"]["count"]) for found in result["points"]] == [(9, 9)]


async def test_the_largest_sustained_loads_are_found(
    mongo_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each insert has a latency; the searches end at their limits, and the table has both loads at both shares."""
    monkeypatch.setattr(live_scalability, "LEAST_QUERIES", 2)
    monkeypatch.setattr(live_scalability, "FIXED_QUERIES", 2)
    monkeypatch.setattr(live_scalability, "LEAST_HZ", 10)
    monkeypatch.setattr(live_scalability, "FIXED_HZ", 10)
    monkeypatch.setattr(live_scalability, "BOUND_MS", 60_000.0)
    monkeypatch.setattr(live_scalability, "ACHIEVED", 0.0)
    result = await live_scalability.measured(mongo_url, redis_url, tmp_path, shapes=[(1, 1)], seconds=1, limits=(4, 20))
    shape = result["shapes"]["1x1"]
    assert (shape["queries"], shape["writes_per_s"]) == (4, 20)
    assert [(point["queries"], point["writes_per_s"]) for point in shape["table_3"]] == [
        (3, 10),
        (2, 16),
        (3, 10),
        (2, 13),
    ]
    assert all(point["latency"]["count"] == point["writes_per_s"] for point in shape["points"])


async def test_all_clients_come_back_after_a_restart(mongo_url: str, redis_url: str, tmp_path: Path) -> None:
    """Each client resumes at the new process, and no query is executed again."""
    result = await live_restart.measured(mongo_url, redis_url, tmp_path, clients=20)
    assert result["answers"] == {"resumed": 20}
    assert result["queries_read"] == 0


@needs_varnish
async def test_long_polls_of_all_clients_are_one_request(mongo_url: str) -> None:
    """Each of 2 changes reaches 5 pollers by one request of the application."""
    result = await live_long_polls.measured(mongo_url, pollers=5, changes=2)
    assert (result["requests_a_change"]["most"], result["lost"]) == (1, 0)


async def test_clients_of_every_peer_receive_each_insert() -> None:
    """A side ends only when each client has all records of its selector."""
    with servers.running(partial(servers.mongod_server, journal_ms=10), "mongod") as mongod:
        result = await live_peers.measured(mongod, clients=2, writes=40)
    counts = {name: found["acknowledged_to_client"]["count"] for name, found in result["peers"].items()}
    assert counts == dict.fromkeys(counts, 4)
    assert set(counts) == {"live", "watch", "polling", "socket.io"}


def test_the_memory_of_a_live_query_in_a_cell_is_within_its_aim() -> None:
    """Bytes are counted, so the load of the machine does not matter."""
    result = live_cell_memory.measured(300)
    assert all(0 < value <= live_cell_memory.AIM_KIB for value in result["kib_a_query"].values())
