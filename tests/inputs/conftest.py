"""Both ways in which answers are guarded, for promises that hold in either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.end_to_end.test_distributed import grid


@pytest.fixture(params=["embedded", "grid"])
def settings(request: pytest.FixtureRequest, mongo_url: str, prefix: str) -> Iterator[dict[str, Any]]:
    """In one process, and on a grid of 2 x 2 cells with a Redis in between."""
    if request.param == "embedded":
        yield {}
        return
    redis_url = request.getfixturevalue("redis_url")
    with grid(mongo_url, redis_url, prefix):
        yield {"redis_url": redis_url, "deployment": prefix}
