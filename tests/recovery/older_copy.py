"""A mongod that goes back in time: it is started again on an older copy of its files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo
from pymongo.collection import Collection

from quaestor.testing import servers
from quaestor.testing.servers import Server


@dataclass
class AgingMongod:
    """A mongod on data that were written after its files had been copied.

    namespace: database and collection of the pages, of which each shows `n`: 0 in the copy, 1 now.
    """

    server: Server
    folder: Path
    namespace: tuple[str, str]

    @property
    def url(self) -> str:
        return self.server.url

    @contextmanager
    def pages(self) -> Iterator[Collection[dict[str, Any]]]:
        with pymongo.MongoClient[dict[str, Any]](self.server.url) as client:
            yield client[self.namespace[0]][self.namespace[1]]

    def primary(self) -> str:
        """The election that made it primary."""
        with pymongo.MongoClient[dict[str, Any]](self.server.url) as client:
            return str(client.admin.command("hello")["electionId"])

    def go_back(self) -> None:
        """Start again on the older copy. The number of its election is the same as before."""
        before = self.primary()
        self.server.stop()
        data = self.folder / "data"
        shutil.rmtree(data)
        shutil.copytree(self.folder / "copy", data)
        self.server.start()
        assert self.primary() == before, "the test is about a restart that the number of the election does not show"
        with self.pages() as pages:
            assert pages.find_one({"_id": 0}) == {"_id": 0, "n": 0}


@contextmanager
def aging_mongod(folder: Path, database: str, collection: str) -> Iterator[AgingMongod]:
    server = servers.mongod_server(folder, journal_ms=10)
    made = AgingMongod(server, folder, (database, collection))
    server.start()
    try:
        with made.pages() as pages:
            pages.insert_many([{"_id": key, "n": 0} for key in range(10)])
        server.stop()
        shutil.copytree(folder / "data", folder / "copy")
        server.start()
        with made.pages() as pages:
            pages.update_many({}, {"$set": {"n": 1}})
        yield made
    finally:
        server.stop()
