"""One handler run per key across real processes, also when the one that runs it is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.end_to_end.stampede_worker import LEASE_MS, STARTED_WITHIN_S
from tests.support import DEADLINE_S, eventually

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


class Processes:
    def __init__(self, url: str, deployment: str) -> None:
        self._url, self._deployment = url, deployment
        self.redis = redis.Redis.from_url(url)
        self.all: list[subprocess.Popen[str]] = []

    def start(self, requests: int = 20) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.end_to_end.stampede_worker", self._url, self._deployment, str(requests)]
        self.all.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT))
        return self.all[-1]

    def count(self, name: str) -> int:
        return int(self.redis.get(f"{self._deployment}:{name}") or 0)  # type: ignore[arg-type]

    def open_gate(self) -> None:
        self.redis.set(f"{self._deployment}:gate", 1)


@pytest.fixture
def processes(redis_url: str, prefix: str) -> Iterator[Processes]:
    processes = Processes(redis_url, prefix)
    yield processes
    for process in processes.all:
        process.kill()
        process.communicate(timeout=DEADLINE_S)
    if names := list(processes.redis.scan_iter(match=f"*{prefix}*")):
        processes.redis.delete(*names)
    processes.redis.close()


async def test_many_requests_at_three_processes_are_one_run(processes: Processes) -> None:
    running = [processes.start() for _ in range(3)]
    await eventually(lambda: processes.count("asking") == 3 and processes.count("runs") == 1, within_s=STARTED_WITHIN_S)
    processes.open_gate()
    for process in running:
        assert process.communicate(timeout=30)[0].splitlines() == ["run 1"] * 20
    assert processes.count("runs") == 1


async def test_when_the_process_that_runs_the_handler_is_killed_another_one_does(processes: Processes) -> None:
    first = processes.start()
    await eventually(lambda: processes.count("runs") == 1, within_s=STARTED_WITHIN_S)
    others = [processes.start() for _ in range(2)]
    await eventually(lambda: processes.count("asking") == 3, within_s=STARTED_WITHIN_S)
    first.kill()
    await eventually(lambda: processes.count("runs") == 2, within_s=LEASE_MS / 1000 + DEADLINE_S)
    processes.open_gate()
    for process in others:
        assert process.communicate(timeout=30)[0].splitlines() == ["run 2"] * 20
    assert processes.count("runs") == 2
