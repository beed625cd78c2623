"""The middleware under a real server: answers on real sockets to real clients, also to clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quaestor.middleware import QuaestorMiddleware
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import serving
from tests.hand_driven import HandEngine, reads

pytestmark = pytest.mark.anyio

Handler = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def served(engine: HandEngine, handler: Handler) -> AsyncIterator[str]:
    app = Starlette(routes=[Route("/{rest:path}", handler)])
    app.add_middleware(QuaestorMiddleware, quaestor=engine)
    async with serving(uvicorn.Config(app, ws="none")) as url:
        yield url


async def test_lifespan_hits_head_and_304_over_real_http() -> None:
    engine = HandEngine()

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("x" * 100)

    async with served(engine, page) as url, httpx.AsyncClient(base_url=url) as client:
        assert engine.life == ["start"]
        await client.get("/a")
        # The entry is stored once the handler has ended, after its answer: this request may have to wait for that.
        await client.get("/a")
        hit = await client.get("/a")
        assert hit.headers["cache-status"] == "Quaestor; hit; ttl=60"
        assert hit.text == "x" * 100
        head = await client.head("/a")
        assert (head.content, head.headers["content-length"]) == (b"", "100")
        not_modified = await client.get("/a", headers={"if-none-match": hit.headers["etag"]})
        assert (not_modified.status_code, not_modified.content) == (304, b"")
        assert (await client.get("/a")).text == "x" * 100, "the connection is still in step"
    assert engine.life == ["start", "stop"]


async def test_a_client_that_leaves_before_the_answer_still_fills_the_cache_for_those_who_wait() -> None:
    engine = HandEngine()
    arrived, go_on = asyncio.Event(), asyncio.Event()
    runs = 0

    async def page(request: Request) -> Response:
        nonlocal runs
        runs += 1
        reads()
        arrived.set()
        await go_on.wait()
        return PlainTextResponse("x")

    async with served(engine, page) as url, httpx.AsyncClient(base_url=url) as client:
        leader = asyncio.create_task(client.get("/a"))
        await arrived.wait()
        follower = asyncio.create_task(client.get("/a"))
        leader.cancel()
        await asyncio.wait((leader,))
        go_on.set()
        assert (await follower).text == "x"
        assert runs == 1
        assert "hit" in (await client.get("/a")).headers["cache-status"]


async def test_hostile_bytes_on_the_wire_get_an_answer() -> None:
    engine = HandEngine()

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("x")

    async with served(engine, page) as url:
        port = int(url.rpartition(":")[2])
        for head in (
            b"GET /%zz%00%ff?%=&&;=%% HTTP/1.1\r\nHost: a\r\n",
            b"GET / HTTP/1.1\r\nHost: a b/c?d#e\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nCache-Control: " + b'"\\' * 10_000 + b"\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: " + b'W/"' * 10_000 + b"\r\n",
            b"GET /?" + b"&a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n",
        ):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(head + b"Connection: close\r\n\r\n")
            async with asyncio.timeout(20):
                answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert answer.startswith(b"HTTP/1.1 "), head[:60]
            assert b" 500 " not in answer.split(b"\r\n", 1)[0], head[:60]
