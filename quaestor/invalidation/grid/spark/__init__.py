"""Grid on Spark: the thin shell around cells and ingest."""

from quaestor.invalidation.grid.cell_processes import cell_pids
from quaestor.invalidation.grid.spark.grid import SparkGrid

__all__ = ["SparkGrid", "cell_pids"]
