"""Reading of the records that contribute to registered results, in the background: no answer waits for it.

Soon after a registration its contributors are read from one snapshot, and told to the cells under the same id. Whatever fails
leaves the registration as it is: guarded, by what the images of each write tell.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from quaestor.clock import Clock
from quaestor.errors import DatabaseError, QueryError
from quaestor.event_layer import codec, streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.grid_view import GridView
from quaestor.invalidation.registry.query_sender import QuerySender
from quaestor.invalidation.registry.registration_ids import in_round
from quaestor.invalidation.registry.shared_registrations import SharedRegistrations
from quaestor.invalidation.registry.validity import Validity
from quaestor.model import Registration
from quaestor.observability.telemetry import Telemetry
from quaestor.planning.contributing import contributing, contributors_of
from quaestor.planning.plan_cache import plan_of
from quaestor.realtime.snapshots import Snapshots
from quaestor.settings import Settings

_PAUSE_MS: Final = 100
"""How long a registration is left alone: by then its answer has been sent, and one that dies at once costs no read."""
_MOST_WAITING: Final = 1_000
_LARGEST: Final = 256 * 1024
"""Bytes of a registration with its contributors that is sent."""


def with_contributors(registration: Registration, snapshots: Snapshots, *, most: int) -> Registration | None:
    """The registration with its contributors, read now; None if there are none to be known. Blocking.

    most: so many at most.

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
    found = snapshots.read([find], at_least=at_least)
    known = contributors_of(plan, registration, found.own, version=found.version, images=images, most=most)
    return None if known is None else replace(registration, contributors=known)


class ContributorReads:
    """Reader of contributors of one app process. `want` from the event loop; `run` is the body of a thread."""

    def __init__(
        self,
        *,
        validity: Validity,
        view: GridView,
        shared: SharedRegistrations,
        sender: QuerySender,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._validity = validity
        self._view = view
        self._shared = shared
        self._sender = sender
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self._most = settings.grid.max_contributors
        self._queue: queue.Queue[tuple[int, Registration] | None] = queue.Queue(_MOST_WAITING)

    def want(self, registrations: Sequence[Registration]) -> None:
        """Read the contributors of these soon. When too many wait, it is not done."""
        for registration in registrations if self._most else ():
            plan = plan_of(registration.query)
            if contributing(plan, registration, images=False, most=self._most) is not None:
                try:
                    self._queue.put_nowait((self._clock() + _PAUSE_MS, registration))
                except queue.Full:
                    return

    def run(self, snapshots: Snapshots, stop: threading.Event) -> None:
        """Read what is wanted, until `stop` is set. One at a time, so the database has no more than that to do for it."""
        while not stop.is_set():
            waiting = self._queue.get()
            if waiting is None:  # woken by `end`, perhaps of the life before this one
                continue
            due_ms, registration = waiting
            stop.wait(max(0, due_ms - self._clock()) / 1000)
            if self._needed(registration):
                self._read(registration, snapshots)

    def end(self) -> None:
        """Wake the thread, after `stop` was set: it may wait for a registration."""
        with suppress(queue.Full):  # then it does not wait
            self._queue.put_nowait(None)

    def _needed(self, registration: Registration) -> bool:
        return self._shared.is_current(registration.id) and not self._validity.any_dead([in_round(registration.id, 0)])

    def _read(self, registration: Registration, snapshots: Snapshots) -> None:
        try:
            known = with_contributors(registration, snapshots, most=self._most)
            payload = None if known is None else codec.encode_query_event(known)
        except DatabaseError as error:
            self._telemetry.failure("mongodb", "registry.contributors_unread", error)
            return
        except QueryError:  # too many of them, a capped collection: as it is
            return
        shape = self._view.shape
        if payload is None or shape is None or len(payload) > _LARGEST or not self._needed(registration):
            return
        partition = query_partition(registration.query_id, shape.query_partitions)
        self._sender.send(streams.queries(self._settings.deployment, partition, shape.generation), payload)
