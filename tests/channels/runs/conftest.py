"""Engines of the channels in these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quaestor.continuous.executors.spark import SparkExecutor
from quaestor.continuous.executors.spark_session import spark_session
from tests.channels import world as worlds


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkExecutor]:
    sessions: list[Any] = []

    def start() -> Any:
        sessions.append(spark_session("local[1]"))
        return sessions[0]

    with SparkExecutor(start, end=lambda: sessions[0].stop() if sessions else None) as engine:
        yield engine


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def each_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels of worlds run on each engine."""
    if request.param == "spark":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr(worlds, "DuckDbExecutor", lambda **_: spark)
