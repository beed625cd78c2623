"""An embedded application is killed and started anew: what clients kept of it, and what they keep of the next one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest

from quaestor import QuaestorTransport
from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.sizing import DEFAULT
from quaestor.client.fields import lifetime
from quaestor.testing.servers import HOST, free_port
from tests.support import DEADLINE_S, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
STARTED_WITHIN_S = 240.0


class Application:
    """The application of `embedded_app`, each time as another process at the same address; a client of it that goes on."""

    def __init__(self, mongo_url: str, database: str) -> None:
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        self._command = [sys.executable, "-m", "tests.end_to_end.embedded_app", mongo_url, database, str(port)]
        self.transport = QuaestorTransport(self.url)
        self.client = httpx.AsyncClient(transport=self.transport, base_url=self.url, timeout=60)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While it runs; it is killed then."""
        process = self._start()
        try:
            await eventually(self._serves_its_sketch, within_s=STARTED_WITHIN_S)
            yield
        finally:
            process.kill()
            process.wait(DEADLINE_S)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT)

    async def union(self) -> httpx.Response:
        async with httpx.AsyncClient() as plain:
            return await plain.get(f"{self.url}/quaestor/sketch", timeout=60)

    async def _serves_its_sketch(self) -> bool:
        try:
            return (await self.union()).status_code == 200
        except httpx.TransportError:
            return False

    async def relies_on(self, path: str) -> bool:
        """Whether an answer comes from the client's memory because of a sketch that was made after it left the server."""
        await self.transport.refresh()
        response = await self.client.get(path)
        life = lifetime(response.headers)
        made_ms = 0 if life is None else self.transport._exchanges.sketches.made_ms(life.sketch)
        return life is not None and made_ms > life.at_ms and response.extensions.get("quaestor") == "memory"

    async def until_relied_on(self, *paths: str) -> None:
        for path in paths:
            await eventually(partial(self.relies_on, path), within_s=STARTED_WITHIN_S)


@pytest.fixture
async def shop(mongo_url: str, prefix: str) -> AsyncIterator[tuple[Application, Any]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        items = other[prefix].items
        items.insert_many([{"_id": key, "n": 0} for key in range(3)])
        application = Application(mongo_url, prefix)
        async with application.client:
            yield application, items
        other.drop_database(prefix)


async def test_after_a_kill_old_copies_are_revalidated_and_new_ones_are_relied_on_at_once(
    shop: tuple[Application, Any],
) -> None:
    """Although copies may live for an hour. A client that knows no partitions revalidates everything: the union names it."""
    app, items = shop
    async with app.running():
        await app.until_relied_on("/pages/0", "/pages/1")
    items.update_one({"_id": 0}, {"$set": {"n": 1}})
    async with app.running():
        await app.transport.refresh()
        answers = [await app.client.get(f"/pages/{key}") for key in (0, 1)]
        assert [answer.json()["n"] for answer in answers] == [1, 0]
        assert "memory" not in [answer.extensions["quaestor"] for answer in answers]
        await app.until_relied_on("/pages/0", "/pages/1", "/pages/2")
        assert (await app.client.get("/pages/0")).json()["n"] == 1
        assert (await app.union()).content == wire_format.saturated(DEFAULT)
        items.update_one({"_id": 2}, {"$set": {"n": 5}})

        async def seen() -> bool:
            await app.transport.refresh()
            return bool((await app.client.get("/pages/2")).json()["n"] == 5)

        await eventually(seen, within_s=STARTED_WITHIN_S)
