"""Verification is fair: what differs for a reason is no divergence, and what nobody may repeat is not made again."""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from fastapi import Request

from quaestor import cached, public
from quaestor.read_path.verification_samples import SAMPLE_EVERY_MS
from quaestor.testing import VirtualClock
from tests.inputs.unseen_sources import chance
from tests.inputs.verified_site import is_hit, is_stored, verified_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("patient_redis")
async def test_writes_in_between_are_no_divergence(mongo_url: str, prefix: str, settings: dict[str, Any]) -> None:
    """Under hundreds of random writes and constant verification, every difference is excused."""
    always = {"probation_answers": 200, "probation_ttl_ms": 300, "verify_share": 1.0, "verify_per_second": 1_000.0}
    async with verified_site(mongo_url, prefix, **always, **settings) as site:
        await eventually(lambda: is_stored(site))
        choose = random.Random(11)
        done = asyncio.Event()

        def write() -> None:
            n = choose.randrange(30)
            match choose.randrange(4):
                case 0:
                    site.records.delete_one({"_id": n})
                case 1:
                    site.records.replace_one({"_id": n}, {"group": choose.randrange(10), "n": 0}, upsert=True)
                case _:
                    site.records.update_one({"_id": n}, {"$inc": {"n": 1}})

        async def write_all() -> None:
            for _ in range(400):
                await anyio.to_thread.run_sync(write)
            done.set()

        async def ask() -> None:
            while not done.is_set():
                await site.get(f"/groups/{choose.randrange(10)}")
                await anyio.lowlevel.checkpoint()  # a hit waits for nothing, and entries live until a write

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_all)
            for _ in range(3):
                tasks.start_soon(ask)
        await eventually(lambda: site.verified("excused") > 0 and site.verified("same") > 0)
        assert site.verified("diverged") == 0
        assert site.quaestor.read_path.probation.quarantines == []


async def test_other_records_that_the_database_was_free_to_choose_are_no_divergence(
    mongo_url: str, prefix: str
) -> None:
    """A new index lets it find others first: nothing was written, and the first answer was right too; it goes all the same."""
    async with verified_site(mongo_url, prefix, probation_answers=200, ttl_min_ms=600_000) as site:

        async def source(_: Request) -> Any:
            records = await site.seen.records.find({"group": {"$gte": 0}}).limit(2).to_list()
            return [record["_id"] for record in records]

        site.source = source
        await eventually(lambda: is_hit(site))
        before = (await site.get())[0]["besides"]
        site.records.create_index([("group", -1)])

        async def chosen_otherwise() -> bool:
            return bool((await site.get())[0]["besides"] != before)

        await eventually(chosen_otherwise)
        await eventually(lambda: site.verified("excused") > 0)
        assert site.verified("diverged") == 0
        assert site.quaestor.read_path.probation.quarantines == []


async def test_an_answer_whose_unit_of_the_clock_is_over_may_differ_from_a_later_one(
    mongo_url: str, prefix: str
) -> None:
    """A hit at the end of a minute is verified in the next one."""
    clock = VirtualClock()
    settings = {"probation_answers": 0, "verify_share": 1.0, "verify_per_second": 10.0, "ttl_min_ms": 600_000}
    async with verified_site(mongo_url, prefix, clock=clock, **settings) as site:

        @site.app.get("/this-minute")
        async def this_minute() -> list[Any]:
            minute = clock.now().replace(second=0, microsecond=0)
            return [str(minute), await site.seen.records.count_documents({"at": {"$gte": minute}})]

        def verifications() -> float:
            return sum(map(site.verified, ("same", "excused", "diverged", "failed")))

        async def is_sampled_hit() -> bool:
            clock.advance(timedelta(milliseconds=SAMPLE_EVERY_MS + 1))
            return await is_hit(site, "/this-minute")

        while not site.verified("excused"):
            known = verifications()
            await eventually(is_sampled_hit)
            clock.advance(timedelta(minutes=1))
            await eventually(lambda known=known: verifications() > known)  # type: ignore[misc]
            assert site.verified("diverged") == 0
        assert site.quaestor.read_path.probation.quarantines == []


