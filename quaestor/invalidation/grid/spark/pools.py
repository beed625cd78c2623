"""Scheduling pools of the grid's jobs: their order when there are fewer slots than tasks.

First comes ingest, without which no cell is fed. The cells follow, without which a stage has nothing to do. Each kind has a
job, and its job a pool of Spark's fair scheduler. The scheduler gives a free slot to the first pool that waits for one.
"""

from __future__ import annotations

from typing import Final

INGEST: Final = "1 ingest"
CELLS: Final = "2 cells"
STAGES: Final = "3 stages"
ORDER: Final = (INGEST, CELLS, STAGES)
"""Order of the pools. Spark prefers pools below their minimum share; then the smallest part of the minimum; then the name."""
ALLOCATIONS: Final = f"""\
<?xml version="1.0"?>
<allocations>
  <pool name="{INGEST}"><minShare>1</minShare></pool>
  <pool name="{CELLS}"><minShare>1000000</minShare></pool>
  <pool name="{STAGES}"><minShare>0</minShare></pool>
</allocations>
"""
SCHEDULING: Final = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.retainedTasks": "1000",  # of a stage, in the driver's memory: a task that cannot start fails for ever
}
