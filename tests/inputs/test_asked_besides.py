"""Inputs besides a request's own fields: the address, the scope, and the values that usual middlewares read."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, Header
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from quaestor.middleware import QuaestorMiddleware
from tests.hand_driven import HandEngine, reads
from tests.inputs.hand_driven_page import client_of
from tests.inputs.orgs import is_hit, varies_by

pytestmark = pytest.mark.anyio


async def test_answers_that_the_address_of_the_client_decided_are_stored_for_nobody() -> None:
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


async def test_answers_that_a_middleware_around_the_cache_decided_are_stored_for_nobody() -> None:
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
async def test_reads_of_usual_middlewares_do_not_divide_hits(middleware: Middleware) -> None:
    """Small answers are not compressed, so Accept-Encoding has decided nothing."""

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse(str(request.url))

    async with client_of(page, middleware=[middleware]) as http:
        first = await http.get("/", headers={"accept-encoding": "gzip", "user-agent": "a", "traceparent": "x"})
        assert varies_by(first) <= {"accept-encoding", "cookie"}
        again = await http.get("/", headers={"accept-encoding": "gzip", "user-agent": "b", "accept": "text/html"})
        assert is_hit(again)


async def test_a_compressed_answer_is_only_for_clients_that_accept_it() -> None:
    """An answer depends on Accept-Encoding also if it does not name that in Vary."""

    async def page(request: Request) -> Response:
        reads()
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(b"\x1f\x8b", headers={"content-encoding": "x-none"})
        return PlainTextResponse("plain")

    async with client_of(page) as http:
        coded = await http.get("/", headers={"accept-encoding": "gzip"})
        assert varies_by(coded) == {"accept-encoding"}
        assert (await http.get("/", headers={"accept-encoding": "identity"})).text == "plain"


class EarlierCors(CORSMiddleware):
    """As Starlette had it before 1.7: an answer to a request without `Origin` does not say that it varies by that field."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inside = self.app if Headers(scope=scope).get("origin") is None else super().__call__
        await inside(scope, receive, send)


@pytest.mark.parametrize("kind", [CORSMiddleware, EarlierCors])
async def test_each_origin_gets_its_own_fields(kind: Any) -> None:
    """Each stored answer names Origin in Vary for caches outside, with every version of Starlette."""

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("page")

    cors = Middleware(kind, allow_origins=["http://a", "http://b"])
    async with client_of(page, middleware=[cors]) as http:
        for _ in range(2):
            without = await http.get("/")
            assert "access-control-allow-origin" not in without.headers
            assert "origin" in varies_by(without)
        assert is_hit(without)
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
