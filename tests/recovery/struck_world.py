"""A site whose background services are struck by faults, and whose every answer is checked against the database."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import AdminToken, Dashboard, Quaestor, cached, public
from quaestor.errors import SubscriptionError
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Operation, Query
from quaestor.observability.hooks import FailureSeen
from quaestor.ports import CdnAdapter
from quaestor.runtime.lifecycle import STOP_S
from tests.inputs.flights import Sync, alive, get, is_hit, written
from tests.recovery.service_faults import Faults, pardon_orphans, rearm
from tests.recovery.struck_services import TOKEN, Struck
from tests.support import eventually

QUIET_ROUNDS = 2
MOST_ROUNDS = 600


def unnamed(failures: Sequence[FailureSeen], struck: Sequence[str]) -> list[str]:
    """Places whose strike no failure names."""
    value = [f"{failure.error} {failure.fields.get('before', '')}" for failure in failures]
    return [place for place in struck if not any(re.search(rf"(^|\W){re.escape(place)}(\W|$)", text) for text in value)]


class World:
    """A site whose every answer can be checked against the database.

    failures: reported so far.
    stir: what each round does besides.
    """

    def __init__(
        self,
        quaestor: Quaestor,
        client: AsyncMongoClient[dict[str, Any]],
        other: Sync,
        database: str,
        struck: Struck,
        cdn: Sequence[CdnAdapter] = (),
    ) -> None:
        self.quaestor = quaestor
        self.failures: list[FailureSeen] = []
        self.number = 0
        self._stir, self._settle_s = struck.stir, struck.settle_s
        self._client, self._other, self._database = client, other, database
        self._live: Any = None
        quaestor.on_failure(self.failures.append)
        quaestor.on_failure(rearm)
        other[database].command("create", "shown", viewOn="flights", pipeline=[{"$match": {"n": {"$gte": 0}}}])
        self.app = FastAPI()
        dashboard = Dashboard(token=AdminToken(TOKEN)) if struck.dashboard else None
        self.app.add_middleware(QuaestorMiddleware, quaestor=quaestor, dashboard=dashboard, cdn=cdn)

        @self.app.get("/{collection}")
        @cached(scope=public())
        async def flights(collection: str) -> list[int]:
            """A page of records: who contributes to it does not show."""
            cursor = client[database][collection].find({"origin": "JFK"}).sort("_id", 1).limit(2)
            return [flight["n"] async for flight in cursor]

    async def round(self, http: httpx.AsyncClient) -> None:
        """Change what each service has to see, by a way of its own, and wait until the answers show it."""
        self.number += 1
        flights = self._other[self._database].flights
        for path in ("/flights", "/shown"):
            await get(http, path)
        flights.update_one({"_id": 1}, {"$set": {"n": self.number}})
        await self._shows(http, "/flights", [self.number])
        bound = 10**6 if self.number % 2 else -1
        await asyncio.to_thread(
            self._other[self._database].command, "collMod", "shown", viewOn="flights",
            pipeline=[{"$match": {"n": {"$gte": bound}}}],
        )  # fmt: skip
        await self._shows(http, "/shown", [] if self.number % 2 else [self.number])
        self.number += 1
        diff = {"$v": 2, "diff": {"u": {"n": self.number}}}
        update = {"op": "u", "ns": f"{self._database}.flights", "o": diff, "o2": {"_id": 1}}
        await self._client.admin.command("applyOps", [update])
        await self._shows(http, "/flights", [self.number])
        await eventually(self._invalidated)
        await self._followed()
        if self._stir is not None:
            await self._stir(self.quaestor, http)

    async def _invalidated(self) -> bool:
        if self.quaestor._life.manual is None:
            return False
        await self.quaestor.invalidate(collections=[f"{self._database}.flights"])
        return True

    async def _followed(self) -> None:
        await eventually(self._shows_followed, within_s=60)

    async def _shows_followed(self) -> bool:
        """Whether the subscribed result shows the newest number. A strike while a query is taken in ends its subscription, as a
        bad query would; the subscriber receives an error and subscribes again."""
        query = Query(namespace=f"{self._database}.flights", filter={"origin": "JFK"}, operation=Operation.FIND)
        if self._live is None or self._live.failed:
            with suppress(SubscriptionError):  # the reader was struck for longer than a subscriber waits
                self._live = await self.quaestor.subscribe(query)
        return self._live is not None and [document["n"] for _, document in self._live.rows()] == [self.number]

    async def _shows(self, http: httpx.AsyncClient, path: str, numbers: list[int]) -> None:
        async def shown() -> bool:
            return bool((await get(http, path)).json() == numbers)

        await eventually(shown)

    async def is_exact(self, http: httpx.AsyncClient) -> None:
        """Answers come from the cache again, and no older than a write that has taken effect."""
        for _ in range(3):
            await eventually(lambda: is_hit(http, "/flights"))
            self.number += 1
            self._other[self._database].flights.update_one({"_id": 1}, {"$set": {"n": self.number}})
            await self.quaestor.settled(within_s=self._settle_s)
            assert (await get(http, "/flights")).json() == [self.number]

    def counted(self, service: str) -> float:
        registry = self.quaestor.telemetry.families.registry
        return registry.get_sample_value("quaestor_service_failures_total", {"service": service}) or 0


@asynccontextmanager
async def world(
    mongo_url: str, database: str, struck: Struck, *, cdn: Sequence[CdnAdapter] = (), **settings: Any
) -> AsyncIterator[World]:
    fixed: dict[str, Any] = {
        "heartbeat_ms": 40,
        "verification": False,
        "staleness_bound_ms": 2_000,
        "doorkeeper_share": 0.0,
    }
    quaestor = Quaestor(**(fixed | struck.settings | settings))
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]) as client:
        with written(mongo_url, database) as other:
            yield World(quaestor, client, other, database, struck, cdn)


def alive_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("quaestor-")]


async def struck_everywhere(faults: Faults, at: World, http: httpx.AsyncClient) -> None:
    """Traffic until no new place is struck."""
    quiet = rounds = 0
    while quiet < QUIET_ROUNDS:
        before = len(faults.struck)
        await at.round(http)
        rounds += 1
        quiet = quiet + 1 if len(faults.struck) == before else 0
        assert rounds < MOST_ROUNDS, f"{len(faults.struck)} places struck and no end"


async def goes_on(
    mongo_url: str,
    prefix: str,
    service: str,
    struck: Struck,
    monkeypatch: pytest.MonkeyPatch,
    *,
    cdn: Sequence[CdnAdapter] = (),
    **settings: Any,
) -> None:
    """Every fault is counted, answers follow every change meanwhile, the cache serves again afterwards, the stop returns."""
    for place, seconds in struck.pauses.items():
        monkeypatch.setattr(place, seconds)
    faults = Faults(service)
    faults.install(monkeypatch)
    pardon_orphans()
    async with world(mongo_url, prefix, struck, cdn=cdn, **settings) as at:
        async with alive(at.app) as http:
            await struck_everywhere(faults, at, http)
            faults.armed = False
            print(len(faults.struck), "places:", *faults.struck, sep="\n  ")
            assert faults.struck
            with suppress(AssertionError):
                await eventually(lambda: unnamed(at.failures, faults.struck) == [])
            left = unnamed(at.failures, faults.struck)
            assert left == [], "\n".join(f"{place}\n{faults.stacks[place]}" for place in left)
            await at.is_exact(http)
            faults.armed, faults.struck = True, []  # and once more on the way out
            async with asyncio.timeout(STOP_S + 10):
                await at.quaestor.stop()
        await eventually(lambda: alive_threads() == [])  # a thread of a pool ends a moment after the pool
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("quaestor-")] == []
