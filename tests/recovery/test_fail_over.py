"""The primary of three mongods dies or steps down, under load: see test_failures.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from benchmarks.setups.faults.members import ReplicaSet
from benchmarks.setups.faults.world import World, world
from quaestor.testing.servers import HOST
from tests.recovery.conftest import Proven

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("replicated"), mongods=3) as made:
        yield made
        made.settle()
        assert made.checker.violations == []


def test_the_primary_is_killed_and_comes_back_as_a_secondary(deployment: World, proven: Proven) -> None:
    members = ReplicaSet(deployment.mongods, "")
    primary = members.primary()
    assert primary is not None
    with deployment.failure(within_s=120) as outcome:
        primary.kill()
    proven("mongod-failed-over", outcome)
    assert members.primary() not in (None, primary)
    primary.start()


def test_the_primary_steps_down(deployment: World, proven: Proven) -> None:
    members = ReplicaSet(deployment.mongods, "")
    primary = members.primary()
    assert primary is not None
    with (
        pymongo.MongoClient[dict[str, Any]](HOST, primary.port, directConnection=True) as client,
        deployment.failure(within_s=120) as outcome,
    ):
        client.admin.command({"replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 10})
    proven("mongod-stepped-down", outcome)
    assert members.primary() not in (None, primary)
