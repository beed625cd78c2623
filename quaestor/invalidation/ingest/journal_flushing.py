"""Journal flushes on request: what was acknowledged before it was in the journal becomes a change event within milliseconds.

A change stream tells of what a majority has in its journal. mongod flushes its journal every 100 ms, and at once when a writer
waits for that; so of a write with `w: 1, j: false` the event comes up to 100 ms after the acknowledgement. That there is one the
primary's `hello` tells: a newest write (A) that the majority commit point (M) has not reached a moment later either. Then a
delete that matches nothing, with `j: true`, makes mongod flush. It writes nothing: no event follows from it, no entry in the
oplog, no collection is made; so it invalidates nothing, and no flush calls for another.

**Price.** While such writers are there one or two `hello` an interval, and at most one flush in one and a half; otherwise 20
`hello` a second. Where flushes bring nothing, because members and not the journal are behind, they become rarer, down to one in
10 s.

The change stream knows nothing of all this: what is delivered, in which order, and what a tick proves is as without it.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.invalidation.ingest.primary_probes import probe_primary
from quaestor.invalidation.ingest.stream_failures import NOT_ALLOWED
from quaestor.model import Version
from quaestor.observability.telemetry import Telemetry

_NOBODY: Final = {"_id": "quaestor: nobody has this name"}
"""Matches no record: those of the control namespace begin otherwise (see quaestor/tags.py)."""
_IDLE_S: Final = 0.05
_EXPECTED_S: Final = 10.0
"""So long after the last flush that helped another writer of this kind is expected."""
_VAIN_BEFORE_PAUSE: Final = 3
"""One may seem vain because the commit point moves a moment after the journal is written."""
_SHORTEST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_ANSWER_TIMEOUT_S: Final = 5.0
_AWAY_S: Final = 1.0
_REFUSED_S: Final = 60.0
"""Rights may be given meanwhile."""


class FlushSchedule:
    """Decisions when to look and when to flush. Moments are those of time.monotonic(); no I/O, not thread-safe.

    effective, vain: flushes after which the majority had what was waited for, and those after which it had not.
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

        applied, majority: the primary's newest write and its majority commit point, as they were just told.
        """
        self._judge(majority, now_s)
        still_behind = majority < self._behind
        self._behind = applied if majority < applied else 0
        return still_behind and now_s >= self._not_before_s

    def flushed(self, applied: Version) -> None:
        """Take note of a flush that was asked for when this was the newest write."""
        self._asked_for = applied

    def pause_s(self, now_s: float) -> float:
        """The time until the next look."""
        if self._behind and now_s >= self._not_before_s:
            return self._interval_s / 2
        return self._interval_s if now_s < self._quick_until_s else max(self._interval_s, _IDLE_S)

    def _judge(self, majority: Version, now_s: float) -> None:
        """Find out whether the last flush has helped."""
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
                self._not_before_s = now_s + min(_SHORTEST_PAUSE_S * 2 ** min(too_many, 10), _LONGEST_PAUSE_S)
        self._asked_for = 0


class JournalFlushing:
    """Journal flushes on one replica set, beside its ingest. run() is the body of a thread.

    interval_ms: how often the primary is asked while writers do not wait for the journal.
    namespace: where the delete goes; the user needs `remove` there.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        *,
        interval_ms: int,
        namespace: str,
        telemetry: Telemetry,
        clock: Clock = system_clock,
    ) -> None:
        self._client = client
        self._schedule = FlushSchedule(interval_ms / 1000)
        self._database, _, self._collection = namespace.partition(".")
        self._telemetry = telemetry
        self._clock = clock
        self._refused = False

    def run(self, stop: threading.Event) -> None:
        """Look, and flush if need be, until stop is set. Survives failures of MongoDB."""
        pause_s = 0.0
        while not stop.wait(pause_s):
            pause_s = self.step()

    def step(self) -> float:
        """Look once, and flush if need be; returns how long to wait before the next time, in seconds."""
        effective, vain = self._schedule.effective, self._schedule.vain
        try:
            probe = probe_primary(self._client, self._clock)
        except (ConfigurationError, PyMongoError):
            return _AWAY_S  # the follower asks the same, and reports it
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
                f"the user may not remove from {self._database}.{self._collection}, so nobody asks for journal flushes: {error}",
            )
        return _REFUSED_S
