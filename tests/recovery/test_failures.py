"""Parts that die or are cut off: no invalidation is lost, and no answer is staler than announced.

The other cells go on, and all is well again without help. One deployment of real processes for the module,
under load all the time; see benchmarks/setups/faults. Every response is checked.
"""

from __future__ import annotations

import threading
from contextlib import closing

import psutil
import pytest

from benchmarks.setups.faults.processes import driver_jvm, executor_of, ingest_pid, kill, paused
from benchmarks.setups.faults.world import BOUND_MS, DEPLOYMENT, World
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.spark import cell_pids
from quaestor.model import Cell
from quaestor.settings.groups import GridSettings
from tests.recovery.conftest import Proven

pytestmark = pytest.mark.timeout(400)

CELLS = [Cell(query_partition=q, write_partition=w) for q in (0, 1) for w in (0, 1)]
AWAY_S = GridSettings().retention_ms / 1000 + 5
"""Longer than cells keep writes for replay."""
OUTAGE_S = 7.0
"""Longer than the staleness bound, and than any part waits for an answer."""


def pids(deployment: World) -> dict[Cell, int]:
    with closing(RedisEventLayer(deployment.valkey.url, DEPLOYMENT)) as layer:
        return cell_pids(layer, DEPLOYMENT)


def last(seconds: float = OUTAGE_S) -> None:
    """Let the failure last."""
    threading.Event().wait(seconds)


def ingest(deployment: World) -> int:
    assert deployment.grid_mongo is not None
    for _ in range(1_000):
        if (pid := ingest_pid(deployment.client, deployment.grid_mongo)) is not None:
            return pid
    raise AssertionError("nobody reads the change stream")


def test_a_killed_cell_comes_back_and_the_others_do_not_notice(deployment: World, proven: Proven) -> None:
    before = pids(deployment)
    assert set(before) == set(CELLS)
    victim = CELLS[1]
    mark = deployment.heartbeats.mark()
    with deployment.failure() as outcome:
        kill(before[victim])
    proven("cell-killed", outcome)
    after = pids(deployment)
    assert {cell for cell in CELLS if before[cell] != after[cell]} == {victim}
    assert deployment.heartbeats.undisturbed(mark) >= set(CELLS) - {victim}


def test_a_cell_stands_still_and_the_other_column_goes_on_being_served(deployment: World, proven: Proven) -> None:
    """While it does, none of its column's pages is a hit in any worker, and pages of the other column are in each."""
    before, mark = pids(deployment), deployment.heartbeats.mark()
    victim = CELLS[0]
    its, other = str(victim.query_partition), str(1 - victim.query_partition)
    with deployment.failure() as outcome, paused(before[victim]):
        deployment.until(lambda: deployment.heartbeats.lag_ms(victim) > BOUND_MS + 1_000)
        readers = deployment.load.readers
        # Each asks one by one: after two more answers, none is on its way that was a hit while the column was fresh.
        counts = [reader.outcomes.total() for reader in readers]
        deployment.until(
            lambda: all(reader.outcomes.total() >= n + 2 for reader, n in zip(readers, counts, strict=True))
        )
        hits_before = [reader.hits_by_column.copy() for reader in readers]
        last()
        since = [reader.hits_by_column - counts for reader, counts in zip(readers, hits_before, strict=True)]
        assert [counts[its] for counts in since] == [0] * len(readers)
        assert all(counts[other] for counts in since), since
    proven("cell-paused", outcome)
    assert pids(deployment) == before
    assert deployment.heartbeats.undisturbed(mark) >= set(CELLS) - {victim}


def test_killed_ingest_comes_back_and_no_cell_is_disturbed(deployment: World, proven: Proven) -> None:
    victim = ingest(deployment)
    mark = deployment.heartbeats.mark()
    with deployment.failure() as outcome:
        kill(victim)
    proven("ingest-killed", outcome)
    assert ingest(deployment) != victim
    assert deployment.heartbeats.undisturbed(mark) == set(CELLS)


def test_a_killed_executor_is_replaced_and_the_other_one_does_not_notice(deployment: World, proven: Proven) -> None:
    before = pids(deployment)
    executor = executor_of(before[CELLS[0]])
    inside = {cell for cell, pid in before.items() if executor_of(pid) == executor}
    workers = [psutil.Process(before[cell]) for cell in inside]
    mark = deployment.heartbeats.mark()
    with deployment.failure() as outcome:
        kill(executor.pid)
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert alive == [], "its tasks end with it"
    proven("executor-killed", outcome)
    after = pids(deployment)
    assert {cell for cell in CELLS if before[cell] != after[cell]} == inside
    assert deployment.heartbeats.undisturbed(mark) >= set(CELLS) - inside


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["without data", "with data"])
def test_redis_is_killed_and_comes_back(deployment: World, proven: Proven, kept: bool) -> None:
    before, answered = pids(deployment), deployment.answered()
    with deployment.failure() as outcome:
        deployment.valkey.kill()
        if not kept:
            deployment.forget(deployment.valkey)
        last(1)
        deployment.valkey.start()
    proven("redis-restarted" if kept else "redis-emptied", outcome)
    assert pids(deployment) == before
    assert deployment.answered() > answered