async def test_nothing_is_made_again_when_it_is_off(mongo_url: str, prefix: str, tmp_path: Path) -> None:
    """A site that is verified shows when there would have been something to find."""
    async with (
        verified_site(mongo_url, f"{prefix}a", verification=False, ttl_min_ms=600_000) as off,
        verified_site(mongo_url, f"{prefix}b") as on,
    ):
        off.source, on.source = chance(off, tmp_path), chance(on, tmp_path)
        await eventually(lambda: is_hit(off))
        runs = off.runs
        await eventually(on.found_out)
        assert (await off.get())[1].startswith("Quaestor; hit")
        assert off.runs == runs


async def test_an_answer_that_only_a_declaration_justifies_is_not_made_again(mongo_url: str, prefix: str) -> None:
    """With `@cached(ttl=...)` on an answer without reads, the author has declared how long it may be served."""
    async with verified_site(mongo_url, prefix, probation_answers=1) as site:
        runs = 0

        @site.app.get("/declared")
        @cached(ttl=600)
        async def declared() -> int:
            nonlocal runs
            runs += 1
            return runs

        async def stored() -> bool:
            return "hit" in (await site.get("/declared"))[1]

        await eventually(stored)
        before = runs

        async def passed() -> bool:
            await site.get()
            return site.passed

        await eventually(passed)
        assert runs == before


async def test_requests_with_credentials_are_not_made_again(mongo_url: str, prefix: str) -> None:
    """A client's cookie is never kept for later, also where an answer is public."""
    async with verified_site(mongo_url, prefix, probation_answers=1) as site:
        requests: list[str | None] = []

        @site.app.get("/public")
        @cached(scope=public())
        async def shared(request: Request) -> Any:
            requests.append(request.headers.get("cookie"))
            return await site.seen.records.find_one({"_id": 1})

        async def stored() -> bool:
            return "hit" in (await site.get("/public", cookie="session=ann"))[1]

        await eventually(stored)
        before = len(requests)

        async def passed() -> bool:
            await site.get()
            return site.passed

        await eventually(passed)
        assert len(requests) == before


async def test_a_request_is_made_again_in_the_surroundings_that_it_had(mongo_url: str, prefix: str) -> None:
    """A repeated run sees the context variables and the scope that outer middleware set,
    so an app that relies on them answers alike.
    """
    language: ContextVar[str] = ContextVar("language", default="none")
    ignored = ("scope.tenant", "state.runs")  # noticed otherwise, and what they decide is not cached
    async with verified_site(mongo_url, prefix, probation_answers=1, ignored_fields=ignored) as site:

        async def source(request: Request) -> list[Any]:
            request.state.runs = getattr(request.state, "runs", 0) + 1
            return [
                language.get(),
                request.state.runs,
                request.scope["tenant"],
                request.url.path,
                request.scope["root_path"],
            ]

        site.source = source
        inner = site.http._transport.app  # type: ignore[attr-defined]

        async def around(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                language.set("fr")
                scope = {**scope, "tenant": "shop", "state": {}}
            await inner(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(around), base_url="http://site") as site.http:

            async def passed() -> bool:
                assert (await site.get())[0]["besides"][:3] == ["fr", 1, "shop"]
                return site.passed

            await eventually(passed)
        assert site.verified("diverged") == 0


async def test_a_handler_that_fails_when_it_is_asked_again_is_not_held_against_its_route(
    mongo_url: str, prefix: str
) -> None:
    async with verified_site(mongo_url, prefix, probation_answers=1) as site:

        async def source(_: Request) -> None:
            if site.runs > 1 and asyncio.current_task().get_name() == "quaestor-verification":  # type: ignore[union-attr]
                raise RuntimeError("asked twice")

        site.source = source
        await eventually(lambda: is_stored(site))
        await eventually(lambda: site.verified("failed") > 0)
        assert site.quaestor.read_path.probation.quarantines == []
