"""Scheduling pools of the grid's jobs: they decide who goes first when there are fewer slots than tasks.

First comes ingest, without which no cell is fed, then come the cells, without which a stage has nothing to do. Each has
a job, and its job a pool of Spark's fair scheduler, which gives a free slot to the first that waits for one.
"""

from __future__ import annotations

from typing import Final

INGEST: Final = "1 ingest"
CELLS: Final = "2 cells"
STAGES: Final = "3 stages"
ORDER: Final = (INGEST, CELLS, STAGES)
"""Spark takes those in need of their minimum first, the one with the least of its minimum before, by name if they are alike."""
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
