"""World of cached queries that follow the clock: an app on a real mongod, a clock that stands still, writes of another client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

import httpx
import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Now, Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.planning.moments import DeclaredTime, date_of
from tests.support import PATIENT

_DAY_MS = 86_400_000
_WITHIN_S = 30.0
_SHIFTS_MS = (0, 0, -1_000, 700)
_FIELDS = ("starts", "ends")
_STEPS_MS = (1, 1, 2, 9, 40, 300, 1_500, 30_000)


class StaleError(AssertionError):
    """An answer that is not the query's result at this instant."""


class StoppedClock:
    """Clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        """Return the moment at which it stands."""
        return self.now_ms


def random_filter(random: Random, depth: int = 2) -> dict[str, Any]:
    """A filter; `("now", shift)` stands for the present time and a shift in ms."""
    kind = random.choice(["compare", "compare", "between", "expr", "and", "or", "not"]) if depth else "compare"
    now = ("now", random.choice(_SHIFTS_MS))
    field = random.choice(_FIELDS)
    if kind == "compare":
        return {field: {random.choice(["$lt", "$lte", "$gt", "$gte"]): now}}
    if kind == "between":
        return {"starts": {"$lte": now}, "ends": {"$gt": ("now", random.choice(_SHIFTS_MS))}}
    if kind == "expr":
        return {"$expr": {random.choice(["$lt", "$lte", "$gt", "$gte"]): [f"${field}", now]}}
    if kind == "not":
        return {"$nor": [random_filter(random, 0)]}
    other = {"kind": random.choice("ab")} if random.random() < 0.6 else random_filter(random, depth - 1)
    return {f"${kind}": [random_filter(random, depth - 1), other]}


def resolved(value: Any, times: Mapping[int, Any]) -> Any:
    """The filter with a time for each shift."""
    if isinstance(value, tuple):
        return times[value[1]]
    if isinstance(value, dict):
        return {name: resolved(item, times) for name, item in value.items()}
    return [resolved(item, times) for item in value] if isinstance(value, list) else value


class ClockWorld:
    """One run: the app, its database, and what was seen of it.

    hits: number of answers from the cache.
    """

    def __init__(self, mongo_url: str, database: str, seed: int) -> None:
        self.random = Random(seed)
        self.clock = StoppedClock()
        self.hits = 0
        self.quaestor = Quaestor(clock=self.clock, **PATIENT | {"ttl_max_ms": 30 * _DAY_MS, "ttl_min_ms": 30 * _DAY_MS})
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self._bare: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url)
        self.offers = self._bare[database].offers
        self._others = self._bare[database].others
        self.filters = [random_filter(self.random) for _ in range(5)]
        app = FastAPI()
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)

        @app.get("/offers/{number}")
        async def offers(number: int, count: bool = False) -> Any:
            now = Now()
            times = {shift: now + timedelta(milliseconds=shift) for shift in _SHIFTS_MS}
            assert all(isinstance(each, DeclaredTime) for each in times.values())
            condition = resolved(self.filters[number], times)
            collection = self._client[database].offers
            if count:
                return await collection.count_documents(condition)
            return [record["_id"] async for record in collection.find(condition).sort("_id", 1)]

        self._app = app
        self._unchanged_since: dict[str, int] = {}

    async def __aenter__(self) -> ClockWorld:
        await self.quaestor.start()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=self._app), base_url="http://shop.test")
        for key in range(8):
            self.offers.insert_one(self._record(key))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
        await self.quaestor.stop()
        await self._client.close()
        self._bare.close()

    def _time(self) -> Any:
        if self.random.random() < 0.1:
            return self.random.choice([None, 7, [date_of(self._near()), date_of(self._near())]])
        return date_of(self._near())

    def _near(self) -> int:
        return self.clock.now_ms + self.random.choice([1, 1, -1]) * self.random.choice((*_STEPS_MS, 0))

    def _record(self, key: int) -> dict[str, Any]:
        return {"_id": key, "starts": self._time(), "ends": self._time(), "kind": self.random.choice("ab")}

    def _write(self) -> None:
        key = self.random.randrange(12)
        match self.random.randrange(3):
            case 0:
                self.offers.replace_one({"_id": key}, self._record(key), upsert=True)
            case 1:
                self.offers.update_one({"_id": key}, {"$set": {self.random.choice(_FIELDS): self._time()}})
            case 2:
                self.offers.delete_one({"_id": key})
        self._unchanged_since.clear()

    async def _caught_up(self) -> None:
        """Wait until the cell has taken in all writes, and knows the time."""
        self._others.insert_one({})
        await self.quaestor.settled(within_s=_WITHIN_S)

    def _result(self, path: str, at_ms: int) -> Any:
        number = int(path.split("/")[2].split("?")[0])
        times = {shift: date_of(at_ms + shift) for shift in _SHIFTS_MS}
        condition = resolved(self.filters[number], times)
        if path.endswith("count=true"):
            return self.offers.count_documents(condition)
        return [record["_id"] for record in self.offers.find(condition).sort("_id", 1)]

    def _changes(self, path: str, from_ms: int, to_ms: int) -> bool:
        """Whether the result, or a part of it, changes between these instants."""
        times = [
            each
            for record in self.offers.find({})
            for field in _FIELDS
            for each in (record[field] if isinstance(record.get(field), list) else [record.get(field)])
            if isinstance(each, datetime)
        ]
        instants = {
            round((each - datetime(1970, 1, 1)) / timedelta(milliseconds=1)) - shift + more
            for each in times
            for shift in _SHIFTS_MS
            for more in (0, 1)
        }
        before = self._result(path.split("?")[0], from_ms)
        return any(self._result(path.split("?")[0], at) != before for at in sorted(instants) if from_ms < at <= to_ms)

    async def look(self, path: str) -> None:
        """Ask for one answer; compare it with the bare query at this instant, and a miss with the need for one."""
        end_s = time.monotonic() + _WITHIN_S
        while "not-serving" in (answer := await self.http.get(path)).headers["cache-status"]:
            assert time.monotonic() < end_s, answer.headers
            await asyncio.sleep(0.01)
        status, now_ms = answer.headers["cache-status"], self.clock.now_ms
        if answer.json() != self._result(path, now_ms):
            raise StaleError((path, self.filters, status))
        hit = "hit" in status
        self.hits += hit
        since_ms = self._unchanged_since.get(path)
        if since_ms is not None and not hit:
            assert self._changes(path, since_ms, now_ms), (path, self.filters, status)
        if hit or "stored" in status:
            self._unchanged_since[path] = now_ms
        else:
            self._unchanged_since.pop(path, None)

    async def play(self, steps: int) -> None:
        """Move the clock, write, and look, so many times."""
        paths = [f"/offers/{number}{suffix}" for number in range(len(self.filters)) for suffix in ("", "?count=true")]
        for _ in range(steps):
            if self.random.random() < 0.7:
                self.clock.now_ms += self.random.choice(_STEPS_MS)
            if self.random.random() < 0.35:
                self._write()
            await self._caught_up()
            for path in self.random.sample(paths, 4):
                await self.look(path)
