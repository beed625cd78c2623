"""Spark on one core of this machine, which ends with the tests that use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quaestor.continuous.executors.spark import SparkExecutor
from quaestor.continuous.executors.spark_session import spark_session


@contextmanager
def spark_engine() -> Iterator[SparkExecutor]:
    """Spark starts at the first query."""
    sessions: list[Any] = []

    def start() -> Any:
        sessions.append(spark_session("local[1]"))
        return sessions[0]

    with SparkExecutor(start, end=lambda: sessions[0].stop() if sessions else None) as engine:
        yield engine
