"""Read your writes: after the answer to a request that wrote, every read shows the new data. A FastAPI app, real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
import httpx
import pymongo
import pytest
from bson import Timestamp
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pymongo import AsyncMongoClient, InsertOne, MongoClient, UpdateOne
from pymongo.write_concern import WriteConcern

from quaestor import Quaestor
from quaestor.cluster_time import version_of
from quaestor.middleware import QuaestorMiddleware
from quaestor.ports import CdnAdapter
from tests.end_to_end.test_distributed import grid
from tests.hand_driven import TaggingCdn
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

ROUNDS = 200
GENEROUS_MS = 20_000
"""A bound that a slow machine does not exceed: what is asserted is what was seen, not how fast."""
KINDS = (
    "update", "replace", "delete-and-insert", "find-and-modify", "bulk", "several", "transaction", "merge", "thread",
    "stream", "get",
)  # fmt: skip
NOTHING = ("nothing-matched", "nothing-changed", "rolled-back")


class Site:
    """One app process: a counter that can be read, and written in many ways."""

    def __init__(self, mongo_url: str, database: str, *, cdn: Sequence[CdnAdapter] = (), **settings: Any) -> None:
        settings = {**PATIENT, "read_your_writes_ms": GENEROUS_MS, **settings}
        self.quaestor = Quaestor(ttl_min_ms=600_000, **settings)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.blocking: MongoClient[dict[str, Any]] = MongoClient(mongo_url, event_listeners=[self.quaestor.capture])
        self.counters = self.client[database].counters
        self.others = self.client[database].others
        self.app = FastAPI()
        self.app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor, cdn=cdn)
        self.app.get("/n")(self.read)
        self.app.post("/thread")(self.write_in_a_thread)
        self.app.get("/get")(self.write_in_a_get)
        self.app.post("/{kind}")(self.write)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://site")

    async def read(self) -> Any:
        return await self.counters.find({"_id": {"$lt": 10}}).sort("_id", 1).to_list()

    async def write(self, kind: str, n: int) -> Any:
        counters, new = self.counters, {"$set": {"n": n}}
        match kind:
            case "update":
                await counters.update_one({"_id": 1}, new)
            case "replace":
                await counters.replace_one({"_id": 1}, {"n": n})
            case "delete-and-insert":
                await counters.delete_one({"_id": 1})
                await counters.insert_one({"_id": 1, "n": n})
            case "find-and-modify":
                await counters.find_one_and_update({"_id": 1}, new)
            case "bulk":
                await counters.bulk_write([UpdateOne({"_id": 1}, new), InsertOne({"n": n})])
            case "several":
                await counters.update_one({"_id": 1}, new)
                for number in range(5):
                    await self.others.update_one({"_id": number}, new, upsert=True)
            case "transaction" | "rolled-back":
                async with self.client.start_session() as session:
                    await session.start_transaction()
                    await counters.update_one({"_id": 1}, new, session=session)
                    await self.others.insert_one({"n": n}, session=session)
                    await (session.commit_transaction() if kind == "transaction" else session.abort_transaction())
            case "merge":
                stages = [{"$match": {"_id": 1}}, {"$set": {"n": n}}, {"$merge": {"into": "counters"}}]
                await (await counters.aggregate(stages)).to_list()
            case "stream":
                await counters.update_one({"_id": 1}, new)

                async def pieces() -> AsyncIterator[bytes]:
                    for _ in range(3):
                        yield b"piece"

                return StreamingResponse(pieces())
            case "nothing-matched":
                await counters.update_one({"_id": 5}, new)
                await counters.delete_one({"_id": 5})
            case "nothing-changed":
                await counters.update_one({"_id": 1}, {"$max": {"n": 0}})
            case "unacknowledged":
                await counters.with_options(write_concern=WriteConcern(w=0)).update_one({"_id": 1}, new)
        return n

    def write_in_a_thread(self, n: int) -> int:
        self.blocking[self.counters.database.name].counters.update_one({"_id": 1}, {"$set": {"n": n}})
        return n

    async def write_in_a_get(self, n: int) -> int:
        await self.counters.update_one({"_id": 1}, {"$set": {"n": n}})
        return n

    async def get(self) -> tuple[int, bool]:
        """Return the counter's value, and whether it came from the cache."""
        response = await self.http.get("/n")
        assert response.status_code == 200, response.text
        return response.json()[0]["n"], "; hit" in response.headers.get("cache-status", "")

    async def is_hit(self) -> bool:
        return (await self.get())[1]

    async def send(self, kind: str, n: int) -> None:
        method = "GET" if kind == "get" else "POST"
        assert (await self.http.request(method, f"/{kind}", params={"n": n})).status_code == 200

    def outcomes(self) -> dict[str, float]:
        """How many answers waited for their own writes, by what came of it."""
        value = self.quaestor.telemetry.families.registry.get_sample_value
        counts = {
            outcome: value("quaestor_own_writes_total", {"outcome": outcome}) for outcome in ("seen", "late", "unknown")
        }
        return {outcome: count for outcome, count in counts.items() if count}

    async def close(self) -> None:
        await self.http.aclose()
        await self.quaestor.stop()
        await self.client.close()
        await anyio.to_thread.run_sync(self.blocking.close)


@asynccontextmanager
async def site(mongo_url: str, database: str, *, warm: bool = True, **settings: Any) -> AsyncIterator[Site]:
    """One app process whose page is cached."""
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        other[database].counters.update_one({"_id": 1}, {"$set": {"n": 0}}, upsert=True)
        other[database].others.update_one({"_id": 0}, {"$set": {"n": 0}}, upsert=True)
    made = Site(mongo_url, database, **settings)
    try:
        if warm:
            await eventually(made.is_hit)
        yield made
    finally:
        await made.close()


