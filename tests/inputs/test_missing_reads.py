"""Memos of the app's own: no answer from cache is older than the memo itself.

A run that reads less than the one before it is not stored once a record that it left out has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from pymongo import MongoClient

from quaestor.read_path import verification_samples
from tests.inputs.verified_site import VerifiedSite, verified_site
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

Read = Callable[[], Awaitable[Any]]
LONG = {"ttl_min_ms": 600_000, "verification": False}
"""Only invalidation ends an entry, and only the test runs a handler."""


@dataclass(slots=True)
class Memo:
    """A memo around a read.

    read: what the handler calls.
    end: ends it by hand, as its lifetime would; None: it never ends.
    """

    read: Read
    end: Callable[[], None] | None


def for_ever(read: Read, _: Callable[[], Any]) -> Memo:
    kept: list[Any] = []

    async def memoised() -> Any:
        if not kept:
            kept.append(await read())
        return kept[0]

    return Memo(memoised, None)


@dataclass(slots=True)
class Ttl:
    """A cache of values for some seconds, by the name of what made them, as aiocache's decorator keeps them."""

    seconds: float
    now: float = field(default_factory=time.monotonic)
    kept: dict[str, tuple[float, Any]] = field(default_factory=dict)

    def __call__(self, function: Read) -> Read:
        async def memoised() -> Any:
            memo = self.kept.get(function.__name__)
            if memo is None or memo[0] <= self.now:
                memo = self.kept[function.__name__] = (self.now + self.seconds, await function())
            return memo[1]

        return memoised


def with_a_lifetime(read: Read, _: Callable[[], Any]) -> Memo:
    cache = Ttl(seconds=300)

    def end() -> None:
        cache.now += 300

    return Memo(cache(read), end)


def lru(_: Read, read_in_thread: Callable[[], Any]) -> Memo:
    """functools.lru_cache around a read with the synchronous driver."""
    memoised = lru_cache(maxsize=8)(read_in_thread)
    return Memo(lambda: asyncio.to_thread(memoised), memoised.cache_clear)


@dataclass(slots=True)
class Beside:
    """The cached app and, beside it, the same routes without a cache."""

    site: VerifiedSite
    bare: httpx.AsyncClient

    async def write(self, rate: int) -> None:
        self.site.other[self.site.seen.name].rates.update_one({"_id": "eur"}, {"$set": {"rate": rate}}, upsert=True)

    async def same(self) -> tuple[int, str]:
        """The rate on the page, the same with and without the cache, and how it came."""
        cached, how = await self.site.get()
        bare = (await self.bare.get("/groups/1")).json()
        assert cached == bare
        return cached["besides"]["rate"], how

    async def until(self, what: str, path: str = "/groups/1") -> None:
        async def came() -> bool:
            return what in (await self.site.get(path))[1]

        await eventually(came)


@asynccontextmanager
async def beside(
    mongo_url: str, prefix: str, make: Callable[[Read, Callable[[], Any]], Memo], **settings: Any
) -> AsyncIterator[tuple[Beside, Memo]]:
    async with verified_site(mongo_url, prefix, **LONG | settings) as site:
        with MongoClient[dict[str, Any]](mongo_url, event_listeners=[site.quaestor.capture]) as in_thread:

            async def read() -> Any:
                return await site.seen.rates.find_one({"_id": "eur"})

            memo = make(read, lambda: in_thread[prefix].rates.find_one({"_id": "eur"}))

            async def source(_: Request) -> Any:
                return await memo.read()

            pair = Beside(site, site.http)
            await pair.write(1)

            @site.app.get("/serving")
            async def another() -> Any:
                return await site.seen.records.find_one({"_id": 0})

            await pair.until("; hit", "/serving")  # nothing is read yet that could be kept
            site.source = source
            bare = FastAPI()
            bare.include_router(site.app.router)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(bare), base_url="http://bare") as client:
                yield Beside(site, client), memo


