"""Spark session for the job only: started on this machine or connected to a cluster, and gone with the process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from quaestor.errors import ConfigurationError
from quaestor.invalidation.grid.spark.configuration import configuration
from quaestor.invalidation.grid.spark.gateway import spark_context
from quaestor.invalidation.grid.spark.home import environment, require_java, spark_home

DEFAULT_MASTER: Final = "local[2]"


def settings(master: str, home: Path) -> dict[str, str]:
    """Return settings of Spark: like the grid's, but tasks are short, and workers are used again."""
    return configuration(master) | {
        "spark.app.name": "quaestor-statistics",
        "spark.driver.memory": "1g",
        "spark.task.maxFailures": "4",
        "spark.cores.max": "2",  # on a standalone cluster, which would otherwise give all free cores
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
def spark_session(master: str, given: Mapping[str, str] = MappingProxyType({})) -> Iterator[Any]:
    """Start a SparkSession on a JVM of its own, which ends with this process, however it ends.

    given: settings that override ours.

    Raises ConfigurationError (no Java, no pyspark or pyarrow, Spark runs in this process already), DependencyError.
    """
    require_java()
    with ExitStack() as cleanup:
        home = cleanup.enter_context(spark_home())
        _require_parts()
        from pyspark.sql import SparkSession

        cleanup.enter_context(environment(home, master))
        cleanup.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", FutureWarning)  # about pandas, which is not used
        warnings.simplefilter("ignore", UserWarning)
        context = spark_context(
            settings(master, home) | dict(given),
            home=home,
            cleanup=cleanup,
            remedy="run the other use of Spark in a process of its own",
        )
        session = SparkSession(context)
        cleanup.callback(_end_session, session)
        yield session


def _require_parts() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ConfigurationError("pyarrow is not installed: pip install 'quaestor[spark]'") from error


def _end_session(session: Any) -> None:
    with suppress(Exception):  # a JVM that died takes the session with it
        session.stop()
