"""Continuous queries end to end: real compiler, tables filled by `append` and by a collection, HTTP, webhook and mail.

The test drives the clock.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from standardwebhooks import Webhook

from quaestor import ContinuousResults, Quaestor, public
from quaestor.continuous.delivery.addresses import sink_of
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.service import ContinuousService, ServiceParts
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.collections import FollowedCollection
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.delivery.receivers import KEY, Mailbox, Receiver, mailbox, receiver
from tests.continuous.runs.world import NOON, World
from tests.support import eventually

pytestmark = pytest.mark.anyio

SCHEMAS: Mapping[str, Mapping[str, Type]] = {
    "reminders": {"_id": Type.BIGINT, "note": Type.TEXT, "due_at": Type.TIMESTAMP},
    "offers": {"_id": Type.BIGINT, "expires": Type.TIMESTAMP},
    "messages": {"_id": Type.BIGINT, "answers": Type.BIGINT},
}
REMIND = "SELECT _id, note FROM reminders WHERE due_at = now()"
EXPIRED = "SELECT _id FROM offers WHERE expires <= now()"
UNANSWERED = """
SELECT m._id FROM messages m WHERE m.ts + INTERVAL 14 DAY < now()
AND NOT EXISTS (SELECT * FROM messages r WHERE r.answers = m._id)
"""


class Filled(World):
    """Tables that a test fills by `append`, and an application that runs queries on them."""

    def __init__(self, folder: Path, hook: Receiver, box: Mailbox) -> None:
        super().__init__(folder)
        self.hook, self.box = hook, box
        self.address = f"http://127.0.0.1:{hook.port}/"
        self.addresses = (self.address, "mailto:ann@shop.example")
        self.quaestor = Quaestor(
            grid=False, continuous_folder=str(folder), clock=self.clock, webhook_key=KEY, webhook_networks=["127.0.0.0/8"],
            mail_server=f"smtp://127.0.0.1:{box.port}", mail_from="q@shop.example",
        )  # fmt: skip
        self.administration = self.quaestor.parts.continuous.administration()
        telemetry = Telemetry()
        self.service = ContinuousService(
            ServiceParts(
                catalogue=self.administration.catalogue,
                installed=self.administration.installed,
                engine=self.administration.engine,
                courier=Courier(DeadLetters(self.catalogue.root), telemetry),
                sink_of=lambda address: sink_of(address, self.administration.settings),
                telemetry=telemetry,
                clock=self.clock,
            )
        )

    async def begin(self) -> None:
        """Make the tables."""
        for name, columns in SCHEMAS.items():
            self.table(name, **columns)

    async def write(self, table: str, **row: Any) -> None:
        """Publish a row, now."""
        self.add(table, row)

    def stand(self, text: str, every: str) -> None:
        """Install a query from the beginning on, with all sinks."""
        query = InstalledQuery(name="standing", text=text, every=every, sinks=self.addresses)
        self.administration.install(query, "beginning")

    async def after(self, **delta: float) -> None:
        """Move the clock, and run what is due."""
        self.advance(**delta)
        await self.service.run_due()

    async def pages(self) -> list[dict[str, Any]]:
        """Return all pages over HTTP, from the first run on."""
        app = FastAPI()
        app.include_router(ContinuousResults(self.quaestor, scope=public()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            heads = (await client.get("/continuous/standing/runs?after=0")).json()["runs"]
            newest = (await client.get("/continuous/standing")).json()["newest"]
            assert newest == (heads[-1]["run"] if heads else None)
            return [(await client.get(head["page"])).json() for head in heads]

    async def received(self) -> list[int]:
        """Return the ids that HTTP, webhook and mail have, in order. All three have the same, with the same keys."""
        rows = [row for page in await self.pages() for row in page["rows"]]
        bodies = [Webhook(KEY).verify(body, fields)["data"] for fields, body in self.hook.requests]
        assert [row for body in bodies for row in body["rows"]] == rows
        runs = {row["key"].rpartition("/")[0] for row in rows}
        assert {str(message["x-quaestor-key"]).rpartition("/")[0] for message in self.box.messages} == runs
        return [row["row"]["_id"] for row in rows]


class Followed(Filled):
    """The same tables, filled by collections of a real mongod."""

    def __init__(self, folder: Path, hook: Receiver, box: Mailbox, database: Any) -> None:
        super().__init__(folder, hook, box)
        self._database = database
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    async def begin(self) -> None:
        """Follow the collections."""
        for name, columns in SCHEMAS.items():
            collection = self._database.create_collection(name)
            declared = Schema(tuple(Column(column, kind) for column, kind in columns.items()))
            followed = FollowedCollection(collection, self.catalogue, name, declared=declared, clock=self.clock)
            self._threads.append(threading.Thread(target=followed.run, args=(self._stop,)))
            self._threads[-1].start()
        await eventually(lambda: self.catalogue.names() == sorted(SCHEMAS))

    async def write(self, table: str, **row: Any) -> None:
        """Insert a record, and wait until its version is in the table."""
        before = self._rows(table)
        self._database[table].insert_one(row)
        await eventually(lambda: self._rows(table) > before)

    async def delete(self, table: str, identity: int) -> None:
        """Delete a record, and wait until its version is in the table."""
        before = self._rows(table)
        self._database[table].delete_one({"_id": identity})
        await eventually(lambda: self._rows(table) > before)

    def end(self) -> None:
        """End the filling."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _rows(self, table: str) -> int:
        return sum(file.rows for file in self.catalogue.open(table).snapshot().files.values())


