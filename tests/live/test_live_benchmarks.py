"""The benchmarks of live answers and live queries, at a small size: each delivers all that it counts."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks import live_cell_memory, live_followers, live_selectors, live_sockets
from quaestor.testing import servers

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


async def test_followers_of_both_applications_receive_each_write(mongo_url: str) -> None:
    """Each of 4 rounds sends one write to 5 followers of either application."""
    result = await live_followers.measured(mongo_url, followers=5, writes=4)
    assert result["acknowledged_to_follower"]["count"] == result["bare"]["count"] == 20


async def test_sockets_and_change_streams_receive_each_selectors_writes() -> None:
    """Both sides end only after each written selector has its event; mongod's processor time is counted for both."""
    with servers.running(partial(servers.mongod_server, journal_ms=10), "mongod") as mongod:
        result = await live_selectors.measured(mongod, selectors=3, writes=6)
    assert set(result["mongod_cpu_ms_a_write"]) == {"live", "watch"}
    assert all(value > 0 for value in result["mongod_cpu_ms_a_write"].values())


async def test_sockets_of_both_applications_receive_each_write(mongo_url: str) -> None:
    """Equal subscribers receive each fan-out, and each distinct query its own write."""
    result = await live_sockets.measured(mongo_url, sockets=5, queries=6, rate_hz=100)
    fanned_out = result["one_write_to_all"]
    assert fanned_out["live"]["count"] == fanned_out["bare"]["count"] == live_sockets.FANOUTS
    assert result["acknowledged_to_socket"]["count"] == 6


def test_the_memory_of_a_live_query_in_a_cell_is_within_its_aim() -> None:
    """Bytes are counted, so the load of the machine does not matter."""
    result = live_cell_memory.measured(300)
    assert all(0 < value <= live_cell_memory.AIM_KIB for value in result["kib_a_query"].values())
