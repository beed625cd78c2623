"""The grid on a real Spark standalone cluster: a master and workers of real processes, some of which die."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.setups.faults.processes import executor_of, ingest_pid, kill
from benchmarks.setups.faults.standalone import Standalone, standalone
from quaestor.testing.servers import Server
from tests.recovery.standalone_grid import RECOVERY_S, START_S, Site, command, site
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SHAPE = ("--query-partitions", "2", "--write-partitions", "1")
TASKS = 5
"""Two cells, two stages, ingest."""
RUNNING = "2 cells + ingest running"


def worker_of(cluster: Standalone, task: int) -> Server:
    """The worker whose executor runs this task."""
    worker = psutil.Process(executor_of(task).ppid()).pid
    return next(
        spark_worker
        for spark_worker in cluster.workers
        if spark_worker.process is not None and spark_worker.pid == worker
    )


def alive(process: psutil.Process) -> bool:
    """Return whether the process runs. A zombie that its adoptive parent has not waited for is dead."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def other_than(cluster: Standalone, worker: Server) -> Server:
    return next(
        spark_worker
        for spark_worker in cluster.workers
        if spark_worker.process is not None and spark_worker is not worker
    )


async def lost_and_found(grid: Site, lost: set[int]) -> None:
    """Check that cached results stay right, these processes are replaced, and the others are as they were."""
    before = grid.cells()
    grid.collection.insert_one({"a": 0})
    await eventually(lambda: not grid.app.live(0))
    await eventually(lambda: not lost & set(grid.cells().values()), within_s=RECOVERY_S)
    await grid.healthy()
    await eventually(lambda: grid.app.live(1))
    assert not grid.app.live(0)
    assert {cell: pid for cell, pid in before.items() if pid not in lost}.items() <= grid.cells().items()


