"""Request fields that a handler asks for decide its answer as if `Vary` named them, whatever they are called."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, Header
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from middleware import QuaestorMiddleware
from middleware.interface import App
from quaestor.demo import servers
from quaestor.errors import ConfigurationError
from quaestor.settings import Settings
from quaestor.store.index_redis import RedisIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from tests.hand_driven import HandEngine, HandRegistry, TaggingCdn, reads
from tests.inputs.orgs import APPS, Choose, Make, is_hit, orgs, raw_app, starlette_app, varies_by
from tests.support import eventually

pytestmark = pytest.mark.anyio

FIELDS = [
    "X-Org-Id", "X-Workspace", "X-Customer-Id", "X-Company", "X-Shop", "X-Role", "X-Forwarded-Email", "X-MS-Client-Principal",
    "Accept-Language", "User-Agent", "Origin", "Referer", "X-Forwarded-For", "Sec-CH-UA", "anything",
]  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
async def test_whoever_sends_another_value_is_given_his_own_records(name: str, mongo_url: str, prefix: str) -> None:
    """No list of names could be complete: whatever the handler asks for counts."""
    async with orgs(starlette_app, name, mongo_url, prefix) as world:
        first = await world.warm("1")
        await world.ask("2")
        await world.warm("2")
        assert is_hit(await world.ask("1"))
        assert varies_by(first) == {name.lower()}


@pytest.mark.parametrize("make", APPS)
async def test_every_framework_s_way_of_asking_is_noticed(make: Make, mongo_url: str, prefix: str) -> None:
    """Compared one after the other, or copied as a whole; in every order of presence and absence."""
    async with orgs(make, "X-Org-Id", mongo_url, prefix) as world:
        for value in (None, "1", "2", None, "3", "1"):
            await world.ask(value)
        for other in ("1", None, "2"):
            warm = await world.warm(other)
            assert varies_by(warm) in ({"x-org-id"}, {"*"})
        runs = world.runs
        for value in ("1", None, "2"):
            assert is_hit(await world.ask(value))
        assert world.runs == runs


@pytest.mark.parametrize("make", APPS)
async def test_fields_that_nobody_asked_for_do_not_divide_hits(make: Make, mongo_url: str, prefix: str) -> None:
    """Except where the application copies all of them, and cannot be seen to look for one."""
    async with orgs(make, "X-Org-Id", mongo_url, prefix) as world:
        copies = "*" in varies_by(await world.warm("1", **{"User-Agent": "first"}))
        again = await world.ask("1", **{"User-Agent": "second", "X-Other": "1", "Accept-Language": "de"})
        assert is_hit(again) is not copies


async def test_what_all_fields_decided_is_for_nobody_outside(mongo_url: str, prefix: str) -> None:
    async with orgs(APPS[2], "X-Org-Id", mongo_url, prefix) as world:
        warm = await world.warm("1")
        assert warm.headers["vary"] == "*"
        assert warm.headers["cache-control"].startswith("private")


async def test_ignored_fields_do_not_count(mongo_url: str, prefix: str) -> None:
    logged: list[Any] = []

    def make(choose: Choose, name: str) -> App:
        async def page(request: Request) -> Response:
            logged.append((dict(request.headers), request.client and request.client.host))
            return JSONResponse(await choose(request.headers.get(name, "")))

        return Starlette(routes=[Route("/", page)])

    ignored = ("User-Agent", "Accept", "client-address")
    async with orgs(make, "X-Org-Id", mongo_url, prefix, ignored_fields=ignored) as world:
        await world.warm("1", **{"user-agent": "first"})
        assert is_hit(await world.ask("1", **{"user-agent": "second"}))
        assert not is_hit(await world.ask("1", **{"accept-language": "de"}))
        await world.ask("2")
        assert any(fields["user-agent"] == "first" for fields, _ in logged)


def test_ignored_fields_are_read_from_the_environment_and_checked() -> None:
    settings = Settings.from_env({"QUAESTOR_IGNORED_FIELDS": "user-agent, X-Trace,client-address"})
    assert settings.ignored_fields == ("user-agent", "X-Trace", "client-address")
    for wrong in ("user-agent", ("user agent",), ("",), ("*",)):
        with pytest.raises(ConfigurationError, match="ignored_fields"):
            Settings(ignored_fields=wrong)  # type: ignore[arg-type]


# What a request may be asked for besides its fields, driven by hand


def client_of(
    page: Any, *, engine: HandEngine | None = None, middleware: Any = (), **options: Any
) -> httpx.AsyncClient:
    """options: address: of the client."""
    app = Starlette(routes=[Route("/{rest:path}", page)], middleware=list(middleware))
    address = options.pop("address", ("1.1.1.1", 1))
    cached = QuaestorMiddleware(app, quaestor=engine or HandEngine(), **options)
    return httpx.AsyncClient(transport=httpx.ASGITransport(cached, client=address), base_url="http://site")  # type: ignore[arg-type]


async def test_what_the_client_s_address_decided_is_stored_for_nobody() -> None:
    async def page(request: Request) -> Response:
        reads()
        assert request.client is not None
        return PlainTextResponse(f"for {request.client.host}", headers={"cache-control": "public"})

    engine = HandEngine()
    for address in ("1.1.1.1", "2.2.2.2", "1.1.1.1"):
        async with client_of(page, engine=engine, address=(address, 7)) as http:
            answer = await http.get("/")
        assert answer.text == f"for {address}"
        assert "client-address" in answer.headers["cache-status"]
        assert answer.headers["cache-control"] == "no-store"


async def test_that_there_is_a_client_decides_nothing() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(str(request.scope["client"] is not None and {**request.scope}["client"] is not None))

    async with client_of(page) as http:
        await http.get("/")
        assert is_hit(await http.get("/"))


async def test_what_a_middleware_around_the_cache_has_put_into_the_scope_is_stored_for_nobody() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(f"for {request.scope['org']}")

    engine = HandEngine()
    inner = QuaestorMiddleware(Starlette(routes=[Route("/", page)]), quaestor=engine)  # type: ignore[arg-type]

    for org in ("1", "2"):

        async def outer(scope: Any, receive: Any, send: Any, org: str = org) -> None:
            await inner({**scope, "org": org}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://site") as http:  # type: ignore[arg-type]
            answer = await http.get("/")
        assert answer.text == f"for {org}"
        assert "scope-entry" in answer.headers["cache-status"]


@pytest.mark.parametrize(
    "middleware",
    [
        Middleware(GZipMiddleware, minimum_size=100_000),
        Middleware(TrustedHostMiddleware, allowed_hosts=["site"]),
        Middleware(SessionMiddleware, secret_key="s"),
    ],
    ids=lambda middleware: str(middleware.cls.__name__),
)
async def test_what_usual_middlewares_ask_for_does_not_divide_hits(middleware: Middleware) -> None:
    """Small answers are not compressed, so Accept-Encoding has decided nothing."""

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(str(request.url))

    async with client_of(page, middleware=[middleware]) as http:
        first = await http.get("/", headers={"accept-encoding": "gzip", "user-agent": "a", "traceparent": "x"})
        assert varies_by(first) <= {"accept-encoding", "cookie"}
        again = await http.get("/", headers={"accept-encoding": "gzip", "user-agent": "b", "accept": "text/html"})
        assert is_hit(again)


async def test_a_compressed_answer_is_for_those_who_accept_it() -> None:
    """Also if it does not say so itself."""

    async def page(request: Request) -> Response:
        reads()
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(b"\x1f\x8b", headers={"content-encoding": "x-none"})
        return PlainTextResponse("plain")

    async with client_of(page) as http:
        coded = await http.get("/", headers={"accept-encoding": "gzip"})
        assert varies_by(coded) == {"accept-encoding"}
        assert (await http.get("/", headers={"accept-encoding": "identity"})).text == "plain"


async def test_every_origin_is_given_its_own_fields() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("page")

    cors = Middleware(CORSMiddleware, allow_origins=["http://a", "http://b"])
    async with client_of(page, middleware=[cors]) as http:
        assert "access-control-allow-origin" not in (await http.get("/")).headers
        for origin in ("http://a", "http://b", "http://a"):
            answer = await http.get("/", headers={"origin": origin})
            assert answer.headers["access-control-allow-origin"] == origin
        assert is_hit(answer)


class Wanted(BaseModel):
    x_org_id: str = ""


async def test_header_models_of_fastapi_count_by_their_names() -> None:
    """FastAPI goes through all fields for a model, but only the declared ones reach the handler."""

    app = FastAPI()

    @app.get("/")
    async def page(wanted: Annotated[Wanted, Header()]) -> str:
        reads()
        return wanted.x_org_id

    cached = QuaestorMiddleware(app, quaestor=HandEngine())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(cached), base_url="http://site") as http:  # type: ignore[arg-type]
        assert (await http.get("/", headers={"x-org-id": "1", "user-agent": "a"})).json() == "1"
        assert is_hit(await http.get("/", headers={"x-org-id": "1", "user-agent": "b"}))
        assert (await http.get("/", headers={"x-org-id": "2"})).json() == "2"


# A field that turns up later, concurrency, several processes


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


async def test_more_fields_than_can_be_told_apart_count_as_all() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(",".join(request.headers.get(f"x-{n}", "") for n in range(20)))

    async with client_of(page) as http:
        for value in ("1", "2", "1"):
            answer = await http.get("/", headers={"x-19": value})
            assert answer.text.endswith("," + value)
        assert is_hit(answer)
        assert answer.headers["vary"] == "*"


async def test_cdns_are_told_what_decides() -> None:
    async def page(request: Request) -> Response:
        reads()
        if request.url.path == "/all":
            return JSONResponse(sorted(request.headers.keys()))
        return PlainTextResponse(request.headers.get("x-org-id", ""))

    async with client_of(page, cdn=[TaggingCdn()]) as http:
        one, everything = await http.get("/one"), await http.get("/all")
    assert one.headers["vary"] == "x-org-id"
    assert "cdn-cache-control" in one.headers
    assert everything.headers["vary"] == "*"
    assert "cdn-cache-control" not in everything.headers
    assert everything.headers["cache-control"].startswith("private")


async def test_requests_without_any_field_are_not_taken_for_others(mongo_url: str, prefix: str) -> None:
    """There is no name to compare with then."""
    async with orgs(raw_app, "X-Org-Id", mongo_url, prefix) as world:
        world.cached.headers.clear()
        for value in (None, "1", None, "2"):
            await world.ask(value)


async def test_workers_learn_for_themselves_what_decides(valkey: servers.Server) -> None:
    """Two processes on one store: neither is given what the other stored for somebody else."""
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
