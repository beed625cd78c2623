"""History of a channel's runs: duration, stages and results of the newest runs, kept in its result table for operators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quaestor.channels.runs.results import Results
from quaestor.tables.changes import Change, Snapshot

KEPT: Final = 30
"""Runs of a channel that are kept."""
_NOTE: Final = "runs"
_LONGEST_ERROR: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Report of a run.

    run: its instant; of a failed run, the instant of its end.
    outcome: one of vocabularies.RUNS.
    took_s: duration.
    period_s: length of the period at that time; 0: a period without one length.
    rows: results, one for each group or subscription and record.
    seconds: duration of each stage.
    error: of a failed run; empty: none.
    """

    run: int
    outcome: str
    took_s: float
    period_s: float
    rows: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def is_overrun(self) -> bool:
        """Whether the run took longer than its period."""
        return bool(self.period_s) and self.took_s > self.period_s


def keep(results: Results, report: RunReport) -> None:
    """Keep a report; reports beyond the newest ones are forgotten. Raises DependencyError."""
    fields = [report.run, report.outcome, round(report.took_s, 6), report.period_s, report.rows]
    seconds = {stage: round(duration, 6) for stage, duration in report.seconds.items()}

    def decide(now: Snapshot) -> Change:
        entries = json.loads(now.notes.get(_NOTE, "[]"))
        kept = [*entries, [*fields, seconds, report.error[:_LONGEST_ERROR]]][-KEPT:]
        return Change(notes={_NOTE: json.dumps(kept)})

    results.table.table.publish(decide, now_us=0)


def kept_reports(snapshot: Snapshot) -> list[RunReport]:
    """Return the reports in a state of a result table, the oldest first."""
    return [
        RunReport(run=run, outcome=outcome, took_s=took_s, period_s=period_s, rows=rows, seconds=seconds, error=error)
        for run, outcome, took_s, period_s, rows, seconds, error in json.loads(snapshot.notes.get(_NOTE, "[]"))
    ]
