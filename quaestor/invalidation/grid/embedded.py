"""Grid inside the application's process: one thread of ingest, one matching node, the later stages of subscribed queries, an
event layer in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import pymongo

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.journal_flushing import JournalFlushing
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.realtime.rules import StageRules
from quaestor.realtime.snapshots import MongoSnapshots
from quaestor.realtime.stage import StageLoop
from quaestor.settings import Settings

SHAPE: Final = GridShape(query_partitions=1, write_partitions=1)
CELL: Final = Cell(query_partition=0, write_partition=0)

_RESTART_AFTER_S: Final = 1.0
_RECONFIGURED_AFTER_S: Final = 5.0
_JOIN_S: Final = 15.0


class EmbeddedGrid:
    """A 1 x 1 grid. start() and stop() own one thread for each loop; a loop that dies is counted, logged and started again."""

    def __init__(
        self,
        client_or_url: pymongo.MongoClient[Any] | str,
        *,
        layer: EventLayer | None = None,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock = system_clock,
    ) -> None:
        """Make the grid; `start` begins.

        client_or_url: a client stays its owner's; of a URL, a client is made and closed.
        layer: None makes one.
        """
        self._source = client_or_url
        self._owned: pymongo.MongoClient[Any] | None = None
        self._making = threading.Lock()
        self.layer: EventLayer = MemoryEventLayer(clock=clock) if layer is None else layer
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def check(self) -> None:
        """Find out whether this database can be followed. Raises ConfigurationError with the remedy, or DatabaseError."""
        self._ingest().check()

    def start(self) -> None:
        """Start the threads. Returns at once, whether or not MongoDB answers; the grid proves itself by its heartbeats."""
        self._stop.clear()
        loops = {"ingest": self._run_ingest, "cell": self._run_cell, "stage": self._run_stage}
        if self._settings.journal_flush_ms:
            loops["journal"] = self._run_journal
        for name, loop in loops.items():
            thread = threading.Thread(target=self._keep, args=(name, loop), name=f"quaestor-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop the threads; returns when all have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_JOIN_S)
            if thread.is_alive():
                self._telemetry.failure("grid", "embedded.thread_did_not_end", thread.name)
        self._threads.clear()
        if self._owned is not None:
            self._owned.close()
            self._owned = None

    def _client(self) -> pymongo.MongoClient[Any]:
        if not isinstance(self._source, str):
            return self._source
        with self._making:
            if self._owned is None:
                self._owned = pymongo.MongoClient(self._source)
            return self._owned

    def _ingest(self) -> ChangeStreamFollower:
        return ChangeStreamFollower(
            self._client(),
            self.layer,
            SHAPE,
            deployment=self._settings.deployment,
            heartbeat_ms=self._settings.heartbeat_ms,
            bounds=PipelineBounds.of(self._settings),
            clock=self._clock,
            telemetry=self._telemetry,
        )

    def _run_ingest(self) -> None:
        self._ingest().run(self._stop)

    def _run_journal(self) -> None:
        JournalFlushing(
            self._client(),
            interval_ms=self._settings.journal_flush_ms,
            namespace=self._settings.control_namespace,
            telemetry=self._telemetry,
            clock=self._clock,
        ).run(self._stop)

    def _run_cell(self) -> None:
        CellLoop(
            MatchingNode(
                CELL,
                SHAPE,
                retention_ms=self._settings.retention_ms,
                max_bytes=self._settings.node_memory_bytes,
            ),
            self.layer,
            CELL,
            SHAPE,
            deployment=self._settings.deployment,
            heartbeat_ms=self._settings.heartbeat_ms,
            retention_ms=self._settings.retention_ms,
            bounds=PipelineBounds.of(self._settings),
            clock=self._clock,
            telemetry=self._telemetry,
        ).run(self._stop)

    def _run_stage(self) -> None:
        StageLoop(
            self.layer,
            MongoSnapshots(self._client(), max_records=self._settings.standing_records),
            CELL.query_partition,
            SHAPE,
            deployment=self._settings.deployment,
            heartbeat_ms=self._settings.heartbeat_ms,
            retention_ms=self._settings.retention_ms,
            rules=StageRules.of(self._settings),
            clock=self._clock,
            telemetry=self._telemetry,
        ).run(self._stop)

    def _keep(self, name: str, loop: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                loop()
            except ConfigurationError as error:
                self._telemetry.failure("grid", "embedded.misconfigured", error, loop=name)
                self._stop.wait(_RECONFIGURED_AFTER_S)
            except Exception as error:
                self._telemetry.failure("grid", "embedded.loop_died", repr(error), loop=name)
                self._stop.wait(_RESTART_AFTER_S)
