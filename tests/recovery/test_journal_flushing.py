"""Events of writes that were acknowledged before they were in the journal, on a mongod that flushes as rarely as it can."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.write_concern import WriteConcern

from quaestor.clock import system_clock
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.embedded import EmbeddedGrid
from quaestor.invalidation.ingest.journal_flushing import JournalFlushing
from quaestor.invalidation.ingest.primary_probes import probe_primary
from quaestor.model import WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.settings import Settings
from quaestor.testing import servers
from tests.recovery.ingesting import DEADLINE_S, count, ingesting
from tests.support import running

Client = pymongo.MongoClient[dict[str, Any]]
NAMESPACE = "quaestor.control"
WRITES = 10


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[servers.Server]:
    """A mongod that flushes its journal every 500 ms, unless a client waits for it."""
    server = servers.mongod_server(tmp_path, journal_ms=500)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(mongod: servers.Server) -> Iterator[Client]:
    with pymongo.MongoClient(mongod.url) as client:
        yield client


def write(client: Client) -> None:
    client.shop.get_collection("items", write_concern=WriteConcern(w=1, j=False)).insert_one({})


def write_until(client: Client, enough: Callable[[], bool]) -> None:
    """Writes again and again; each is followed by two looks at whether it is enough."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        write(client)
        if enough() or enough():
            return
        assert time.monotonic() < deadline


def until_majority_has(client: Client, version: int) -> None:
    """The commit point moves a moment after the journal is written: a probe right after the flush may still see the older one."""
    deadline = time.monotonic() + DEADLINE_S
    while probe_primary(client, system_clock).majority < version:
        assert time.monotonic() < deadline


def flushing(client: Client, telemetry: Telemetry) -> JournalFlushing:
    return JournalFlushing(client, interval_ms=2, namespace=NAMESPACE, telemetry=telemetry)


def asked(telemetry: Telemetry) -> float:
    """Flushes so far that helped."""
    value = telemetry.families.registry.get_sample_value("quaestor_journal_flushes_total", {"outcome": "effective"})
    return value or 0.0


def test_a_write_is_in_the_journal_after_two_looks(client: Client) -> None:
    """Each of ten writes, one after the other; without the flush they would have to meet with one of mongod's own each."""
    telemetry = Telemetry()
    flusher = flushing(client, telemetry)
    for _ in range(WRITES):
        write(client)
        before = probe_primary(client, system_clock)
        flusher.step()  # sees that the write is ahead of what a majority has
        flusher.step()  # still: flushes
        until_majority_has(client, before.applied)
    flusher.step()
    assert asked(telemetry) > 0


def test_a_flush_leaves_no_trace(client: Client) -> None:
    """No event, no entry in the oplog, no collection: so it invalidates nothing, and calls for no other flush."""
    telemetry = Telemetry()
    flusher = flushing(client, telemetry)
    layer = MemoryEventLayer()
    with ingesting(client, layer, "journal") as pipelines:
        for _ in range(WRITES):
            write(client)
            flusher.step()
            flusher.step()
            flusher.step()
        images = pipelines.until(count("shop.items", WRITES))
        pipelines.until_tick_after(system_clock())
    layer.close()
    assert asked(telemetry) > 0
    assert {image.namespace for image in images if image.kind is not WriteKind.GAP} == {"shop.items"}
    written = client.local.get_collection("oplog.rs").distinct("ns", {"op": {"$in": ["i", "u", "d"]}})
    assert "quaestor.control" not in written
    assert "quaestor" not in client.list_database_names()
    flushes = asked(telemetry)
    for _ in range(50):
        flusher.step()
    assert asked(telemetry) <= flushes + 1, "after the last write there is nothing more to flush"


def test_the_grid_in_a_process_asks_for_flushes_if_the_settings_want_them(
    mongod: servers.Server, client: Client
) -> None:
    telemetry = Telemetry()
    settings = Settings(deployment="journal", heartbeat_ms=40, journal_flush_ms=2)
    grid = EmbeddedGrid(mongod.url, settings=settings, telemetry=telemetry)
    grid.start()
    try:
        write_until(client, lambda: asked(telemetry) >= 3)
    finally:
        grid.stop()


def test_flushes_for_live_results_come_only_while_clients_follow_some(mongod: servers.Server, client: Client) -> None:
    """Nothing is asked of the primary before that, and nothing after it."""
    telemetry, followed = Telemetry(), threading.Event()
    settings = Settings(deployment="live-journal", heartbeat_ms=40, live_journal_flush_ms=2)
    grid = EmbeddedGrid(mongod.url, settings=settings, telemetry=telemetry, followed=followed.is_set)
    looks: list[float] = []
    unhurried = client.get_database("shop", write_concern=pymongo.WriteConcern(w=1, j=False)).items
    grid.start()
    try:
        for _ in range(20):
            unhurried.insert_one({})
        looks.append(asked(telemetry))
        followed.set()
        write_until(client, lambda: asked(telemetry) >= 3)
    finally:
        grid.stop()
    assert looks == [0]


def test_a_user_with_read_rights_only_is_reported_once(tmp_path: Path) -> None:
    """Events then come when mongod flushes by itself, and flushes begin when the rights are granted."""
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    server = servers.mongod_server(tmp_path, journal_ms=500)
    server.arguments = [*server.arguments, "--auth", "--keyFile", str(key)]
    server.start()
    try:
        with pymongo.MongoClient[dict[str, Any]](server.url) as local:
            local.admin.command("createUser", "root", pwd="secret", roles=["root"])
        url = server.url.replace("mongodb://", "mongodb://root:secret@")
        with pymongo.MongoClient[dict[str, Any]](url, authSource="admin") as root:
            root.admin.command("createUser", "reader", pwd="secret", roles=["readAnyDatabase"])
            url = server.url.replace("mongodb://", "mongodb://reader:secret@")
            with pymongo.MongoClient[dict[str, Any]](url, authSource="admin") as reader:
                _refused_then_allowed(root, reader)
    finally:
        server.stop()


def _refused_then_allowed(root: Client, reader: Client) -> None:
    telemetry = Telemetry()
    failures: list[str] = []
    telemetry.hooks.failures.append(lambda seen: failures.append(seen.name))
    flusher = flushing(reader, telemetry)
    for _ in range(2):
        write_until(root, lambda: flusher.step() > 1)
    assert failures == ["ingest.journal_flush_refused"]
    root.admin.command("grantRolesToUser", "reader", roles=[{"role": "readWrite", "db": "quaestor"}])
    write_until(root, lambda: flusher.step() < 1 and asked(telemetry) > 0)


def test_nothing_ends_while_the_server_is_away(mongod: servers.Server) -> None:
    """The flusher survives an absent server, and continues when the server is back."""
    telemetry = Telemetry()
    with pymongo.MongoClient[dict[str, Any]](mongod.url, serverSelectionTimeoutMS=200) as impatient:
        flusher = flushing(impatient, telemetry)
        mongod.kill()
        assert flusher.step() >= 1
        mongod.start()
        with running(flusher.run, within_s=DEADLINE_S), pymongo.MongoClient[dict[str, Any]](mongod.url) as client:
            write_until(client, lambda: asked(telemetry) > 0)
