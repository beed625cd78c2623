"""Engines of the channels in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quaestor.continuous.executors.spark import SparkExecutor
from tests.channels import world as worlds
from tests.continuous.spark_engine import spark_engine


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkExecutor]:
    with spark_engine() as engine:
        yield engine


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def each_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels of worlds run on each engine."""
    if request.param == "spark":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr(worlds, "DuckDbExecutor", lambda **_: spark)
