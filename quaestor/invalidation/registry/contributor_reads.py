"""Reading of the contributors of registered results, in the background: no answer waits for it.

Soon after a registration its contributors are read from one snapshot, and sent to the cells under the same id. After any
failure the registration stays as it is: the images of each write guard it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from quaestor.errors import DatabaseError, QueryError
from quaestor.event_layer import codec, streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.contributor_pauses import ContributorPauses
from quaestor.invalidation.registry.due_registrations import DueRegistrations
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.invalidation.registry.registration_ids import in_round
from quaestor.model import Registration
from quaestor.planning.contributing import contributing, contributors_of
from quaestor.planning.plan_cache import plan_of
from quaestor.realtime.snapshots import Snapshots
from quaestor.runtime.supervision.process_context import ProcessContext

_MOST_WAITING: Final = 1_000
_LARGEST: Final = 256 * 1024
"""Largest size of a registration sent with its contributors, in bytes."""


def with_contributors(registration: Registration, snapshots: Snapshots, *, most: int) -> Registration | None:
    """Read the contributors of a registration; return it with them, or None if they cannot be known. Blocking.

    most: largest number of contributors.

    Raises DatabaseError, QueryError.
    """
    plan = plan_of(registration.query)
    at_least = max(registration.since, registration.read_at)
    find = contributing(plan, registration, images=False, most=most)
    if find is None:
        return None
    images = not snapshots.lacking_images([find.namespace], at_least=at_least)
    if images:
        find = contributing(plan, registration, images=True, most=most)
        if find is None:
            return None
    snapshot = snapshots.read([find], at_least=at_least)
    known = contributors_of(plan, registration, snapshot.own, version=snapshot.version, images=images, most=most)
    return None if known is None else replace(registration, contributors=known)


class ContributorReads:
    """Reader of contributors in one app process. `want` from the event loop; `run` is the body of a thread."""

    def __init__(self, registrations: ProcessRegistrations, process: ProcessContext) -> None:
        self._validity = registrations.validity
        self._view = registrations.view
        self._shared = registrations.shared
        self._sender = registrations.sender
        self._settings = process.settings
        self._telemetry = process.telemetry
        self._clock = process.clock
        self._most = process.settings.grid.max_contributors
        self._waiting = DueRegistrations(process.clock, most=_MOST_WAITING)
        self._pauses = ContributorPauses()

    def want(self, registrations: Sequence[Registration], *, renewed: bool = False) -> None:
        """Read the contributors of these registrations soon; skip them if too many registrations wait.

        The registration for tags and URL of an answer of a declared route is left out. Such records are written to be deleted at
        once, so contributors would tell nothing.

        renewed: the results were read again after a write, and were the same.
        """
        for registration in registrations if self._most else ():
            if registration.query.namespace == self._settings.store.control_namespace:
                continue
            plan = plan_of(registration.query)
            if contributing(plan, registration, images=False, most=self._most) is not None:
                pause_ms = self._pauses.of(registration, renewed=renewed)
                if not self._waiting.put(registration, due_ms=self._clock() + pause_ms):
                    return

    def run(self, snapshots: Snapshots, stop: threading.Event) -> None:
        """Read the wanted contributors until `stop` is set. One registration at a time limits the load on the database."""
        while (registration := self._waiting.take(stop)) is not None:
            if self._needed(registration):
                self._read(registration, snapshots)

    def end(self) -> None:
        """Wake the thread after `stop` was set: it may be waiting for a registration."""
        self._waiting.wake()

    def _needed(self, registration: Registration) -> bool:
        return self._shared.is_current(registration.id) and not self._validity.any_dead([in_round(registration.id, 0)])

    def _read(self, registration: Registration, snapshots: Snapshots) -> None:
        try:
            known = with_contributors(registration, snapshots, most=self._most)
            payload = None if known is None else codec.encode_query_event(known)
        except DatabaseError as error:
            self._telemetry.failure("mongodb", "registry.contributors_unread", error)
            return
        except QueryError:  # too many contributors, a capped collection: the registration stays as it is
            return
        shape = self._view.shape
        if payload is None or shape is None or len(payload) > _LARGEST or not self._needed(registration):
            return
        self._pauses.read(registration)
        partition = query_partition(registration.query_id, shape.query_partitions)
        self._sender.send(streams.queries(self._settings.deployment, partition, shape.generation), payload)
