"""Grid inside an app process: one thread of ingest, one matching node, the later stages of subscribed queries.

An embedded grid runs on the event layer in the process's memory, an elected one on the shared layer (see election.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pymongo

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.turns import TurnTakingLayer
from quaestor.invalidation.grid.grid_loops import GridLoops
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.runtime.supervision.supervisor import KeptThread, Supervisor
from quaestor.settings import Settings

SHAPE: Final = GridShape(query_partitions=1, write_partitions=1)
CELL: Final = Cell(query_partition=0, write_partition=0)

_RECONFIGURED_AFTER_S: Final = 5.0
_IDLE_SHARE: Final = 3 / 8
"""Share of the staleness bound: the heartbeat of ingest while nothing is registered. Its proof is then at most one and a half
heartbeats old, so the first request finds a fresh grid."""
_LONGEST_IDLE_MS: Final = 750
"""Longest such heartbeat, at any bound: the first request after a rest waits for a report of ingest."""
_IDLE_AFTER_S: Final = 10.0
"""Time without a registration after which ingest rests. The app of a test starts, writes and ends within less, and waits for
reports of ingest (`settled`)."""

_Loop = Callable[[EventLayer, threading.Event], None]

LayerSource = Callable[[], EventLayer]
"""Makes an event layer for one loop; the loop's owner closes it."""


class _Rest:
    """Rest of an ingest whose only node guards nothing. For one thread.

    slack: factor of the pauses at rest.
    """

    def __init__(self, slack: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._slack = slack
        self._monotonic = monotonic
        self._guarded_at_s = monotonic()

    def slack(self, *, guards: bool) -> int:
        """Return the present factor of the pauses."""
        now_s = self._monotonic()
        if guards:
            self._guarded_at_s = now_s
        return self._slack if now_s - self._guarded_at_s >= _IDLE_AFTER_S else 1


class EmbeddedGrid:
    """A 1 x 1 grid. start() and stop() own one thread for each loop; the supervisor restarts a loop that raises.

    stage_at_once: False: the stage starts when `need_stage` is called, because nobody subscribes to a query before.
    """

    def __init__(
        self,
        client_or_url: pymongo.MongoClient[Any] | str,
        *,
        layer: EventLayer | None = None,
        each_layer: LayerSource | None = None,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock = system_clock,
        supervisor: Supervisor | None = None,
        followed: Callable[[], bool] | None = None,
    ) -> None:
        """Make the grid; `start` begins.

        client_or_url: a client stays its owner's; for a URL, a client is made and closed.
        layer: event layer of all loops, which stays its owner's; None makes one in memory.
        followed: whether clients of this process follow live results; None: not known.
        each_layer: instead, makes an event layer for each loop: a layer on Redis reports a loss of data only once.
        """
        self._source = client_or_url
        self._owned: pymongo.MongoClient[Any] | None = None
        self._making = threading.Lock()
        self.layer: EventLayer = MemoryEventLayer(clock=clock) if layer is None else layer
        self._each_layer = each_layer
        self._loops = GridLoops.of(settings, SHAPE)
        idle_ms = min(settings.grid.staleness_bound_ms * _IDLE_SHARE, _LONGEST_IDLE_MS)
        self._rest = _Rest(max(1, int(idle_ms / settings.grid.heartbeat_ms)))
        self._node: MatchingNode | None = None
        self._followed = followed
        self._telemetry = telemetry
        self._clock = clock
        self._supervisor = supervisor or Supervisor(telemetry)
        self._threads: list[KeptThread] = []
        self.stage_at_once = True
        self._staging = threading.Lock()

    def check(self) -> None:
        """Check whether this database can be followed. Raises ConfigurationError with the remedy, or DatabaseError."""
        self._loops.ingest(self.layer, self._client(), self._telemetry, clock=self._clock).check()

    def start(self, shape: GridShape = SHAPE, earlier: Sequence[GridShape] = ()) -> None:
        """Start the threads. Returns at once, even if MongoDB does not answer; heartbeats then prove the grid.

        shape: shape with the generation.
        earlier: grids that this one takes over from.
        """
        self._loops = replace(self._loops, shape=shape, earlier=tuple(earlier))
        loops = {"ingest": self._run_ingest, "cell": self._run_cell}
        if self._loops.journal_flush_ms or (self._loops.live_journal_flush_ms and self._followed is not None):
            loops["journal"] = self._run_journal
        with self._staging:
            if self.stage_at_once:
                loops["stage"] = self._run_stage
            for name, loop in loops.items():
                self._start(name, loop)

    def need_stage(self) -> None:
        """Start the stage of subscribed queries, unless it runs. Any thread may call this, also before `start`."""
        with self._staging:
            if not self.stage_at_once and self._threads:
                self._start("stage", self._run_stage)
            self.stage_at_once = True

    def stop(self) -> None:
        """Stop the threads; return when all have ended."""
        with self._staging:
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.tell()
        if isinstance(self.layer, MemoryEventLayer):
            self.layer.wake()
        for thread in threads:
            thread.stop()
        if self._owned is not None:
            self._owned.close()
            self._owned = None

    def _start(self, name: str, loop: _Loop) -> None:
        self._threads.append(self._supervisor.thread(name, partial(self._keep, name, loop)))

    def _client(self) -> pymongo.MongoClient[Any]:
        if not isinstance(self._source, str):
            return self._source
        with self._making:
            if self._owned is None:
                self._owned = pymongo.MongoClient(self._source)
            return self._owned

    def _run_ingest(self, layer: EventLayer, stop: threading.Event) -> None:
        follower = self._loops.ingest(layer, self._client(), self._telemetry, clock=self._clock, slack=self._slack)
        follower.run(stop)

    def _run_cell(self, layer: EventLayer, stop: threading.Event) -> None:
        loop = self._loops.cell(CELL, layer, self._telemetry, clock=self._clock)
        self._node = loop.node
        loop.run(stop)

    def _slack(self) -> int:
        """Return the factor of ingest's pauses: while its only node guards nothing, no answer relies on freshness."""
        return self._rest.slack(guards=self._node is None or not self._node.guards_nothing)

    def _run_stage(self, layer: EventLayer, stop: threading.Event) -> None:
        stage = self._loops.stage(CELL.query_partition, layer, self._client(), self._telemetry, clock=self._clock)
        stage.run(stop)

    def _run_journal(self, layer: EventLayer, stop: threading.Event) -> None:
        journal = self._loops.journal(self._client(), self._telemetry, clock=self._clock, followed=self._followed)
        if journal is not None:
            journal.run(stop)

    def _keep(self, name: str, loop: _Loop, stop: threading.Event) -> None:
        """Run one loop. A database that cannot be followed is a mistake of the operator, not of the loop."""
        while not stop.is_set():
            try:
                self._run(loop, stop)
            except ConfigurationError as error:
                self._telemetry.failure("grid", "embedded.misconfigured", error, loop=name)
                stop.wait(_RECONFIGURED_AFTER_S)

    def _run(self, loop: _Loop, stop: threading.Event) -> None:
        if self._each_layer is None:
            loop(TurnTakingLayer(self.layer) if isinstance(self.layer, MemoryEventLayer) else self.layer, stop)
            return
        with closing(self._each_layer()) as layer:
            loop(layer, stop)