def test_answers_stay_right_while_redis_does_not_answer(deployment: World, proven: Proven) -> None:
    before = pids(deployment)
    with deployment.failure() as outcome, paused(deployment.valkey.pid):
        answered = deployment.answered()
        last()
        assert deployment.answered() > answered, "handlers answer"
    proven("redis-stalled", outcome)
    assert pids(deployment) == before


def test_mongod_is_killed_and_started_again(deployment: World, proven: Proven) -> None:
    (mongod,) = deployment.mongods
    before = pids(deployment)
    with deployment.failure() as outcome:
        mongod.kill()
        mongod.start()
    proven("mongod-restarted", outcome)
    assert pids(deployment) == before


@pytest.mark.slow
def test_answers_stay_right_while_mongod_does_not_answer(deployment: World, proven: Proven) -> None:
    before = pids(deployment)
    with deployment.failure() as outcome, paused(deployment.mongods[0].pid):
        last()
    proven("mongod-stalled", outcome)
    assert pids(deployment) == before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stalled", "reset", "lost"])
@pytest.mark.parametrize("between", ["app-redis", "grid-redis", "app-mongo", "ingest-mongo"])
def test_a_cut_between_two_parts(deployment: World, proven: Proven, between: str, how: str) -> None:
    link = {
        "app-redis": deployment.app_redis, "grid-redis": deployment.grid_redis,
        "app-mongo": deployment.app_mongo, "ingest-mongo": deployment.grid_mongo,
    }[between]  # fmt: skip
    assert link is not None
    before, answered = pids(deployment), deployment.answered()
    with deployment.failure() as outcome:
        try:
            {"stalled": link.stall, "reset": link.reset, "lost": link.lose}[how]()
            if how != "lost":
                last()
                # Where handlers wait for the database, readers wait for handlers, once writes have outdated what is cached. The
                # driver also waits where connections are reset: it hopes for another primary.
                if between != "app-mongo":
                    assert deployment.answered() > answered, "hits or handlers answer"
        finally:
            if how != "lost":
                link.pass_()
    proven(f"{between}-{how}", outcome)
    assert pids(deployment) == before


@pytest.mark.slow
def test_a_cell_that_dies_again_and_again_never_takes_the_grid_with_it(deployment: World, proven: Proven) -> None:
    """Spark's default gives up a job of which one task has failed that often, at any time."""
    before, mark, victim = pids(deployment), deployment.heartbeats.mark(), CELLS[2]
    with deployment.failure() as outcome:
        for _ in range(25):
            pid = pids(deployment)[victim]
            kill(pid)
            deployment.until(lambda pid=pid: pids(deployment)[victim] != pid)  # type: ignore[misc]
    proven("cell-killed-often", outcome)
    after = pids(deployment)
    assert {cell for cell in CELLS if before[cell] != after[cell]} == {victim}
    assert deployment.heartbeats.undisturbed(mark) >= set(CELLS) - {victim}


@pytest.mark.slow
def test_an_executor_stands_still_and_goes_on(deployment: World, proven: Proven) -> None:
    before = pids(deployment)
    executor = executor_of(before[CELLS[0]])
    family = [executor, *executor.children(recursive=True)]
    inside = {cell for cell, pid in before.items() if pid in {process.pid for process in family}}
    mark = deployment.heartbeats.mark()
    with deployment.failure() as outcome, paused(*(process.pid for process in family)):
        last()
    proven("executor-paused", outcome)
    assert pids(deployment) == before
    assert deployment.heartbeats.undisturbed(mark) >= set(CELLS) - inside


@pytest.mark.slow
def test_the_driver_falls_silent(deployment: World, proven: Proven) -> None:
    before, mark = pids(deployment), deployment.heartbeats.mark()
    with deployment.failure() as outcome, paused(deployment.grid.pid, driver_jvm(deployment.grid.pid).pid):
        last()
    proven("driver-paused", outcome)
    assert pids(deployment) == before
    assert deployment.heartbeats.undisturbed(mark) == set(CELLS)


@pytest.mark.slow
def test_an_app_worker_is_killed_and_started_again(deployment: World, proven: Proven) -> None:
    before, mark = pids(deployment), deployment.heartbeats.mark()
    with deployment.failure() as outcome:
        deployment.workers[1].kill()
        last(1)
        deployment.workers[1].start()
    proven("app-killed", outcome)
    assert pids(deployment) == before
    assert deployment.heartbeats.undisturbed(mark) == set(CELLS)


@pytest.mark.slow
@pytest.mark.parametrize("away_s", [0, AWAY_S], ids=["at once", "after the retention"])
def test_the_driver_is_killed_and_started_again(deployment: World, proven: Proven, away_s: float) -> None:
    """Its executors end with it; the cells of the next grid go on from the checkpoints of the last."""
    tree = psutil.Process(deployment.grid.pid).children(recursive=True)
    with deployment.failure(within_s=150) as outcome:
        deployment.grid.kill()
        _, alive = psutil.wait_procs(tree, timeout=60)
        assert alive == []
        last(away_s)
        deployment.grid.launch()
    if not away_s:
        proven("driver-killed", outcome)
    assert outcome.violations == 0, deployment.checker.violations
