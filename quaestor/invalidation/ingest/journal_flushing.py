"""Journal flushes on request: they turn a write acknowledged before its journalling into a change event within milliseconds.

A change stream delivers writes that a majority has in its journal. mongod flushes its journal every 100 ms, and at once when a
writer waits for it. The event of a write with `w: 1, j: false` therefore comes up to 100 ms after the acknowledgement. The
primary's `hello` shows such a write: its newest write (A) is ahead of the majority commit point (M), and still is a moment
later. Then a delete that matches nothing, with `j: true`, makes mongod flush. The delete writes nothing. No event, no oplog
entry and no collection results from it, so it invalidates nothing, and no flush causes another.

**Price.** With such writers: one or two `hello` an interval, and at most one flush in one and a half intervals. Without: 20
`hello` a second. Where flushes have no effect, because members lag and not the journal, they become rarer, down to one in 10 s.

The change stream is independent of all this: the delivered events, their order, and the proof of a tick stay the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.invalidation.ingest.primary_probes import probe_primary
from quaestor.invalidation.ingest.stream_failures import NOT_ALLOWED
from quaestor.model import Version
from quaestor.observability.telemetry import Telemetry
from quaestor.tasks import pause_after

_NOBODY: Final = {"_id": "quaestor: nobody has this name"}
"""Filter that matches no record: names in the control namespace begin differently (see quaestor/tags.py)."""
_IDLE_S: Final = 0.05
_EXPECTED_S: Final = 10.0
"""Time after an effective flush for which another writer of this kind is expected."""
_VAIN_BEFORE_PAUSE: Final = 3
"""Vain flushes in a row before a pause. One may seem vain because the commit point moves a moment after the journal."""
_SHORTEST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_ANSWER_TIMEOUT_S: Final = 5.0
_AWAY_S: Final = 1.0
_REFUSED_S: Final = 60.0
"""Pause after a refusal; rights may be granted meanwhile."""


class FlushSchedule:
    """Decisions when to look and when to flush. Moments are those of time.monotonic(); no I/O, not thread-safe.

    effective, vain: flushes after which the majority had the awaited write, and flushes after which it had not.
    """

    def __init__(self, interval_s: float) -> None:
        self.effective = 0
        self.vain = 0
        self._interval_s = interval_s
        self._behind: Version = 0
        self._asked_for: Version = 0
        self._vain_in_a_row = 0
        self._quick_until_s = 0.0
        self._not_before_s = 0.0

    def due(self, applied: Version, majority: Version, *, now_s: float) -> bool:
        """Whether to flush now.

        applied, majority: the primary's newest write and its majority commit point, as just reported.
        """
        self._judge(majority, now_s)
        still_behind = majority < self._behind
        self._behind = applied if majority < applied else 0
        return still_behind and now_s >= self._not_before_s

    def flushed(self, applied: Version) -> None:
        """Note a flush that was requested when this was the newest write."""
        self._asked_for = applied

    def pause_s(self, now_s: float) -> float:
        """Return the time until the next look, in seconds."""
        if self._behind and now_s >= self._not_before_s:
            return self._interval_s / 2
        return self._interval_s if now_s < self._quick_until_s else max(self._interval_s, _IDLE_S)

    def _judge(self, majority: Version, now_s: float) -> None:
        """Judge whether the last flush was effective."""
        if not self._asked_for:
            return
        if majority >= self._asked_for:
            self.effective += 1
            self._vain_in_a_row = 0
            self._quick_until_s = now_s + _EXPECTED_S
        else:
            self.vain += 1
            self._vain_in_a_row += 1
            too_many = self._vain_in_a_row - _VAIN_BEFORE_PAUSE
            if too_many >= 0:
                self._not_before_s = now_s + pause_after(
                    too_many + 1, first_s=_SHORTEST_PAUSE_S, longest_s=_LONGEST_PAUSE_S
                )
        self._asked_for = 0


class JournalFlushing:
    """Journal flushes of one replica set, beside its ingest. run() is the body of a thread.

    interval_ms: time between two probes of the primary while writers do not wait for the journal.
    namespace: namespace of the delete; the user needs `remove` there.
    wanted: whether anything waits for prompt events now; while nothing does, the primary is not probed. None: always.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        *,
        interval_ms: int,
        namespace: str,
        telemetry: Telemetry,
        clock: Clock = system_clock,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._schedule = FlushSchedule(interval_ms / 1000)
        self._database, _, self._collection = namespace.partition(".")
        self._telemetry = telemetry
        self._clock = clock
        self._refused = False

    def run(self, stop: threading.Event) -> None:
        """Probe, and flush if necessary, until stop is set. Survives failures of MongoDB."""
        pause_s = 0.0
        while not stop.wait(pause_s):
            pause_s = self.step()

    def step(self) -> float:
        """Probe once, and flush if necessary; return the time until the next step, in seconds."""
        if self._wanted is not None and not self._wanted():
            return _IDLE_S
        effective, vain = self._schedule.effective, self._schedule.vain
        try:
            probe = probe_primary(self._client, self._clock)
        except (ConfigurationError, PyMongoError):
            return _AWAY_S  # the follower probes too, and reports it
        due = self._schedule.due(probe.applied, probe.majority, now_s=time.monotonic())
        flushes = self._telemetry.grid.journal_flushes
        flushes.labels("effective").inc(self._schedule.effective - effective)
        flushes.labels("vain").inc(self._schedule.vain - vain)
        if due:
            try:
                self._flush()
            except PyMongoError as error:
                return self._failed(error)
            self._schedule.flushed(probe.applied)
            self._refused = False
        return self._schedule.pause_s(time.monotonic())

    def _flush(self) -> None:
        with pymongo.timeout(_ANSWER_TIMEOUT_S):
            self._client.get_database(self._database).command(
                {
                    "delete": self._collection,
                    "deletes": [{"q": _NOBODY, "limit": 1}],
                    "writeConcern": {"w": 1, "j": True},
                }
            )

    def _failed(self, error: PyMongoError) -> float:
        if not isinstance(error, OperationFailure) or error.code not in NOT_ALLOWED:
            self._telemetry.failure("mongodb", "ingest.journal_flush_failed", error)
            return _AWAY_S
        if not self._refused:
            self._refused = True
            self._telemetry.failure(
                "mongodb",
                "ingest.journal_flush_refused",
                f"the user may not remove from {self._database}.{self._collection}, so journal flushes pause: {error}",
            )
        return _REFUSED_S
