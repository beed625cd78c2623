"""One cell on a real event layer, with the app processes that register queries."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    Notification,
    Operation,
    Query,
    Refused,
    Registration,
    WriteKind,
)
from quaestor.ports import EventLayer
from tests.support import running

DEADLINE_S = 30
HEARTBEAT_MS = 30
RETENTION_MS = 60_000
CELL = Cell(query_partition=0, write_partition=0)
SHAPE = GridShape(query_partitions=1, write_partitions=1)
N = TypeVar("N", Activated, Refused, Invalidated, Heartbeat)


class Harness:
    """Both ends of a 1 x 1 grid: plays ingest and app, reads what the cell says."""

    def __init__(self, layer: EventLayer, deployment: str) -> None:
        self.layer, self.deployment = layer, deployment
        self.versions = itertools.count(1_000)
        self.version = 0
        self.wall_ms = 0
        self.after = "0"
        self.said: list[Notification] = []

    @contextmanager
    def cell(
        self, layer: EventLayer | None = None, *, limits: Mapping[str, Any] | None = None, **options: Any
    ) -> Iterator[MatchingNode]:
        """A cell with a new node, in a thread of its own, that ends without any last words. limits: of the node."""
        node = MatchingNode(CELL, SHAPE, retention_ms=RETENTION_MS, limits=NodeLimits(**limits or {}))
        options = {"deployment": self.deployment, "heartbeat_ms": HEARTBEAT_MS, "retention_ms": RETENTION_MS} | options
        loop = CellLoop(node, layer or self.layer, CELL, SHAPE, LoopContext(**options))
        with running(loop.run, within_s=DEADLINE_S):
            yield node

    def tick(self) -> int:
        """Append the tick of a silent change stream; return the moment it proves."""
        version = self.version or next(self.versions)
        self._append(AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=self.moment()))
        return self.wall_ms

    def moment(self) -> int:
        """Now, and later than every moment before, so that no write shares the moment of a tick behind it."""
        self.wall_ms = max(self.wall_ms + 1, system_clock())
        return self.wall_ms

    def write(self, key: Any, **fields: Any) -> int:
        self.version = next(self.versions)
        image = AfterImage(
            namespace="db.c", kind=WriteKind.INSERT, version=self.version, key=key, after={"_id": key, **fields},
            after_exact=True, before_known=True, wall_ms=self.moment(),
        )  # fmt: skip
        self._append(image)
        return self.version

    def _append(self, image: AfterImage) -> None:
        self.version = max(self.version, image.version)
        self.layer.append(streams.writes(self.deployment, 0), [encode_image(image)])

    def register(self, name: str, *, since: int | None = None, lease_ms: int = 600_000, **match: Any) -> None:
        """A cached find of everything that matches, with an empty result so far."""
        registration = Registration(
            id=name, tenant=self.deployment, query_id=f"q-{name}",
            query=Query(namespace="db.c", operation=Operation.FIND, filter=match),
            since=self.version if since is None else since, read_at=self.version if since is None else since,
            members=(), last=None, expires_at_ms=system_clock() + lease_ms,
        )  # fmt: skip
        self.layer.append(streams.queries(self.deployment, 0), [encode_query_event(registration)])

    def cancel(self, name: str) -> None:
        cancellation = Cancellation(tenant=self.deployment, query_id=f"q-{name}", registration_ids=(name,))
        self.layer.append(streams.queries(self.deployment, 0), [encode_query_event(cancellation)])

    def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < deadline, [n for n in self.said if not isinstance(n, Heartbeat)]
            self.read()

    def read(self) -> None:
        stream = streams.notifications(self.deployment)
        try:
            for entry in self.layer.read({stream: self.after}, count=1000, block_ms=100):
                self.after = entry.offset
                self.said.append(decode_notification(entry.payload))
        except EventLayerResetError:
            self.after = "0"
        except EventLayerError:
            pass

    def all(self, kind: type[N]) -> list[N]:
        return [notification for notification in self.said if isinstance(notification, kind)]

    def activated(self, name: str) -> None:
        self.until(lambda: name in {notification.registration_id for notification in self.all(Activated)})

    def dead(self) -> list[str]:
        return [name for notification in self.all(Invalidated) for name in notification.registration_ids]

    def invalidated(self, *names: str) -> None:
        self.until(lambda: set(names) <= set(self.dead()))

    def settled(self) -> None:
        """The cell has caught up with everything appended so far, and said all it has to say about it."""
        moment = self.tick()
        self.until(lambda: any(beat.fresh_as_of_ms >= moment for beat in self.all(Heartbeat)))
