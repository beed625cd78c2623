"""Reaper of processes: leaves none behind, not even grandchildren (Spark's executors and Python workers, uvicorn's workers)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress

import psutil

from quaestor.testing.servers import Server

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Adopt orphans from now on: descendants whose parent dies become children of this process instead of init's (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[psutil.Process]:
    """Processes that descend from this one; none if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def stop_tree(server: Server, *, grace_s: float = 5.0) -> None:
    """Stop a server, then every process that it had started and left behind."""
    below = descendants(server.pid) if server.process is not None else []
    server.stop()
    end(below, grace_s=grace_s)


def end(processes: Sequence[psutil.Process], *, grace_s: float = 5.0) -> None:
    """End processes: SIGTERM, then SIGKILL after the grace. Ended processes are ignored (no pid is reused: psutil compares
    the time of creation)."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=grace_s)


def sweep() -> None:
    """End every descendant of this process. For a process that owns all it started, as `quaestor demo` does."""
    end(psutil.Process().children(recursive=True))
