"""Filling of several tables in one process of a deployment, and their maintenance.

Filling is safe in several processes at once: each entry is published once. The lease only saves the others' work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pymongo import MongoClient

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError, DependencyError, QuaestorError
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import KeptThread, Supervisor
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.collections import FollowedCollection, with_key
from quaestor.tables.filled import FilledTable
from quaestor.tables.inference import ID, schema_of_key
from quaestor.tables.maintenance import Maintained
from quaestor.tables.retention import maintained

LEASE_S: Final = 6.0
_LOOK_S: Final = 1.5
_MAINTAIN_EVERY_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FillingParts:
    """Parts that the filling works with.

    held: takes or prolongs the lease of the deployment; returns whether this process has it. Raises DependencyError.
    keep_days: age up to which superseded versions are kept; 0: for ever.
    maintain_every_s: time between two maintenances of the filled tables.
    """

    client: MongoClient[Any]
    catalogue: Catalogue
    telemetry: Telemetry
    supervisor: Supervisor
    held: Callable[[], bool] = lambda: True
    keep_days: int = 0
    maintain_every_s: float = _MAINTAIN_EVERY_S
    clock: Clock = system_clock


class Filling:
    """Filling of the tables of one deployment, as the body of a supervised thread."""

    def __init__(self, tables: Sequence[FilledTable], parts: FillingParts) -> None:
        self._tables = tables
        self._parts = parts

    def run(self, stop: threading.Event) -> None:
        """Fill the tables until `stop` is set, while this process has the lease."""
        while not stop.is_set():
            if self._held(before=False):
                self._fill(stop)
            stop.wait(_LOOK_S)

    def maintain(self) -> Mapping[str, Maintained]:
        """Maintain the tables once; return the outcomes by table. A failure is reported, and the next call tries again."""
        done = {}
        for described in self._tables:
            try:
                if described.name in self._parts.catalogue.names():
                    table = self._parts.catalogue.open(described.name)
                    done[described.name] = maintained(
                        table, keep_days=self._parts.keep_days, now_ms=self._parts.clock()
                    )
            except (QuaestorError, OSError, ValueError) as error:
                self._parts.telemetry.failure("tables", "tables.maintenance_failed", error, table=described.name)
        return done

    def _fill(self, stop: threading.Event) -> None:
        """Fill until `stop` is set, or the lease is lost."""
        parts = self._parts
        names = [table.name for table in self._tables]
        parts.telemetry.event("tables.filling_began", tables=names)
        threads = [self._thread(table) for table in self._tables]
        maintain_at_s = time.monotonic() + parts.maintain_every_s
        try:
            while not stop.wait(_LOOK_S) and self._held(before=True):
                if time.monotonic() >= maintain_at_s:
                    self.maintain()
                    maintain_at_s = time.monotonic() + parts.maintain_every_s
        finally:
            for thread in threads:
                thread.tell()
            for thread in threads:
                thread.stop()
            parts.telemetry.event("tables.filling_over", tables=names)

    def _thread(self, table: FilledTable) -> KeptThread:
        parts = self._parts
        followed = FollowedCollection(
            parts.client[table.database][table.collection], parts.catalogue, table.name,
            declared=table.declared, telemetry=parts.telemetry, clock=parts.clock,
        )  # fmt: skip
        return parts.supervisor.thread(f"filling {table.name}", followed.run)

    def _held(self, *, before: bool) -> bool:
        """Whether this process has the lease. While the event layer does not answer, nothing changes."""
        try:
            return self._parts.held()
        except DependencyError as error:
            self._parts.telemetry.failure("event-layer", "tables.lease_failed", error)
            return before


def create_declared(tables: Sequence[FilledTable], catalogue: Catalogue) -> None:
    """Create the tables whose columns and key are declared, so that queries find them before the first record.

    Raises DependencyError. A refused declaration is reported by the filling.
    """
    for described in tables:
        kind = None if described.declared is None else described.declared.type_of(ID)
        if described.declared is None or kind is None or described.name in catalogue.names():
            continue
        with suppress(ConfigurationError):  # another process was faster
            catalogue.create(described.name, with_key(described.declared, schema_of_key(kind)))