@pytest.fixture
def database(mongo_url: str) -> Iterator[Any]:
    with pymongo.MongoClient[Any](mongo_url, w="majority") as client:
        name = f"standing_{uuid.uuid4().hex[:8]}"
        yield client[name]
        client.drop_database(name)


@asynccontextmanager
async def filled(kind: str, folder: Path, database: Any) -> AsyncIterator[Filled]:
    async with receiver() as hook, mailbox() as box:
        world = Filled(folder, hook, box) if kind == "append" else Followed(folder, hook, box, database)
        try:
            await world.begin()
            yield world
        finally:
            if isinstance(world, Followed):
                await asyncio.to_thread(world.end)


@pytest.fixture(params=["append", "collection"])
async def world(request: pytest.FixtureRequest, tmp_path: Path, database: Any) -> AsyncIterator[Filled]:
    async with filled(request.param, tmp_path, database) as running:
        yield running


async def test_reminders(world: Filled) -> None:
    """Each reminder once, at the first run after its hour; a reminder that is entered after its hour never."""
    await world.write("reminders", _id=1, note="tea", due_at=NOON + timedelta(minutes=1, seconds=30))
    await world.write("reminders", _id=2, note="cake", due_at=NOON + timedelta(minutes=3))
    await world.write("reminders", _id=3, note="late", due_at=NOON - timedelta(minutes=3))
    world.stand(REMIND, "1m")
    await world.after(minutes=1)
    assert await world.received() == []
    await world.after(minutes=1)
    assert await world.received() == [1]
    await world.after(hours=5)
    await world.after(hours=5)
    assert await world.received() == [1, 2]
    assert "note: tea" in world.box.messages[0].get_content()


async def test_offers_that_expire(world: Filled) -> None:
    """No write happens at that time: the clock alone makes the result. An offer that was entered expired is named at once."""
    await world.write("offers", _id=1, expires=NOON + timedelta(hours=1))
    await world.write("offers", _id=2, expires=NOON - timedelta(hours=1))
    world.stand(EXPIRED, "10m")
    await world.after(minutes=10)
    assert await world.received() == [2]
    await world.after(minutes=40)
    assert await world.received() == [2]
    await world.after(minutes=20)
    await world.after(days=2)
    assert await world.received() == [2, 1]


@pytest.mark.parametrize("every", ["1h", "1w"])
async def test_older_than_two_weeks_without_a_reply(world: Filled, every: str) -> None:
    """A reply within the two weeks keeps a message out for ever, a later reply changes nothing, and no schedule matters."""
    await world.write("messages", _id=1)
    await world.write("messages", _id=2)
    world.stand(UNANSWERED, every)
    await world.after(days=3)
    await world.write("messages", _id=3, answers=1)
    await world.after(days=12)
    await world.write("messages", _id=4, answers=2)
    for _ in range(6):
        await world.after(days=7)
    assert sorted(await world.received()) == [2, 3, 4]
    assert (await world.received())[0] == 2


async def test_a_deleted_record_is_no_result(tmp_path: Path, database: Any) -> None:
    """Neither a reminder that was deleted before its hour, nor its deletion."""
    async with filled("collection", tmp_path, database) as world:
        assert isinstance(world, Followed)
        await world.write("reminders", _id=1, note="kept", due_at=NOON + timedelta(minutes=5))
        await world.write("reminders", _id=2, note="deleted", due_at=NOON + timedelta(minutes=5))
        world.stand(REMIND, "1m")
        await world.after(minutes=1)
        await world.delete("reminders", 2)
        await world.after(minutes=9)
        assert await world.received() == [1]


async def test_a_deletion_is_no_version(tmp_path: Path, database: Any) -> None:
    """A deletion has no values, and is no result of a query for records without values."""
    async with filled("collection", tmp_path, database) as world:
        assert isinstance(world, Followed)
        await world.write("reminders", _id=1)
        await world.write("reminders", _id=2, note="deleted")
        await world.delete("reminders", 2)
        world.stand("SELECT _id FROM reminders WHERE note IS NULL", "1m")
        await world.after(minutes=1)
        assert await world.received() == [1]
