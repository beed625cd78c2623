"""Statistics and history: a Structured Streaming job beside the grid, over the same pipelines. See docs/statistics.md.

`reader` shows the newest windows and reads the history without Spark; everything else runs in the job.
"""
