"""One FastAPI app that verifies itself, on a real mongod; its handlers read the database and other sources of a test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
from fastapi import FastAPI, Request
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.observability.hooks import FailureSeen
from tests.support import PATIENT

Source = Callable[[], Any | Awaitable[Any]]


class VerifiedSite:
    """An app whose page shows records of one group, and the value of `source`.

    records: as another program writes them.
    runs: how often the page's handler ran.
    failures: the failures that observers received.
    """

    def __init__(self, mongo_url: str, database: str, **settings: Any) -> None:
        given = {"verification": True, "heartbeat_ms": 40, "probation_ttl_ms": 600}
        self.quaestor = Quaestor(**(PATIENT | given | settings))
        self.failures: list[FailureSeen] = []
        self.quaestor.on_failure(self.failures.append)
        self.other: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url)
        self.records = self.other[database].records
        self.records.insert_many([{"_id": n, "group": n % 10, "n": 0} for n in range(30)])
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.seen = self.client[database]
        self.source: Callable[[Request], Awaitable[Any]] = _nothing
        self.runs = 0
        self.app = FastAPI()
        self.app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)

        @self.app.get("/groups/{group}")
        async def page(group: int, request: Request) -> dict[str, Any]:
            self.runs += 1
            records = await self.seen.records.find({"group": group}).sort("_id").to_list()
            return {"records": records, "besides": await self.source(request)}

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://site")

    async def get(self, path: str = "/groups/1", **headers: str) -> tuple[Any, str]:
        """The answer to a GET and its Cache-Status."""
        response = await self.http.get(path, headers=headers)
        assert response.status_code == 200, response.text
        return json.loads(response.content), response.headers["cache-status"]

    async def found_out(self, path: str = "/groups/1") -> bool:
        """Whether the page has been quarantined, after one more request."""
        await self.get(path)
        return bool(self.quaestor.read_path.probation.quarantines)

    def verified(self, verdict: str) -> float:
        """How many verifications came to this verdict."""
        count = self.quaestor.telemetry.families.registry.get_sample_value
        return count("quaestor_verifications_total", {"verdict": verdict}) or 0.0

    @property
    def passed(self) -> bool:
        """Whether the page's probation is over."""
        plans = [plan for plan in self._plans() if plan.route_name.endswith("page")]
        return bool(plans) and not self.quaestor.read_path.probation.on_probation(plans[0].probation)

    def _plans(self) -> list[Any]:
        stack = self.app.middleware_stack
        while not isinstance(stack, QuaestorMiddleware):
            stack = stack.app  # type: ignore[union-attr]
        return list(stack._plans.values())


async def _nothing(_: Request) -> None: ...


@asynccontextmanager
async def verified_site(mongo_url: str, database: str, **settings: Any) -> AsyncIterator[VerifiedSite]:
    """A site that is stopped and closed at the end."""
    site = VerifiedSite(mongo_url, database, **settings)
    try:
        yield site
    finally:
        await site.http.aclose()
        await site.quaestor.stop()
        await site.client.close()
        site.other.close()


async def is_hit(site: VerifiedSite, path: str = "/groups/1") -> bool:
    """Whether one more request is answered from the cache."""
    return "; hit" in (await site.get(path))[1]


async def is_stored(site: VerifiedSite) -> bool:
    """Whether the answer to one more request becomes an entry."""
    return "; stored" in (await site.get())[1]


def lifetime_ms(site: VerifiedSite) -> int:
    """The longest lifetime of the entries in memory."""
    entries = list(site.quaestor.parts.storage.memory._entries.values())
    return max((entry.response.fresh_until_ms - entry.response.stored_at_ms for entry in entries), default=0)


async def lives_long(site: VerifiedSite) -> bool:
    """Whether, after one more request, an entry lives for as long as any."""
    await site.get()
    return lifetime_ms(site) >= 600_000
