"""The grid inside one process, on a real mongod."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification, encode_query_event
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.embedded import EmbeddedGrid
from quaestor.model import Activated, Heartbeat, Invalidated, Notification, Operation, Query, Registration
from quaestor.observability.telemetry import Telemetry
from quaestor.settings import Settings
from quaestor.testing import servers

DEADLINE_S = 30


class App:
    """Registers results and reads notifications, as an app process does."""

    def __init__(self, grid: EmbeddedGrid, deployment: str) -> None:
        self.layer, self.deployment = grid.layer, deployment
        self.after = "0"
        self.said: list[Notification] = []

    def until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < deadline, self.said[-10:]
            for entry in self.layer.read({streams.notifications(self.deployment): self.after}, count=100, block_ms=100):
                self.after = entry.offset
                self.said.append(decode_notification(entry.payload))

    def fresh(self) -> Heartbeat:
        """The first beat that proves the present moment."""
        now_ms = system_clock()
        self.until(lambda: any(isinstance(n, Heartbeat) and n.fresh_as_of_ms >= now_ms for n in self.said))
        return next(n for n in reversed(self.said) if isinstance(n, Heartbeat))

    def register(self, name: str, namespace: str, match: dict[str, Any]) -> None:
        since = self.fresh().watermark
        registration = Registration(
            id=name, tenant=self.deployment, query_id=name,
            query=Query(namespace=namespace, operation=Operation.FIND, filter=match),
            since=since, read_at=since, members=(), last=None, expires_at_ms=system_clock() + 600_000,
        )  # fmt: skip
        self.layer.append(streams.queries(self.deployment, 0), [encode_query_event(registration)])
        self.until(lambda: any(isinstance(n, Activated) and n.registration_id == name for n in self.said))

    def invalidated(self, name: str) -> None:
        self.until(lambda: any(isinstance(n, Invalidated) and name in n.registration_ids for n in self.said))


@pytest.fixture
def settings(prefix: str) -> Settings:
    return Settings(deployment=prefix, heartbeat_ms=40)


@pytest.fixture
def grid(mongo_url: str, settings: Settings) -> Iterator[EmbeddedGrid]:
    others = set(threading.enumerate())  # whatever another test's app has left behind is not this grid's
    grid = EmbeddedGrid(mongo_url, settings=settings, telemetry=Telemetry())
    grid.start()
    yield grid
    grid.stop()
    left = set(threading.enumerate()) - others
    assert not [thread.name for thread in left if thread.name.startswith("quaestor-")]


def test_a_write_in_the_database_invalidates_what_it_changes(grid: EmbeddedGrid, mongo_url: str, prefix: str) -> None:
    app = App(grid, prefix)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        app.register("jfk", f"{prefix}.flights", {"origin": "JFK"})
        app.register("ewr", f"{prefix}.flights", {"origin": "EWR"})
        client[prefix].flights.insert_one({"origin": "JFK"})
        app.invalidated("jfk")
        client[prefix].flights.update_one({"origin": "JFK"}, {"$set": {"origin": "EWR"}})
        app.invalidated("ewr")
        client.drop_database(prefix)


def test_a_loop_that_dies_is_counted_and_started_again_without_losing_anything(
    mongo_url: str, settings: Settings, prefix: str
) -> None:
    class Deadly(MemoryEventLayer):
        """An event layer that kills its next reader, with an unexpected error."""

        armed = threading.Event()
        fired = threading.Event()

        def read(self, *args: Any, **options: Any) -> Any:
            if self.armed.is_set() and threading.current_thread().name == "quaestor-cell":
                self.armed.clear()
                self.fired.set()
                raise RuntimeError("struck")
            return super().read(*args, **options)

    layer, telemetry = Deadly(), Telemetry()
    grid = EmbeddedGrid(mongo_url, layer=layer, settings=settings, telemetry=telemetry)
    app = App(grid, prefix)
    grid.start()
    try:
        with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
            app.register("jfk", f"{prefix}.flights", {"origin": "JFK"})
            layer.armed.set()
            assert layer.fired.wait(DEADLINE_S)
            client[prefix].flights.insert_one({"origin": "JFK"})
            app.invalidated("jfk")
            client.drop_database(prefix)
    finally:
        grid.stop()
    assert telemetry.families.registry.get_sample_value("quaestor_service_failures_total", {"service": "cell"}) == 1


def test_a_standalone_mongod_is_refused_with_the_remedy_and_does_not_stop_the_app(
    tmp_path: Path, settings: Settings
) -> None:
    server = servers.mongod_server(tmp_path, replica_set=False)
    server.start()
    telemetry = Telemetry()
    grid = EmbeddedGrid(server.url, settings=settings, telemetry=telemetry)
    try:
        with pytest.raises(ConfigurationError, match="--replSet"):
            grid.check()
        grid.start()
        deadline = time.monotonic() + DEADLINE_S
        while not telemetry.families.registry.get_sample_value("quaestor_failures_total", {"part": "grid"}):
            assert time.monotonic() < deadline
    finally:
        grid.stop()
        server.stop()
