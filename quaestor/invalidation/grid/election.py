"""Election of the app process that runs the matching for all, while a deployment on Redis has no grid of its own.

Every process of the deployment is a candidate. The leaseholder enters a 1 x 1 grid in the state of the deployment. The
leaseholder runs the grid's loops in threads on the shared event layer, as an embedded process does on its own. The next
leaseholder takes over in the same generation, from the same checkpoints, like a restarted grid. A dedicated grid takes over
as from any other grid. The elected process then finds that the state no longer names it, and stops its loops.

**Two leaders at once.** A process that stood still for longer than its lease may find a successor at work. Its writes are
fenced from the end of the lease (`quaestor/event_layer/fenced.py`). A write under way at that moment equals one that a
second ingest, or a second cell, may always make. Cells recognise images by record and version, and a heartbeat proves only
its own cell's matching (docs/adr/0021-election.md).
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from quaestor.clock import Clock
from quaestor.errors import ConfigurationError, DatabaseError, EventLayerError
from quaestor.event_layer import streams
from quaestor.invalidation.grid.embedded import SHAPE, EmbeddedGrid
from quaestor.invalidation.grid.grid_run import FreshCells, GridRun
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import LeasingLayer
from quaestor.runtime.supervision.supervisor import KeptThread, Supervisor

_LEASES_IN_BOUND: Final = 3
"""Leases in a staleness bound: the end of a lease, its successor's first look and its start must fit into the bound."""
_LOOKS_IN_LEASE: Final = 5
_GRID_EVERY_S: Final = 1.0
_REFUSED_EVERY_S: Final = 5.0


class MatchedBy(StrEnum):
    """Parts of a deployment that may run its matching."""

    ELECTED = "elected"
    GRID = "grid"
    NOBODY = "nobody"


class Matching(NamedTuple):
    """Matching of a deployment: the part that runs it.

    by: the part.
    leader: the elected process, as host:pid; None: there is none now.
    """

    by: MatchedBy
    leader: str | None = None


def matching(layer: LeasingLayer, deployment: str) -> Matching:
    """Return the part that runs the matching, as the state names it; heartbeats show whether it lives.

    Raises EventLayerError.
    """
    holder = layer.leaseholder(streams.leader(deployment))
    leader = None if holder is None else holder.rpartition(":")[0]
    state = get_state(layer, deployment)
    if state is None or state.unattended:
        return Matching(MatchedBy.NOBODY if leader is None else MatchedBy.ELECTED, leader)
    return Matching(MatchedBy.GRID)


class Election:
    """Candidacy of one process. One thread of its own, and those of the grid while the process leads."""

    def __init__(
        self,
        layer: LeasingLayer,
        grid: Callable[[Callable[[], bool]], EmbeddedGrid],
        *,
        deployment: str,
        staleness_bound_ms: int,
        telemetry: Telemetry,
        clock: Clock,
        supervisor: Supervisor | None = None,
    ) -> None:
        """Make the candidacy; `start` begins.

        layer: event layer for the election only, see RedisEventLayer.
        grid: makes the grid to run; the passed function must fence its writes.
        """
        self._layer = layer
        self._grid = grid(self._held)
        self._deployment = deployment
        self._name = streams.leader(deployment)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self._lease_ms = max(1, staleness_bound_ms // _LEASES_IN_BOUND)
        self._held_until_s = 0.0
        self._followable = False
        self._run: GridRun | None = None
        self._cells: FreshCells | None = None
        self._telemetry = telemetry
        self._clock = clock
        self._supervisor = supervisor or Supervisor(telemetry)
        self._thread: KeptThread | None = None

    @property
    def leads(self) -> bool:
        """Whether this process runs the grid."""
        return self._run is not None

    def start(self) -> None:
        """Stand for election until `stop`. Returns at once."""
        self._thread = self._supervisor.thread("election", self._stand)

    def stop(self) -> None:
        """Withdraw the candidacy; a grid that runs here ends, and the next process may take over at once."""
        if self._thread is not None:
            self._thread.stop()
        self._grid.stop()
        self._layer.close()

    def step(self) -> float:
        """Do the due work; return the time until the next step, in s. Raises EventLayerError."""
        return self._candidate() if self._run is None else self._leader(self._run)

    def _stand(self, stop: threading.Event) -> None:
        pause_s = 0.0
        while not stop.wait(pause_s):
            try:
                pause_s = self.step()
            except EventLayerError as error:
                self._telemetry.failure("event-layer", "election.event_layer_failed", error)
                pause_s = self._look_every_s
        if self._run is not None:
            self._step_down("this process ends")

    @property
    def _look_every_s(self) -> float:
        return self._lease_ms / 1000 / _LOOKS_IN_LEASE

    def _candidate(self) -> float:
        if self._layer.leaseholder(self._name) is not None:
            return self._look_every_s
        state = get_state(self._layer, self._deployment)
        if state is not None and not state.unattended:
            return _GRID_EVERY_S
        if not self._can_follow():
            return _REFUSED_EVERY_S
        run = GridRun(self._deployment, SHAPE, elected=True)
        if self._take_lease():
            if run.enter_elected(self._layer):
                self._lead(run)
            else:
                self._layer.release(self._name, self._holder)
        return self._look_every_s

    def _leader(self, run: GridRun) -> float:
        if not self._take_lease():
            self._telemetry.failure("grid", "election.lease_lost", "this process stood still for longer than its lease")
            self._step_down("another process has been elected")
        elif not run.concerned(self._layer):
            self._step_down("a grid of its own has taken over")
        else:
            run.remind(self._layer)
            self._promote(run)
        return self._look_every_s

    def _take_lease(self) -> bool:
        """Take or prolong the lease, counted from before the request: it never lasts longer here than in the event layer."""
        asked_s = time.monotonic()
        held = self._layer.lease(self._name, self._holder, lease_ms=self._lease_ms)
        self._held_until_s = asked_s + self._lease_ms / 1000 if held else 0.0
        return held

    def _held(self) -> bool:
        return time.monotonic() < self._held_until_s

    def _can_follow(self) -> bool:
        """Whether this process can follow its database; otherwise it leaves the lead to other processes."""
        if not self._followable:
            try:
                self._grid.check()
            except (ConfigurationError, DatabaseError) as error:
                self._telemetry.failure("grid", "election.cannot_follow", error)
                return False
            self._followable = True
        return True

    def _lead(self, run: GridRun) -> None:
        cells = FreshCells(self._layer, self._deployment, run.own.shape, since_ms=self._clock())
        self._run, self._cells = run, cells
        try:
            self._grid.start(run.own.shape, run.earlier)
        except BaseException:  # a leader without loops would keep the lease, and nothing would be cached
            self._step_down("the loops of the grid did not start")
            raise
        self._telemetry.grid.elected.set(1)
        self._telemetry.event("election.won", generation=run.own.shape.generation)

    def _promote(self, run: GridRun) -> None:
        if run.serves or self._cells is None:
            return
        self._cells.look(wait_ms=0)
        if self._cells.complete:
            run.promote(self._layer)
            self._cells = None

    def _step_down(self, why: str) -> None:
        self._run = self._cells = None
        self._telemetry.grid.elected.set(0)
        self._telemetry.event("election.over", why=why)
        self._grid.stop()
        try:
            self._layer.release(self._name, self._holder)
        except EventLayerError as error:
            self._telemetry.failure("event-layer", "election.event_layer_failed", error)
