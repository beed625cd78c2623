"""A whole deployment for the tests that break it, and their findings, written to a file on request."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from benchmarks.setups.faults.world import Outcome, World, world
from quaestor.event_layer.redis import RedisEventLayer
from tests.recovery.cell_harness import Harness
from tests.recovery.failures import FAILURES
from tests.recovery.following import Opened
from tests.recovery.ingesting import Client

RESULTS = "RECOVERY_RESULTS"
"""Environment variable: the folder where each failure's outcome is written."""

Proven = Callable[[str, Outcome], None]


@pytest.fixture
def client(mongo_url: str) -> Iterator[Client]:
    with pymongo.MongoClient(mongo_url) as client:
        yield client


@pytest.fixture
def opened(client: Client, prefix: str) -> Iterator[Opened]:
    opened = Opened(client, prefix)
    yield opened
    for standing in opened.worlds:
        standing.close()


@pytest.fixture
def harness(redis_url: str, prefix: str) -> Iterator[Harness]:
    layer = RedisEventLayer(redis_url, prefix)
    yield Harness(layer, prefix)
    layer.close()


@pytest.fixture
def database(client: Client, prefix: str) -> Iterator[Any]:
    """`plain` and `images`, which records both images of each write."""
    database = client[prefix]
    database.create_collection("plain")
    database.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    yield database
    client.drop_database(prefix)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Grid on Spark with two executors, two app workers, Valkey, mongod; written to, read from and checked all the time."""
    with world(tmp_path_factory.mktemp("deployment")) as made:
        yield made
        made.settle()
        assert made.checker.violations == []
        assert made.checker.counts["after a known invalidation"] > 0


@pytest.fixture
def proven(deployment: World) -> Proven:
    return lambda name, outcome: prove(deployment, name, outcome)


def prove(deployment: World, name: str, outcome: Outcome) -> None:
    """Every response was right, and there were responses; then the outcome is written down."""
    assert name in FAILURES
    assert deployment.checker.violations[-outcome.violations :][: outcome.violations] == []
    assert outcome.hits
    assert outcome.writes
    if folder := os.environ.get(RESULTS):
        (Path(folder) / f"{name}.json").write_text(json.dumps(outcome.document()))
