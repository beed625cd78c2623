"""The grid on Spark: the thin shell around cells and ingest."""

from quaestor.invalidation.spark.grid import SparkGrid
from quaestor.invalidation.spark.job import cell_pids

__all__ = ["SparkGrid", "cell_pids"]