async def test_killed_executors_are_placed_again_by_spark_and_nothing_else_is_disturbed(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """An executor is killed, then a whole worker with room for its tasks elsewhere. Afterwards nothing is left, not at the
    master either."""
    with (
        standalone(tmp_path, TASKS, TASKS, memory="3g") as cluster,
        site(mongo_url, redis_url, prefix) as grid,
        command("--master", cluster.url, *SHAPE, *grid.where) as running,
    ):
        running.until(RUNNING)
        assert cluster.cores_used() == TASKS
        await grid.healthy()
        await grid.invalidates_exactly(0)
        status, output = grid.status()
        assert (status, output["shape"], [cell["restarts"] for cell in output["cells"]]) == (0, [2, 1], [0, 0])

        await grid.cached(0, 1)
        executor = executor_of(next(iter(grid.cells().values())))
        lost = set(grid.on(executor.pid).values())
        kill(executor.pid)
        await lost_and_found(grid, lost)

        await grid.cached(0, 1)
        worker = worker_of(cluster, next(iter(grid.cells().values())))
        lost = {pid for pid in grid.cells().values() if worker_of(cluster, pid) is worker}
        cluster.lose(worker)
        await lost_and_found(grid, lost)
        assert all(worker_of(cluster, pid) is other_than(cluster, worker) for pid in grid.cells().values())
        await grid.invalidates_exactly(2)
        assert grid.app.resets == []

        tasks = [
            task for executor in cluster.executors(other_than(cluster, worker)) for task in executor.children(True)
        ]
        assert tasks
        assert running.stop()[0] == 0
        await eventually(lambda: not any(map(alive, tasks)), within_s=RECOVERY_S)
        await eventually(lambda: cluster.applications() == [])
        assert cluster.cores_used() == 0


async def test_executors_that_die_more_often_than_the_master_retries_do_not_cost_the_grid_its_place(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """spark.deploy.maxExecutorRetries is 10: a dozen are killed, each as soon as it is there. Then the driver is killed, and
    nothing outlives it, not its folder either when the next one starts."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    tmpdir = {"TMPDIR": str(temporary)}
    with (
        standalone(tmp_path, 3) as cluster,
        site(mongo_url, redis_url, prefix) as grid,
        command("--master", cluster.url, *grid.where, environment=tmpdir) as running,
    ):
        running.until("1 cells + ingest running")
        await grid.cached(0, 1)
        killed: set[int] = set()

        def one_more() -> bool:
            for executor in cluster.executors(cluster.workers[0]):
                if executor.pid not in killed:
                    kill(executor.pid)
                    killed.add(executor.pid)
            return len(killed) >= 12

        await eventually(one_more, within_s=RECOVERY_S * 2)
        grid.collection.insert_one({"a": 0})
        await eventually(lambda: not grid.app.live(0))
        await grid.healthy()
        await eventually(lambda: grid.app.live(1))
        assert not grid.app.live(0)
        assert len(cluster.applications()) == 1

        family = psutil.Process(running.process.pid).children(recursive=True)
        family += [
            task for executor in cluster.executors(cluster.workers[0]) for task in (executor, *executor.children(True))
        ]
        kill(running.process.pid)
        await eventually(lambda: not any(map(alive, family)), within_s=RECOVERY_S)
        await eventually(lambda: cluster.applications() == [])
        left = list(temporary.glob("quaestor-spark-*"))
        with command("--master", cluster.url, *grid.where, environment=tmpdir) as next_one:
            next_one.until("1 cells + ingest running")
            assert len(left) == 1
            assert not left[0].exists()


async def test_with_slots_lost_the_rest_goes_on_and_waiting_tasks_return_with_a_worker(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """The worker of ingest dies, and there is no room for its tasks: a stage gives way to ingest.

    `status` names the silent cells, and a new worker brings them back.
    """
    with (
        standalone(tmp_path, 1, 4) as cluster,
        site(mongo_url, redis_url, prefix) as grid,
        command("--master", cluster.url, *SHAPE, *grid.where) as running,
    ):
        running.until(RUNNING)
        await grid.healthy()
        await grid.cached(0, 1)
        ingest = ingest_pid(grid.client)
        assert ingest is not None
        lost = worker_of(cluster, ingest)
        cores = 4 if lost is cluster.workers[1] else 1
        cluster.lose(lost)
        running.until("spark.slots_missing")
        grid.collection.insert_one({"a": 0})
        await eventually(lambda: ingest_pid(grid.client) not in (None, ingest), within_s=RECOVERY_S)
        silent = 2 if cores == 4 else 0
        await eventually(lambda: len(grid.silent()) == silent, within_s=RECOVERY_S)
        cluster.add_worker(cores=cores)
        running.until("spark.slots_back", within_s=RECOVERY_S)
        await grid.healthy()
        await eventually(lambda: grid.app.live(1))
        assert not grid.app.live(0)
        await grid.invalidates_exactly(2)
        assert grid.status()[0] == 0


async def test_a_cluster_with_too_few_slots_is_refused_in_a_sentence(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    with standalone(tmp_path, 2, 2) as cluster, site(mongo_url, redis_url, prefix) as grid:
        with command("--master", cluster.url, *SHAPE, "--ready-timeout", "30", *grid.where) as running:
            status, output = running.ended()
        assert status == 2
        assert (
            f"{cluster.url} granted 4 slots within 30 s, but 2 cells, 2 stages and ingest need 5: add workers with free cores"
        ) in output
        assert "Traceback" not in output
        await eventually(lambda: cluster.applications() == [])


async def test_a_master_that_forgot_the_grid_ends_it_with_a_sentence(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """A master that returns without its state has the executors killed: the grid's supervisor starts it again."""
    with standalone(tmp_path, TASKS) as cluster, site(mongo_url, redis_url, prefix) as grid:
        with command("--master", cluster.url, *SHAPE, *grid.where) as running:
            running.until(RUNNING)
            await grid.healthy()
            await grid.cached(0)
            cluster.master.kill()
            await grid.invalidates_exactly(2)
            cluster.master.start()
            status, output = running.ended(within_s=START_S * 2)
        assert status == 2
        assert "its master was restarted and has forgotten this application" in output
        assert not grid.serving()
