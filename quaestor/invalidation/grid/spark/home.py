"""Home of Spark on this machine: Java, a private SPARK_HOME, and the environment that launcher and executors inherit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.invalidation.grid.spark.configuration import LOOPBACK, brings_its_own_python, on_this_machine
from quaestor.invalidation.grid.spark.pools import ALLOCATIONS
from quaestor.invalidation.grid.spark.temporary_folders import own_folder

JAVA_VERSIONS: Final = (17, 21)


def require_java() -> str:
    """Return the Java that Spark will use. Raises ConfigurationError with the remedy if it is missing or unsuitable."""
    remedy = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    binary = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if binary is None:
        raise ConfigurationError(
            f"no Java found{f' in JAVA_HOME={home}' if home else ''}, but Spark needs 17 or 21: {remedy}"
        )
    output = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) not in JAVA_VERSIONS:
        raise ConfigurationError(
            f"{binary} is Java {version[1] if version else '?'}, but Spark needs 17 or 21: {remedy}"
        )
    return binary


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
    """Make a writable folder that looks like Spark's installation; it is removed with all logs at the end.

    If this process is killed, the next process that makes such a folder removes it.

    Spark's own workers write below SPARK_HOME. For the pip package that is the Python environment, perhaps read-only. Raises
    ConfigurationError if pyspark is not installed.
    """
    try:
        import pyspark
    except ImportError as error:
        raise ConfigurationError("pyspark is not installed: pip install 'quaestor[spark]'") from error
    with own_folder("quaestor-spark-") as home:
        for part in Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]).iterdir():
            if part.name not in ("conf", "work", "logs"):
                (home / part.name).symlink_to(part)
        (home / "conf").mkdir()
        (home / "conf" / "log4j2.properties").write_text(_LOG4J)
        (home / "conf" / "fairscheduler.xml").write_text(ALLOCATIONS)
        (home / "tmp").mkdir()
        yield home


@contextmanager
def environment(home: Path, master: str) -> Iterator[None]:
    """Set this process's environment for Spark's launcher and executors, which inherit it; restore it afterwards."""
    wanted = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_DIRS": str(home / "tmp"),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if not brings_its_own_python(master):
        wanted["PYSPARK_PYTHON"] = sys.executable
    if on_this_machine(master):
        wanted["SPARK_LOCAL_IP"] = LOOPBACK
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
