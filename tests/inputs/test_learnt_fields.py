"""Fields that are learnt to decide: one that turns up later, by requests at the same time, in several processes."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from quaestor.store.index_redis import RedisIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from quaestor.testing import servers
from tests.hand_driven import HandEngine, HandRegistry, TaggingCdn, reads
from tests.inputs.hand_driven_page import client_of
from tests.inputs.orgs import is_hit
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def by_org(request: Request) -> Response:
    reads()
    if request.headers.get("x-staff"):
        return PlainTextResponse(f"staff of {request.headers.get('x-org-id')}")
    return PlainTextResponse("everybody")


async def test_a_field_that_only_some_answers_depend_on_is_keyed_from_then_on() -> None:
    async with client_of(by_org) as http:
        for fields in ({}, {"x-org-id": "1"}):
            assert (await http.get("/", headers=fields)).text == "everybody"
        for org in ("1", "2", "1"):
            assert (await http.get("/", headers={"x-staff": "1", "x-org-id": org})).text == f"staff of {org}"
            assert (await http.get("/", headers={"x-org-id": org})).text == "everybody"


async def test_an_entry_from_before_anything_was_known_to_decide_is_dropped() -> None:
    """A handler that looks at a field from its second run on, because something else in the process has changed."""
    engine, runs = HandEngine(), 0

    async def page(request: Request) -> Response:
        nonlocal runs
        runs += 1
        reads()
        return PlainTextResponse("any" if runs == 1 else f"of {request.headers.get('x-org-id')}")

    async with client_of(page, engine=engine) as http:
        assert (await http.get("/")).text == "any"
        engine.registry.kill()
        assert (await http.get("/", headers={"x-org-id": "1"})).text == "of 1"
        assert (await http.get("/", headers={"x-org-id": "2"})).text == "of 2"
        assert (await http.get("/")).text == "of None"


async def test_a_follower_is_not_given_the_leader_s_answer() -> None:
    """Nothing is known of the page when both ask; who waited looks again by what was learnt, and its handler runs."""
    gate, running = asyncio.Event(), 0

    async def page(request: Request) -> Response:
        nonlocal running
        running += 1
        reads()
        org = request.headers["x-org-id"]
        await gate.wait()
        return PlainTextResponse(f"of {org}")

    async with client_of(page) as http:
        orgs = ["1", "2", "2", "3", "1"]
        asking = [asyncio.create_task(http.get("/", headers={"x-org-id": org})) for org in orgs]
        await eventually(lambda: running == 1)
        gate.set()
        answers = await asyncio.gather(*asking)
    assert [answer.text for answer in answers] == [f"of {org}" for org in orgs]
    assert running == 3


async def test_conditions_and_heads_are_answered_by_the_own_variant() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(f"of {request.headers.get('x-org-id')}")

    async with client_of(page) as http:
        first, second = [await http.get("/", headers={"x-org-id": org}) for org in ("1", "2")]
        assert first.headers["etag"] != second.headers["etag"]
        for answer, org in ((first, "1"), (second, "2")):
            fields = {"x-org-id": org, "if-none-match": answer.headers["etag"]}
            same = await http.get("/", headers=fields)
            assert (same.status_code, same.headers["vary"]) == (304, "x-org-id")
            head = await http.head("/", headers={"x-org-id": org})
            assert head.headers["etag"] == answer.headers["etag"]
        crossed = await http.get("/", headers={"x-org-id": "2", "if-none-match": first.headers["etag"]})
        assert crossed.text == "of 2"


async def test_a_refresh_in_the_background_asks_with_the_same_fields() -> None:
    engine = HandEngine()

    async def page(request: Request) -> Response:
        reads()
        fields = {"cache-control": "max-age=10, stale-while-revalidate=60"}
        return PlainTextResponse(f"of {request.headers.get('x-org-id')} at {engine.clock.now_ms}", headers=fields)

    async with client_of(page, engine=engine) as http:

        async def text(org: str) -> str:
            return (await http.get("/", headers={"x-org-id": org})).text

        begun_ms = engine.clock.now_ms
        for org in ("1", "2"):
            assert await text(org) == f"of {org} at {begun_ms}"
        engine.clock.now_ms += 20_000
        for org in ("1", "2"):
            assert await text(org) == f"of {org} at {begun_ms}"

            async def renewed(org: str = org) -> bool:
                return await text(org) == f"of {org} at {engine.clock.now_ms}"

            await eventually(renewed)


async def test_too_many_fields_count_as_all() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(",".join(request.headers.get(f"x-{n}", "") for n in range(20)))

    async with client_of(page) as http:
        for value in ("1", "2", "1"):
            answer = await http.get("/", headers={"x-19": value})
            assert answer.text.endswith("," + value)
        assert is_hit(answer)
        assert answer.headers["vary"] == "*"


async def test_cdns_receive_the_deciding_fields() -> None:
    async def page(request: Request) -> Response:
        reads()
        if request.url.path == "/all":
            return JSONResponse(sorted(request.headers.keys()))
        return PlainTextResponse(request.headers.get("x-org-id", ""))

    async with client_of(page, cdn=[TaggingCdn()]) as http:
        single, everything = await http.get("/one"), await http.get("/all")
    assert single.headers["vary"] == "x-org-id"
    assert "cdn-cache-control" in single.headers
    assert everything.headers["vary"] == "*"
    assert "cdn-cache-control" not in everything.headers
    assert everything.headers["cache-control"].startswith("private")


async def test_each_worker_learns_the_deciding_fields_itself(valkey: servers.Server) -> None:
    """Two processes share one store, and neither serves an entry that the other stored for another client."""
    from redis.asyncio import Redis

    runs: list[str] = []

    async def page(request: Request) -> Response:
        reads()
        org = request.headers.get("x-org-id", "")
        runs.append(org)
        return PlainTextResponse(f"of {org}")

    registry = HandRegistry()
    redis = Redis.from_url(valkey.url, protocol=2)
    engines = []
    for _ in range(2):
        shared = RedisStore(redis, deployment="d")
        engines.append(
            HandEngine(
                store=TwoLevelStore(MemoryStore(budget_bytes=10**6), shared),
                index=RedisIndex(redis, deployment="d"), registry=registry, leases=shared,
            )
        )  # fmt: skip
    clients = [client_of(page, engine=engine) for engine in engines]
    try:
        for client, org in [(0, "1"), (1, "2"), (0, "2"), (1, "1"), (0, ""), (1, ""), (1, "3"), (0, "3")]:
            fields = {"x-org-id": org} if org else {}
            assert (await clients[client].get("/", headers=fields)).text == f"of {org}"
        assert sorted(runs) == ["", "1", "2", "3"]
        together = await asyncio.gather(
            *(client.get("/b", headers={"x-org-id": org}) for client in clients for org in ("1", "2", "3"))
        )
        assert [answer.text for answer in together] == ["of 1", "of 2", "of 3"] * 2
    finally:
        for engine, client in zip(engines, clients, strict=True):
            await engine.read_path.coalescing.settle()
            await client.aclose()
        await redis.aclose()
