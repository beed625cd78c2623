"""Services of the processes of a grid are struck by exceptions as in test_service_faults.py; the grid goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid import running_grid, tasks
from quaestor.invalidation.grid.grid_loops import GridLoops
from quaestor.invalidation.grid.grid_run import GridRun
from quaestor.invalidation.grid.process_grid import ProcessGrid
from quaestor.invalidation.grid.tasks import GridJob, run_task
from quaestor.model import GridShape
from quaestor.observability.hooks import FailureSeen
from quaestor.observability.telemetry import Telemetry
from quaestor.settings import Settings
from tests.recovery.service_faults import Faults, rearm
from tests.recovery.struck_services import IN_GRIDS, QUICKLY_S
from tests.recovery.struck_world import alive_threads, unnamed
from tests.support import becomes

SHAPE = GridShape(query_partitions=1, write_partitions=1)
QUIET_LOOKS = 5
"""Looks without a new strike: the service has been struck everywhere."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


class Looks:
    """Looks of a service that is struck; `quiet` since its last strike."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._struck = 0
        self._since = 0

    def look(self) -> None:
        self._since = self._since + 1 if len(self._faults.struck) == self._struck else 0
        self._struck = len(self._faults.struck)

    def quiet(self) -> bool:
        return bool(self._struck) and self._since >= QUIET_LOOKS


@pytest.fixture(autouse=True)
def no_threads_before() -> None:
    assert alive_threads() == []


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def failures(telemetry: Telemetry) -> Iterator[list[FailureSeen]]:
    seen: list[FailureSeen] = []
    telemetry.hooks.failures += [seen.append, rearm]
    yield seen
    assert alive_threads() == []


def grid_of(mongo_url: str, redis_url: str, deployment: str, telemetry: Telemetry, looks: Looks) -> ProcessGrid:
    class Watched(ProcessGrid):
        def _look(self) -> str | None:
            looks.look()
            return super()._look()

    settings = Settings(deployment=deployment, heartbeat_ms=40)
    return Watched(SHAPE, redis_url=redis_url, mongo_url=mongo_url, settings=settings, telemetry=telemetry)


@pytest.mark.parametrize("service", [name for name in IN_GRIDS if name != "run-watch"])
def test_a_grid_goes_on_while_a_service_of_it_is_struck_everywhere(
    mongo_url: str,
    redis_url: str,
    prefix: str,
    service: str,
    telemetry: Telemetry,
    failures: list[FailureSeen],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every fault is counted, each cell is fed, and the stop ends all processes."""
    before = set(psutil.Process().children(recursive=True))
    monkeypatch.setattr(running_grid, "_LOOK_EVERY_S", QUICKLY_S)
    faults = Faults(service) if service == "grid-watch" else Faults(*(f"{service}{index}" for index in range(3)))
    faults.install(monkeypatch)
    looks = Looks(faults)
    grid = grid_of(mongo_url, redis_url, prefix, telemetry, looks)
    grid.start()
    try:
        assert grid.wait_ready(60)
        becomes(looks.quiet, within_s=60)
        assert grid.error is None
        assert faults.struck
        assert unnamed(failures, faults.struck) == []
    finally:
        grid.stop()
    processes = set(psutil.Process().children(recursive=True)) - before
    assert [process for process in processes if "quaestor" in " ".join(process.cmdline())] == []


def test_a_task_goes_on_while_the_watch_over_its_run_is_struck_everywhere(
    mongo_url: str,
    redis_url: str,
    prefix: str,
    telemetry: Telemetry,
    failures: list[FailureSeen],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every fault is counted, and the watch still notices that the run is over."""
    faults = Faults("run-watch")
    faults.install(monkeypatch)
    looks, get_state = Looks(faults), tasks.get_state

    def looked(*arguments: Any) -> Any:
        looks.look()
        return get_state(*arguments)

    monkeypatch.setattr(tasks, "get_state", looked)
    monkeypatch.setattr(tasks, "_LOOK_EVERY_S", QUICKLY_S)
    monkeypatch.setattr(tasks, "Telemetry", lambda: telemetry)
    monkeypatch.setattr(tasks.structlog, "configure", lambda **_: None)
    run = GridRun(prefix, SHAPE)
    loops = GridLoops.of(Settings(deployment=prefix, heartbeat_ms=40), SHAPE)
    with closing(event_layer(redis_url, prefix)) as layer:
        run.enter(layer)
        job = GridJob(run=run.own.run, redis_url=redis_url, mongo_url=mongo_url, loops=loops)
        task = threading.Thread(target=run_task, args=(job.entered(run.own, run.earlier), 0))
        task.start()
        try:
            becomes(looks.quiet, within_s=60)
            assert unnamed(failures, faults.struck) == []
        finally:
            faults.armed = False
            run.end(layer)
            task.join(60)
        assert not task.is_alive()
    becomes(lambda: alive_threads() == [])
