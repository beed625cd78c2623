"""Spark settings for long-running tasks, and the resources that they request from a cluster manager."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.invalidation.grid.spark.slots import CLUSTER_MANAGERS

LOOPBACK: Final = "127.0.0.1"
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVMs only start and watch Python processes: half the processor time for their start, fewer threads afterwards."""
_FOR_EVER: Final = str(2**31 - 1)
"""Spark counts a task's failures while its job lives. At the limit it gives up the whole job, with all other tasks."""
_EXECUTOR_MEMORY: Final = "512m"
"""Memory of the JVM, near the least that Spark accepts. The content of cells lies in their Python processes, outside of it."""
_TASK_OVERHEAD_BYTES: Final = 192 * 1024 * 1024
"""Memory of an empty Python process of the grid, with its part of the daemon and of the JVM's own overhead."""

_IMPORT_ROOT: Final = str(Path(__file__).parents[4])
"""Folder that holds the package `quaestor`: executors on this machine import the same code."""

_OURS: Final = frozenset(
    {
        "spark.master", "spark.task.maxFailures", "spark.task.cpus", "spark.excludeOnFailure.enabled", "spark.speculation",
        "spark.python.worker.reuse", "spark.python.daemon.module", "spark.submit.deployMode",
        "spark.dynamicAllocation.enabled",
    }
)  # fmt: skip
"""Settings whose values the grid relies on."""


def spark_settings(given: Sequence[str]) -> dict[str, str]:
    """Return settings from `key=value` pairs, as spark-submit takes them.

    Raises ConfigurationError for an invalid setting, and for one that the grid relies on.
    """
    settings: dict[str, str] = {}
    for pair in given:
        name, assigned, value = pair.partition("=")
        if not assigned or not name.startswith("spark."):
            raise ConfigurationError(f"--conf {pair!r} is not of the form spark.name=value")
        if name in _OURS:
            raise ConfigurationError(f"--conf {name}: the grid relies on its own value; leave it out")
        settings[name] = value
    return settings


def on_this_machine(master: str) -> bool:
    """Whether all of Spark runs on this machine, so that no other machine needs to reach it."""
    return master.startswith("local") or re.match(r"spark://(127\.|localhost[:,])", master) is not None


def brings_its_own_python(master: str) -> bool:
    """Whether executors on other machines have their own Python, named by PYSPARK_PYTHON: see docs/cluster.md."""
    return master.startswith(CLUSTER_MANAGERS) and bool(os.environ.get("PYSPARK_PYTHON"))


def configuration(master: str) -> dict[str, str]:
    """Return Spark settings for tasks that run for ever, restart one by one, and never run twice at a time."""
    settings = {
        "spark.master": master,
        "spark.app.name": "quaestor-grid",
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        "spark.task.maxFailures": _FOR_EVER,
        "spark.excludeOnFailure.enabled": "false",
        "spark.speculation": "false",
        "spark.dynamicAllocation.enabled": "false",
        "spark.python.worker.reuse": "false",
        "spark.python.daemon.module": "quaestor.invalidation.grid.spark.daemon",
        "spark.locality.wait": "0s",
        "spark.scheduler.revive.interval": "100ms",
        "spark.executorEnv.PYTHONUNBUFFERED": "1",
        "spark.executor.logs.rolling.strategy": "size",  # for local-cluster; a standalone worker has its own
        "spark.executor.logs.rolling.maxSize": str(16 * 1024 * 1024),
        "spark.executor.logs.rolling.maxRetainedFiles": "2",
    }
    if not brings_its_own_python(master):
        settings["spark.executorEnv.PYTHONPATH"] = _IMPORT_ROOT
    if on_this_machine(master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return settings


def requested(master: str, tasks: int, given: Mapping[str, str], *, task_bytes: int = 0) -> dict[str, str]:
    """Return settings that request a slot for each task from a cluster manager, and not the whole cluster.

    task_bytes: memory that a task may hold in its Python process.
    given: settings already chosen, which win. Raises ConfigurationError if they request less than the tasks need.
    """
    if not master.startswith(CLUSTER_MANAGERS):
        return {}
    chosen, cores = dict(given), _number(given, "spark.executor.cores", 1)
    if master.startswith("spark://"):
        settings = {
            "spark.cores.max": str(math.ceil(tasks / cores) * cores),
            "spark.executor.memory": _EXECUTOR_MEMORY,
        } | chosen
        names, slots = ["spark.cores.max"], _number(settings, "spark.cores.max") // cores * cores
    else:
        overhead_mib = math.ceil(cores * (task_bytes + _TASK_OVERHEAD_BYTES) / 2**20)
        settings = {
            "spark.executor.cores": str(cores),
            "spark.executor.instances": str(math.ceil(tasks / cores)),
            "spark.executor.memory": _EXECUTOR_MEMORY,
            "spark.executor.memoryOverhead": f"{overhead_mib}m",
            "spark.executor.maxNumFailures": _FOR_EVER,
        } | chosen
        names, slots = (
            ["spark.executor.instances", "spark.executor.cores"],
            _number(settings, "spark.executor.instances") * cores,
        )
    if slots < tasks:
        named = " ".join(f"--conf {name}={given[name]}" for name in names if name in given)
        raise ConfigurationError(
            f"{named} asks for {slots} slots, the grid needs {tasks}: ask for more, or leave it out"
        )
    return settings


def _number(settings: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = settings.get(name, str(default))
    if not re.fullmatch(r"[1-9]\d{0,6}", value):
        raise ConfigurationError(f"--conf {name}={value} is not a whole number above 0")
    return int(value)
