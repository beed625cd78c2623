"""SparkSession for continuous queries: the session of this process, or a new one."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, Final

from quaestor.errors import ConfigurationError, DependencyError

_SETTINGS: Final = {
    "spark.app.name": "quaestor-continuous",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # failures of queries come as exceptions
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}


def spark_session(master: str) -> Any:
    """Return a SparkSession. Its JVM ends with this process, however it ends.

    master: as spark-submit takes it, such as `local[2]` or `spark://host:7077`.

    Raises ConfigurationError without pyspark, DependencyError if Spark does not start.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pandas, which is not used
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise ConfigurationError("pyspark is not installed: pip install 'quaestor[spark]'") from error
        local = tempfile.gettempdir()
        builder = SparkSession.builder.master(master)
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.sql.warehouse.dir", str(Path(local, "spark-warehouse")))
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise DependencyError(f"Spark did not start at {master!r}: {str(error)[:500]}") from error
