"""The benchmarks of live answers and live queries, at a small size: each delivers all that it counts."""

from __future__ import annotations

import pytest

from benchmarks import live_followers

pytestmark = pytest.mark.anyio


async def test_followers_of_both_applications_receive_each_write(mongo_url: str) -> None:
    """Each of 4 rounds sends one write to 5 followers of either application."""
    result = await live_followers.measured(mongo_url, followers=5, writes=4)
    assert result["acknowledged_to_follower"]["count"] == result["bare"]["count"] == 20
