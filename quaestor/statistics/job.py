"""Statistics job: two streaming queries on one Spark, history and windows, and maintenance of their tables, until it is stopped.

Each query has a checkpoint of its own, and restarts from it after a failure. A repeated batch finds its result in the table
and adds nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from quaestor.clock import Clock, system_clock
from quaestor.errors import DependencyError, EventLayerError
from quaestor.event_layer.connecting import event_layer
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.statistics import history, published, windows
from quaestor.statistics.options import StatisticsOptions
from quaestor.statistics.session import DEFAULT_MASTER, spark_session
from quaestor.statistics.source import EVENTS, FORMAT, HISTORY, PipelineSource
from quaestor.tables.log import Table
from quaestor.tables.maintenance import maintain
from quaestor.tasks import pause_after

_LOOK_EVERY_S: Final = 0.5
_AGAIN_AFTER_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_QUERY_ID: Final = "sql.streaming.queryId"


class StatisticsJob:
    """Statistics job. Runs in the calling thread; one at a time for a directory. See docs/statistics.md."""

    def __init__(
        self,
        options: StatisticsOptions,
        *,
        master: str = DEFAULT_MASTER,
        telemetry: Telemetry | None = None,
        clock: Clock = system_clock,
        beside: Callable[[threading.Event], object] | None = None,
    ) -> None:
        """Make the job; `run` runs it.

        beside: work of a supervised thread of the driver, as long as the job runs: the filling of tables.
        """
        self._options = options
        self._beside = beside
        self._master = master
        self._telemetry = telemetry or Telemetry()
        self._clock = clock
        self._history, self._windows = Table(options.history), Table(options.windows)
        self._layer = event_layer(options.redis_url, options.deployment)

    def run(self, stop: threading.Event) -> None:
        """Run the job; return when `stop` is set.

        Raises ConfigurationError and DependencyError if Spark cannot be started, or ends.
        """
        with closing(self._layer), spark_session(self._master) as session:
            session.dataSource.register(PipelineSource)
            queries = [_SupervisedQuery(self, session, HISTORY), _SupervisedQuery(self, session, EVENTS)]
            self._telemetry.event("statistics.started", directory=str(self._options.directory))
            supervisor = Supervisor(self._telemetry)
            beside = None if self._beside is None else supervisor.thread("filling", self._beside)
            maintain_at_s = time.monotonic() + self._options.maintain_every_s
            try:
                while not stop.wait(_LOOK_EVERY_S):
                    if session._jsc.sc().isStopped():
                        raise DependencyError(
                            "Spark has ended: start the statistics again, they continue at their positions"
                        )
                    for query in queries:
                        query.supervise()
                    if time.monotonic() >= maintain_at_s:
                        self.maintain()
                        maintain_at_s = time.monotonic() + self._options.maintain_every_s
            finally:
                if beside is not None:
                    beside.stop()
                for query in queries:
                    query.stop()

    def maintain(self) -> None:
        """Compact and expire both tables; a failure is reported, and the next call tries again."""
        for table in (self._history, self._windows):
            try:
                maintain(
                    table,
                    file_bytes=self._options.file_bytes,
                    keep_days=self._options.keep_days,
                    grace_s=self._options.grace_s,
                    now_ms=self._clock(),
                )
            except (DependencyError, OSError, ValueError) as error:
                self._telemetry.failure("statistics", "statistics.maintenance_failed", error, table=str(table.root))

    def _start(self, session: Any, rows: str) -> Any:
        options = self._options
        stream = (
            session.readStream.format(FORMAT)
            .option("rows", rows)
            .option("redis_url", options.redis_url)
            .option("deployment", options.deployment)
            .option("most_entries", str(options.most_entries))
            .option("most_bytes", str(options.most_bytes))
            .load()
        )
        if rows == EVENTS:
            stream = windows.windowed(
                stream, lengths_s=options.windows_s, lateness_s=options.lateness_s, top=options.top, tracked=options.tracked
            )  # fmt: skip
        return (
            stream.writeStream.queryName(f"quaestor-{rows}")
            .outputMode("append")
            .option("checkpointLocation", options.checkpoint(rows))
            .trigger(processingTime=f"{int(options.trigger_s * 1000)} milliseconds")
            .foreachBatch(self._add_windows if rows == EVENTS else self._add_history)
            .start()
        )

    def _add_history(self, frame: Any, batch: int) -> None:
        history.add_batch(self._history, frame, query=_query_id(frame), batch=batch, now_ms=self._clock())

    def _add_windows(self, frame: Any, batch: int) -> None:
        frame.persist()
        try:
            shown = windows.busiest(frame, most=published.MOST_NAMES)
            windows.add_batch(self._windows, frame, query=_query_id(frame), batch=batch, now_ms=self._clock())
        finally:
            frame.unpersist()
        try:
            for length_s in self._options.windows_s:
                published.put(
                    self._layer, self._options.deployment, shown, length_s=length_s, now_ms=self._clock()
                )  # fmt: skip
        except EventLayerError as error:  # the windows are in the table
            self._telemetry.failure("event-layer", "statistics.publish_failed", error)


class _SupervisedQuery:
    """Streaming query that restarts after a failure, with growing pauses."""

    def __init__(self, job: StatisticsJob, session: Any, rows: str) -> None:
        self._job, self._session, self._rows = job, session, rows
        self._query: Any = None
        self._failed = 0
        self._due_s = 0.0
        self._batch = -1
        self.supervise()

    def supervise(self) -> None:
        now_s = time.monotonic()
        if self._query is not None:
            if self._query.isActive:
                self._progressed()
                return
            error = self._query.exception()
            self._query = None
            self._query_failed(error or "it ended by itself")
        if now_s >= self._due_s:
            try:
                self._query = self._job._start(self._session, self._rows)
            except Exception as error:  # Java's errors have no common class
                self._query_failed(error)

    def _progressed(self) -> None:
        """Note progress. No row is late by design; if a clock jumped, the uncounted rows are reported."""
        fresh = [progress for progress in self._query.recentProgress if progress.batchId > self._batch]
        if not fresh:
            return
        self._failed, self._batch = 0, fresh[-1].batchId
        late = sum(state.numRowsDroppedByWatermark for progress in fresh for state in progress.stateOperators)
        if late:
            self._job._telemetry.failure("statistics", "statistics.rows_late", f"{late} rows were not counted")

    def _query_failed(self, error: Any) -> None:
        self._failed += 1
        self._due_s = time.monotonic() + pause_after(self._failed, first_s=_AGAIN_AFTER_S, longest_s=_LONGEST_PAUSE_S)
        brief = str(error).strip()[:2000]
        self._job._telemetry.failure("statistics", "statistics.query_failed", brief, rows=self._rows)

    def stop(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:
                self._job._telemetry.event("statistics.stop_failed", error=str(error)[:300])


def _query_id(frame: Any) -> str:
    """Return the query's id, kept in the checkpoint and so the same in every run of the query."""
    query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise DependencyError("Spark does not name the streaming query of a batch", retryable=False)
    return str(query_id)