@pytest.mark.parametrize("make", [for_ever, with_a_lifetime, lru])
async def test_no_answer_from_cache_is_older_than_the_memo_it_was_made_of(
    mongo_url: str, prefix: str, settings: dict[str, Any], make: Callable[..., Memo]
) -> None:
    """The rate changes while the app goes on using the old one; when the app's memo ends, the very next answer is the new one."""
    async with beside(mongo_url, prefix, make, **settings) as (pair, memo):
        await pair.until("; hit")
        await pair.write(2)
        await pair.until("detail=missing-read")
        for _ in range(3):
            assert await pair.same() == (1, "Quaestor; fwd=uri-miss; detail=missing-read")
        if memo.end is None:
            return
        memo.end()
        assert (await pair.site.get())[0]["besides"]["rate"] == 2
        memo.end()
        await pair.until("; hit")
        assert (await pair.same())[0] == 2


async def test_a_branch_that_reads_less_because_of_what_it_found_is_cached(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """The first read has changed, so it may have led elsewhere: nothing is missing."""
    async with verified_site(mongo_url, prefix, **LONG | settings) as site:
        reserved = site.other[prefix].reserved
        reserved.insert_one({"_id": 1, "of": 1})

        async def source(_: Request) -> Any:
            first = await site.seen.records.find_one({"_id": 1})
            return await site.seen.reserved.find_one({"of": 1}) if first and first["n"] == 0 else None

        site.source = source
        pair = Beside(site, site.http)
        for closed in (1, 0, 2):
            await pair.until("; hit")
            site.records.update_one({"_id": 1}, {"$set": {"n": closed}})

            async def seen(closed: int = closed) -> bool:
                response, _ = await site.get()
                return bool(response["records"][0]["n"] == closed and (response["besides"] is None) == bool(closed))

            await eventually(seen)
            await pair.until("; hit")
        count = site.quaestor.telemetry.families.registry.get_sample_value
        assert not count("quaestor_uncacheable_total", {"reason": "missing-read"})


async def test_settings_that_are_read_once_and_never_change_keep_nothing_from_being_cached(
    mongo_url: str, prefix: str
) -> None:
    """Programs read their settings at the first request; the page is cached before and after it has changed otherwise."""
    async with beside(mongo_url, prefix, for_ever) as (pair, _):
        await pair.until("; hit")
        pair.site.records.update_one({"_id": 1}, {"$set": {"n": 1}})

        async def changed() -> bool:
            return bool((await pair.site.get())[0]["records"][0]["n"] == 1)

        await eventually(changed)
        await pair.until("; hit")
        count = pair.site.quaestor.telemetry.families.registry.get_sample_value
        assert not count("quaestor_uncacheable_total", {"reason": "missing-read"})


async def test_a_memo_that_is_renewed_while_nothing_has_changed_is_a_divergence_at_once(
    mongo_url: str, prefix: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An equal answer made of further queries shows that the handler keeps results of earlier queries."""
    monkeypatch.setattr(verification_samples, "SAMPLE_EVERY_MS", 0)  # the page is sampled, however soon after another
    always = {"verification": True, "probation_answers": 0, "verify_share": 1.0, "verify_per_second": 100.0}
    async with beside(mongo_url, prefix, with_a_lifetime, **always, **settings) as (pair, memo):
        assert (await pair.bare.get("/groups/1")).json()["besides"]["rate"] == 1  # who fills the memo is not seen
        await pair.until("; hit")
        assert memo.end is not None
        memo.end()
        await eventually(pair.site.found_out)
        assert [quarantine.differs for quarantine in pair.site.quaestor.read_path.probation.quarantines] == [
            ("queries",)
        ]


async def test_a_route_that_has_passed_is_verified_again_when_one_of_its_reads_is_missing(
    mongo_url: str, prefix: str
) -> None:
    """A finding in one request is a reason to check the others: their entries live for a moment only."""
    async with verified_site(mongo_url, prefix, probation_answers=1) as site:
        pair, kept = Beside(site, site.http), []
        await pair.write(1)

        async def source(_: Request) -> Any:
            return kept or await site.seen.rates.find_one({"_id": "eur"})

        async def passed() -> bool:
            await site.get()
            return site.passed

        site.source = source
        await eventually(passed)
        await pair.until("; hit")
        kept.append("what it was")
        await pair.write(2)
        await pair.until("detail=missing-read")
        assert not site.passed