@pytest.mark.usefixtures("patient_redis")
async def test_a_get_right_after_a_post_is_never_old(mongo_url: str, prefix: str, settings: dict[str, Any]) -> None:
    """Each answer to a POST leaves when its write has taken effect, so the GET after it finds no old entry. Before this, a third
    (embedded) and three quarters (grid) of them did."""
    async with site(mongo_url, prefix, **settings) as app:
        numbers = []
        for n in range(1, ROUNDS + 1):
            await app.send("update", n)
            numbers.append((await app.get())[0])
            await app.get()  # so that there is an entry to be old
        assert numbers == list(range(1, ROUNDS + 1))
        assert app.outcomes() == {"seen": ROUNDS}


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("kind", KINDS)
async def test_writes_of_every_kind_are_read_at_once(
    mongo_url: str, prefix: str, settings: dict[str, Any], kind: str
) -> None:
    """A handler may write in a transaction, in a thread, by an aggregation, in a GET, and before it streams."""
    async with site(mongo_url, prefix, **settings) as app:
        for n in range(1, 11):
            await app.send(kind, n)
            assert (await app.get())[0] == n
            await app.get()
        assert app.outcomes() == {"seen": 10}


@pytest.mark.usefixtures("patient_redis")
async def test_a_cdn_has_lost_its_copies_when_the_answer_leaves(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """Each write purges once before its answer leaves; a copy that was being sent is purged again later."""
    cdn = TaggingCdn()
    async with site(mongo_url, prefix, cdn=[cdn], repurge_after_ms=3_600_000, **settings) as app:
        cdn.purged.clear()
        for n in range(1, 6):
            await eventually(app.is_hit)
            await app.send("update", n)
            assert len([purged for purged in cdn.purged if purged.startswith("q")]) == n
            assert (await app.get())[0] == n


@pytest.mark.parametrize("kind", NOTHING)
async def test_a_write_that_changes_nothing_waits_for_nothing(mongo_url: str, prefix: str, kind: str) -> None:
    """Such a write makes no change event, so there is nothing to wait for."""
    async with site(mongo_url, prefix) as app:
        await app.send(kind, 1)
        assert app.outcomes() == {}
        assert await app.get() == (0, True)


async def test_a_write_that_nobody_dates_is_not_waited_for(mongo_url: str, prefix: str) -> None:
    """An unacknowledged one may not even have arrived."""
    async with site(mongo_url, prefix) as app:
        await app.send("unacknowledged", 1)
        assert app.outcomes() == {"unknown": 1}

        async def shown() -> bool:
            return await app.get() == (1, True)

        await eventually(shown)


async def test_many_concurrent_writers_all_read_their_writes(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """Each of eight clients reads its own writes while the others write all the time and the change stream is never
    empty.
    """
    async with site(mongo_url, prefix, **settings) as app:
        seen_own: list[bool] = []

        async def client(first: int) -> None:
            for n in range(first, first + 20):
                await app.send("update", n)
                seen_own.append((await app.get())[0] >= 1)

        async with anyio.create_task_group() as clients:
            for number in range(8):
                clients.start_soon(client, 1 + 100 * number)
        assert seen_own == [True] * 160
        assert app.outcomes() == {"seen": 160}


async def test_without_the_setting_nothing_is_held_back(mongo_url: str, prefix: str) -> None:
    """0 turns it off: no wait, no metric; the write takes effect as it always did."""
    async with site(mongo_url, prefix, read_your_writes_ms=0) as app:
        await app.send("update", 7)
        assert app.outcomes() == {}

        async def shown() -> bool:
            return (await app.get())[0] == 7

        await eventually(shown)


@pytest.mark.usefixtures("patient_redis")
async def test_a_grid_that_stands_still_holds_an_answer_no_longer_than_the_bound(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    """The answer leaves, and is counted as late: never a failure, never a hang."""
    settings = {"redis_url": redis_url, "deployment": prefix, "read_your_writes_ms": 30}
    with grid(mongo_url, redis_url, prefix) as running:
        async with site(mongo_url, prefix, **settings) as app:
            running.stop("ingest")
            await app.send("update", 1)
            assert app.outcomes() == {"late": 1}
            running.start("ingest")

            async def shown() -> bool:
                return await app.get() == (1, True)

            await eventually(shown)


@pytest.mark.usefixtures("patient_redis")
async def test_without_a_grid_an_answer_leaves_at_once(mongo_url: str, redis_url: str, prefix: str) -> None:
    """Nothing is served from cache, so nothing can be old."""
    async with site(mongo_url, prefix, warm=False, redis_url=redis_url, deployment=prefix, elect_grid=False) as app:
        await app.send("update", 1)
        assert app.outcomes() == {"unknown": 1}
        assert await app.get() == (1, False)


@pytest.mark.usefixtures("patient_redis")
async def test_another_process_reads_new_data_once_it_has_heard_as_much(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    """Each process hears the grid for itself; what was evicted from the shared store is gone for all."""
    settings = {"redis_url": redis_url, "deployment": prefix}
    with grid(mongo_url, redis_url, prefix):
        async with site(mongo_url, prefix, **settings) as first, site(mongo_url, prefix, **settings) as second:
            for n in range(1, 51):
                await first.send("update", n)
                at = (await first.client.admin.command("ping"))["operationTime"]
                assert isinstance(at, Timestamp)
                await second.quaestor.read_path.own_writes.passed(version_of(at))
                assert (await second.get())[0] == n
                await second.get()
            assert first.outcomes() == {"seen": 50}
            assert second.outcomes() == {"seen": 50}
