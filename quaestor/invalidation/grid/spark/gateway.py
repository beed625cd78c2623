"""Gateway to Spark: a JVM with a SparkContext for this process only."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from quaestor.errors import ConfigurationError, DependencyError

_STOP_S: Final = 10.0


def spark_context(settings: Mapping[str, str], *, home: Path, cleanup: ExitStack, remedy: str) -> Any:
    """Start a SparkContext on a JVM of its own. Closing `cleanup` ends both.

    home: from `spark_home()`, whose `environment` applies.
    remedy: advice for a process that runs Spark already.

    Raises ConfigurationError for such a process, DependencyError if Spark does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway
    if SparkContext._active_spark_context is not None:
        raise ConfigurationError(f"this process runs Spark already: {remedy}")
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    log = cleanup.enter_context((home / "driver.log").open("wb"))
    try:
        gateway = launch(conf, {"stdout": log, "stderr": log})
    except Exception as error:
        tail = (home / "driver.log").read_text(errors="replace")[-500:]
        raise DependencyError(f"Spark did not start: {error}; its log ends: {tail}") from error
    cleanup.callback(_end_gateway, gateway)
    context = SparkContext(conf=conf, gateway=gateway)
    cleanup.callback(_end_context, context)
    return context


def _end_context(context: Any) -> None:
    with suppress(Exception):  # a JVM that died takes its context with it
        context.stop()


def _end_gateway(gateway: Any) -> None:
    """End the JVM, and let this process start another one."""
    from pyspark import SparkContext

    with suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
