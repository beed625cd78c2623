"""A Spark of the job's own: started on this machine or connected to a cluster, and gone with the process."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.invalidation.spark.home import configuration, environment, require_java, spark_home

DEFAULT_MASTER: Final = "local[2]"
_STOP_S: Final = 10.0


def settings(master: str, home: Path) -> dict[str, str]:
    """As the grid's, but tasks are short, and workers are used again."""
    return configuration(master) | {
        "spark.app.name": "quaestor-statistics",
        "spark.driver.memory": "1g",
        "spark.task.maxFailures": "4",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "quaestor.statistics.daemon",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "tmp" / "warehouse"),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.sql.streaming.stopTimeout": "10s",
    }


@contextmanager
def spark_session(master: str) -> Iterator[Any]:
    """A SparkSession on a JVM of its own, which ends with this process however that ends.

    Raises ConfigurationError (no Java, no pyspark or pyarrow, Spark runs in this process already), DependencyError.
    """
    require_java()
    with ExitStack() as cleanup:
        home = cleanup.enter_context(spark_home())
        _require_parts()
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        launch: Callable[..., Any] = launch_gateway
        if SparkContext._active_spark_context is not None:
            raise ConfigurationError("this process runs Spark already: run the statistics in a process of their own")
        conf = SparkConf(loadDefaults=False)
        for name, value in settings(master, home).items():
            conf.set(name, value)
        log = cleanup.enter_context((home / "driver.log").open("wb"))
        cleanup.enter_context(environment(home, master))
        cleanup.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", FutureWarning)  # about pandas, which is not used
        warnings.simplefilter("ignore", UserWarning)
        try:
            gateway = launch(conf, {"stdout": log, "stderr": log})
        except Exception as error:
            tail = (home / "driver.log").read_text(errors="replace")[-500:]
            raise DependencyError(f"Spark did not start: {error}; its log ends: {tail}") from error
        cleanup.callback(_end_gateway, gateway)
        context = SparkContext(conf=conf, gateway=gateway)
        session = SparkSession(context)
        cleanup.callback(_end_session, session)
        yield session


def _require_parts() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ConfigurationError("pyarrow is not installed: pip install 'quaestor[spark]'") from error


def _end_session(session: Any) -> None:
    with suppress(Exception):  # a JVM that died takes it with it
        session.stop()


def _end_gateway(gateway: Any) -> None:
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
