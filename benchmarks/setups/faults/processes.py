"""Processes of a running grid, found from outside, and what may happen to a process. By id only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pymongo

from benchmarks.setups.faults.proxy import Link


def kill(pid: int) -> None:
    """SIGKILL, as a crash would."""
    os.kill(pid, signal.SIGKILL)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Stopped in the middle of whatever they do, and going on afterwards as if nothing had been."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)


def executor_of(task_pid: int) -> psutil.Process:
    """The executor whose Python worker this is: worker, daemon, executor's JVM."""
    daemon = psutil.Process(task_pid).parent()
    executor = daemon.parent() if daemon is not None else None
    if executor is None:
        raise LookupError(f"process {task_pid} has no executor above it")
    return executor


def driver_jvm(grid_pid: int) -> psutil.Process:
    """The JVM of the driver, below the grid's own process."""
    return next(p for p in psutil.Process(grid_pid).children(recursive=True) if "SparkSubmit" in " ".join(_cmdline(p)))


def ingest_pid(client: pymongo.MongoClient[dict[str, Any]], link: Link | None = None) -> int | None:
    """The process that reads the change stream of the whole cluster (through this link); None while none is seen at it."""
    pipeline = [{"$currentOp": {"allUsers": True}}, {"$match": {"op": "getmore", "client": {"$exists": True}}}]
    for op in client.admin.aggregate(pipeline):
        stages = op.get("cursor", {}).get("originatingCommand", {}).get("pipeline", [])
        if not stages or not stages[0].get("$changeStream", {}).get("allChangesForCluster"):
            continue
        port: int | None = int(op["client"].rpartition(":")[2])
        port = port if link is None else link.client_port(port)
        owner = next(
            (c.pid for c in psutil.net_connections("tcp4") if c.laddr and c.laddr.port == port and c.pid), None
        )
        if owner is not None:
            return int(owner)
    return None


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
