"""Metrics of channels."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class ChannelMetrics:
    """Runs of channels.

    runs: by outcome.
    run_s: duration of a run.
    stage_s: time of runs, by stage.
    rows: results, one for each group or subscription and record.
    channels: channels that this process runs.
    lag_s: lateness of the latest begun run.
    stretch: factor by which load stretches periods.
    brokers_down: brokers whose health checks fail.
    """

    def __init__(self, families: Families) -> None:
        self.runs = families.counters("channel_runs", "runs of channels", outcome=vocabularies.RUNS)
        self.run_s = families.histogram("channel_run_seconds", "duration of a run")
        self.stage_s = families.counters("channel_stage_seconds", "time of runs", stage=vocabularies.CHANNEL_STAGES)
        self.rows = families.counter("channel_rows", "results of channels")
        self.channels = families.gauge("channels", "channels that this process runs")
        self.lag_s = families.gauge("channel_lag_seconds", "lateness of the latest run")
        self.stretch = families.gauge("channel_stretch", "factor by which load stretches periods")
        self.brokers_down = families.gauge("channel_brokers_down", "brokers whose health checks fail")
