"""Grid of local processes, one for each task: the same cells, stages and ingest as on Spark, without Java.

A task that dies is restarted alone; the others are not disturbed. A task whose parent dies ends by itself (see tasks.py).
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from functools import partial
from multiprocessing.context import SpawnProcess
from typing import Final

from quaestor.invalidation.grid.running_grid import ANOTHER, RunningGrid
from quaestor.invalidation.grid.tasks import GridJob, run_task
from quaestor.runtime.supervision.supervisor import KeptThread

_RESTART_AFTER_S: Final = 0.5
_TERMINATE_S: Final = 5.0
_DONE: Final = 0


class ProcessGrid(RunningGrid):
    """Grid whose tasks are child processes on this machine."""

    _threads: list[KeptThread]

    def _launch(self) -> None:
        self._spawning = multiprocessing.get_context("spawn")
        self._processes: dict[int, SpawnProcess] = {}
        self._threads = [
            self._supervisor.thread(f"task-{index}", partial(self._keep, index)) for index in range(self.job.tasks)
        ]

    def _join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.stop(within_s=max(0.0, deadline - time.monotonic()))

    def _release(self) -> None:
        for process in list(self._processes.values()):
            if process.is_alive():
                process.terminate()
                process.join(_TERMINATE_S)
            if process.is_alive():
                process.kill()
                process.join()

    def _keep(self, index: int, stop: threading.Event) -> None:
        """Run one task, again whenever its process dies, until the run is over."""
        while not (stop.is_set() or self._stopping.is_set()):
            process = self._spawning.Process(target=_task, args=(self.job, index), name=f"quaestor-task-{index}")
            process.start()
            self._processes[index] = process
            process.join()
            if self._stopping.is_set():
                return
            if process.exitcode == _DONE:
                self._ends(ANOTHER)
                return
            self._telemetry.failure("grid", "grid.process_ended", f"exit code {process.exitcode}", task=index)
            self._stopping.wait(_RESTART_AFTER_S)


def _task(job: GridJob, index: int) -> None:
    """Run a task in a process of its own. Ctrl-C reaches the whole group, so it is ignored; the parent ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_task(job, index)
