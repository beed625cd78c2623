"""Where and how Spark is run: Java, the master, a private SPARK_HOME, and settings that suit long-running tasks."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import quaestor
from quaestor.errors import ConfigurationError
from quaestor.model import GridShape

JAVA_VERSIONS: Final = (17, 21)
_LOOPBACK: Final = "127.0.0.1"
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVMs only start and watch Python processes: half the processor time for their start, fewer threads afterwards."""
_FOR_EVER: Final = str(2**31 - 1)
"""Spark counts a task's failures as long as its job lives, and gives the whole job up at the limit: all other tasks with it."""
_CLUSTER_MANAGERS: Final = ("spark://", "yarn", "k8s://")


def require_java() -> str:
    """The Java that Spark will use. Raises ConfigurationError with the remedy if there is none, or one it cannot use."""
    remedy = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    binary = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if binary is None:
        raise ConfigurationError(
            f"no Java found{f' in JAVA_HOME={home}' if home else ''}, Spark needs 17 or 21: {remedy}"
        )
    told = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) not in JAVA_VERSIONS:
        raise ConfigurationError(f"{binary} is Java {version[1] if version else '?'}, Spark needs 17 or 21: {remedy}")
    return binary


def default_master(shape: GridShape) -> str:
    """Two executor processes on this machine, with room for every task."""
    return f"local-cluster[2,{math.ceil(tasks_of(shape) / 2)},1024]"


def tasks_of(shape: GridShape) -> int:
    """One for each cell, one for the later stages of each query partition, one for ingest."""
    return shape.query_partitions * shape.write_partitions + shape.query_partitions + 1


def require_slots(master: str, shape: GridShape) -> None:
    """Whether all tasks of the grid can run at once. Raises ConfigurationError with the remedy.

    A cluster manager's slots are only known when it has granted them: those masters pass.
    """
    tasks = tasks_of(shape)
    if master.startswith(_CLUSTER_MANAGERS):
        return
    if found := re.fullmatch(r"local-cluster\[(\d+),\s*(\d+),\s*\d+\]", master):
        slots = int(found[1]) * int(found[2])
    elif found := re.fullmatch(r"local\[(\d+),\s*(\d+)\]", master):
        slots = int(found[1])
        if int(found[2]) < 2:
            raise ConfigurationError(f"master {master!r} never restarts a task: write local[{slots},1000000]")
    else:
        raise ConfigurationError(
            f"master {master!r} is none that the grid runs on: use {default_master(shape)}, local[{tasks},1000000] "
            "(slots, attempts), spark://host:port, yarn or k8s://..."
        )
    if slots < tasks:
        stages = shape.query_partitions
        raise ConfigurationError(
            f"master {master!r} has {slots} slots, {tasks - stages - 1} cells, {stages} stages and ingest need {tasks}: "
            f"use {default_master(shape)}"
        )


_OURS: Final = frozenset(
    {
        "spark.master", "spark.task.maxFailures", "spark.excludeOnFailure.enabled", "spark.speculation",
        "spark.python.worker.reuse", "spark.python.daemon.module", "spark.submit.deployMode",
    }
)  # fmt: skip
"""What the grid relies on."""


def spark_settings(given: Sequence[str]) -> dict[str, str]:
    """`key=value` pairs, as spark-submit takes them. Raises ConfigurationError for what is none, or not to be changed."""
    settings: dict[str, str] = {}
    for pair in given:
        name, assigned, value = pair.partition("=")
        if not assigned or not name.startswith("spark."):
            raise ConfigurationError(f"--conf {pair!r} is not of the form spark.name=value")
        if name in _OURS:
            raise ConfigurationError(f"--conf {name}: the grid relies on its own value; leave it out")
        settings[name] = value
    return settings


def configuration(master: str) -> dict[str, str]:
    """Spark settings: tasks that run for ever, are restarted one by one, and never twice at a time."""
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
        "spark.python.worker.reuse": "false",
        "spark.python.daemon.module": "quaestor.invalidation.spark.daemon",
        "spark.locality.wait": "0s",
        "spark.scheduler.revive.interval": "100ms",
        "spark.executorEnv.PYTHONUNBUFFERED": "1",
    }
    if not _brings_its_own_python(master):
        settings["spark.executorEnv.PYTHONPATH"] = str(Path(quaestor.__file__).parents[1])
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
        }
    return settings


_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def spark_home() -> Iterator[Path]:
    """A folder that looks like Spark's installation and is ours to write in; removed with all logs at the end.

    Spark's own workers write below SPARK_HOME, which for the pip package is the Python environment, perhaps read-only.
    Raises ConfigurationError if pyspark is not installed.
    """
    try:
        import pyspark
    except ImportError as error:
        raise ConfigurationError("pyspark is not installed: pip install 'quaestor[spark]'") from error
    home = Path(tempfile.mkdtemp(prefix="quaestor-spark-"))
    try:
        for part in Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]).iterdir():
            if part.name not in ("conf", "work", "logs"):
                (home / part.name).symlink_to(part)
        (home / "conf").mkdir()
        (home / "conf" / "log4j2.properties").write_text(_LOG4J)
        (home / "tmp").mkdir()
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _brings_its_own_python(master: str) -> bool:
    """Whether the executors, on other machines, have a Python that was named to us: see docs/cluster.md."""
    return master.startswith(_CLUSTER_MANAGERS) and bool(os.environ.get("PYSPARK_PYTHON"))


@contextmanager
def environment(home: Path, master: str) -> Iterator[None]:
    """This process's environment as Spark's launcher and executors are to inherit it; as it was, afterwards."""
    wanted = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_DIRS": str(home / "tmp"),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if not _brings_its_own_python(master):
        wanted["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = _LOOPBACK
    before: Mapping[str, str | None] = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
