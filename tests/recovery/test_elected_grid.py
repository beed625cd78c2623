"""App workers that elect one among them to run the matching: real processes under load, every answer checked.

Nothing is stale beyond the bound, and nothing is lost, when the elected worker dies or stands still.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from benchmarks.setups.faults.world import BOUND_MS, DATABASE, DEPLOYMENT, Outcome, World, world
from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.cell_processes import cell_pids
from quaestor.invalidation.grid.election import MatchedBy, Matching, matching
from quaestor.invalidation.grid.resizing.state import GridState, get_state
from quaestor.model import Cell, GridShape
from quaestor.testing.servers import Server

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three app workers on one Valkey and one mongod; no grid."""
    with world(tmp_path_factory.mktemp("elected"), workers=3, elected=True) as made:
        yield made
        made.settle()
        assert made.checker.violations == []
        assert made.checker.counts["after a known invalidation"] > 0


def elected(deployment: World, *, besides: int | None = None) -> int:
    """Process id of the worker that holds the lease, once it is another one than `besides`."""
    deadline = time.monotonic() + PATIENCE_S
    with closing(event_layer(deployment.valkey.url, DEPLOYMENT)) as layer:
        while True:
            leader = matching(layer, DEPLOYMENT).leader
            if leader is not None and (pid := int(leader.rpartition(":")[2])) != besides:
                return pid
            assert time.monotonic() < deadline


def worker(deployment: World, pid: int) -> Server:
    return next(worker for worker in deployment.workers if worker.pid == pid)


def until_grid_serves(deployment: World, shape: GridShape) -> None:
    deployment.until(lambda: (now := state(deployment)).serving.shape == shape and now.successor is None, PATIENCE_S)


def state(deployment: World) -> GridState:
    with closing(event_layer(deployment.valkey.url, DEPLOYMENT)) as layer:
        results = get_state(layer, DEPLOYMENT)
    assert results is not None
    return results


def right(deployment: World, outcome: Outcome) -> None:
    assert deployment.checker.violations == []
    assert outcome.hits
    assert outcome.writes
    assert outcome.stalest_ms <= BOUND_MS
    print(outcome.document())


def test_the_workers_cache_without_any_grid(deployment: World) -> None:
    deployment.settle()
    assert state(deployment).serving.elected
    assert deployment.checker.counts["hits"] > 0


def test_another_worker_takes_over_when_the_elected_one_is_killed(deployment: World) -> None:
    """The fastest of the take-overs is within the bound: the machine of a test may stand still during one."""
    took_ms = []
    for _ in range(3):
        leader = elected(deployment)
        killed = worker(deployment, leader)
        with deployment.failure() as outcome:
            killed_ms = system_clock()
            killed.kill()
            deployment.until(lambda since_ms=killed_ms: deployment.heartbeats.all_fresh(since_ms, 1))
            took_ms.append(system_clock() - killed_ms)
            assert elected(deployment) != leader, "another one leads, before the killed one is back"
            killed.start()
        right(deployment, outcome)
    print(took_ms)
    assert min(took_ms) <= BOUND_MS


@pytest.mark.slow
def test_an_elected_worker_that_stood_still_does_no_harm_when_it_goes_on(deployment: World) -> None:
    """Two leaders exist for a moment: the old one continues in the middle of its work."""
    for _ in range(3):
        leader = elected(deployment)
        with deployment.failure() as outcome:
            os.kill(leader, signal.SIGSTOP)
            try:
                elected(deployment, besides=leader)
            finally:
                os.kill(leader, signal.SIGCONT)
        right(deployment, outcome)


@pytest.mark.slow
def test_a_leader_killed_in_a_burst_of_another_collection_loses_and_delays_nothing(deployment: World) -> None:
    """Writes of the site overtake 50,000 others. The leader dies while early ones lie in their pipeline and the burst goes on."""
    big = deployment.client[DATABASE].big
    big.insert_many([{"_id": key, "n": 0} for key in range(50_000)])
    deployment.settle()
    shape, leader = state(deployment).serving.shape, elected(deployment)
    killed = worker(deployment, leader)
    early = streams.early_writes(DEPLOYMENT, 0, shape.generation)
    with deployment.failure() as outcome, closing(event_layer(deployment.valkey.url, DEPLOYMENT)) as layer:
        ended = threading.Event()
        writing = threading.Thread(target=_bursts, args=(big, ended))
        writing.start()
        try:
            deployment.until(lambda: layer.first_offset(early) is not None)
            killed.kill()
        finally:
            ended.set()
            writing.join()
        elected(deployment, besides=leader)
        killed.start()
    right(deployment, outcome)


def _bursts(collection: Any, ended: threading.Event) -> None:
    while not ended.is_set():
        collection.update_many({}, {"$inc": {"n": 1}})
        with collection.database.client.start_session() as session, session.start_transaction():
            collection.update_many({"_id": {"$lt": 10_000}}, {"$inc": {"n": 1}}, session=session)


@pytest.mark.slow
def test_an_elected_worker_that_ends_hands_over(deployment: World) -> None:
    leader = elected(deployment)
    ending = worker(deployment, leader)
    with deployment.failure() as outcome:
        ending.stop()
        elected(deployment, besides=leader)
        ending.start()
    right(deployment, outcome)


@pytest.mark.slow
def test_redis_that_comes_back_without_its_data_gets_an_elected_grid_again(deployment: World) -> None:
    elected(deployment)
    with deployment.failure() as outcome:
        deployment.valkey.kill()
        deployment.forget(deployment.valkey)
        deployment.valkey.start()
    right(deployment, outcome)
    assert state(deployment).serving.elected


@pytest.mark.slow
def test_a_grid_of_processes_takes_over_and_the_workers_elect_again_when_it_is_stopped(deployment: World) -> None:
    """`quaestor grid` with other partitions, then with the same: a tasks' process is killed meanwhile; then it is stopped."""
    with deployment.failure() as outcome:
        deployment.cells = 2
        grid = deployment.grid_of_processes(query_partitions=2)
        grid.start()
        until_grid_serves(deployment, GridShape(query_partitions=2, write_partitions=1, generation=1))
    right(deployment, outcome)
    assert not state(deployment).serving.elected
    with closing(event_layer(deployment.valkey.url, DEPLOYMENT)) as layer:
        assert matching(layer, DEPLOYMENT) == Matching(MatchedBy.GRID)
        cells = cell_pids(layer, DEPLOYMENT)
    with deployment.failure() as outcome:
        os.kill(cells[Cell(query_partition=1, write_partition=0)], signal.SIGKILL)
    right(deployment, outcome)
    children = psutil.Process(grid.pid).children(recursive=True)
    with deployment.failure() as outcome:
        deployment.cells = 1
        grid.stop()
        deployment.heartbeats.fresh_as_of_ms.clear()
        elected(deployment)
        until_grid_serves(deployment, GridShape(query_partitions=1, write_partitions=1, generation=2))
    right(deployment, outcome)
    assert not [child for child in children if child.is_running()]
    with deployment.failure() as outcome:
        grid = deployment.grid_of_processes(query_partitions=1)
        grid.start()
    right(deployment, outcome)
    assert state(deployment).serving.shape.generation == 2, "the same partitions: it goes on where the elected one was"
    with deployment.failure() as outcome:
        grid.stop()
        elected(deployment)
    right(deployment, outcome)
