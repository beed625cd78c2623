"""Servers that something is wrong with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pymongo
import pytest

from quaestor.testing import servers
from tests.doctor.called import Client


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A replica set of one mongod that wants to know who asks; its administrator is `root`, with the password `secret`."""
    folder = tmp_path_factory.mktemp("guarded")
    key = folder / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    server = servers.mongod_server(folder)
    server.arguments = [*server.arguments, "--auth", "--keyFile", str(key)]
    server.start()
    with pymongo.MongoClient(server.url) as client:
        client.admin.command("createUser", "root", pwd="secret", roles=["root"])
    yield server
    server.stop()


@pytest.fixture
def root(guarded: servers.Server) -> Iterator[Client]:
    """Its administrator."""
    with pymongo.MongoClient(guarded.url, username="root", password="secret") as client:
        yield client


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[servers.Server]:
    """A mongod that is no replica set."""
    server = servers.mongod_server(tmp_path, replica_set=False)
    server.start()
    yield server
    server.stop()
