"""Answers in pieces, background tasks and exceptions go through as they would without a cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI
from fastapi import Request as FastApiRequest
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from quaestor.middleware import QuaestorMiddleware
from tests.end_to_end.site import Site, raw_get, status_of
from tests.hand_driven import HandEngine, reads
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two pieces a busy machine may stand still."""
    monkeypatch.setattr("quaestor.middleware.held_answer.HOLD_S", PATIENCE_S)


async def test_an_answer_in_pieces_is_stored_whole() -> None:
    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"a"
            reads()
            yield b"b"

        return StreamingResponse(pieces())

    site = Site(handler)
    for _ in range(2):
        answer = await site.get()
        assert (answer.content, answer.headers["content-length"]) == (b"ab", "2")
    assert site.runs == 1


async def test_a_base_http_middleware_inside_does_not_prevent_storing() -> None:
    async def dispatch(request: FastApiRequest, call_next: Any) -> Any:
        return await call_next(request)

    site = Site(inner=[Middleware(BaseHTTPMiddleware, dispatch=dispatch)])
    await site.get()
    assert "hit" in status_of(await site.get())


async def test_a_body_above_the_limit_streams_through_unstored() -> None:
    async def handler(request: Request) -> Response:
        reads()

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(4):
                yield b"x" * 600

        return StreamingResponse(pieces())

    site = Site(handler, max_body_bytes=1000)
    answer = await site.get()
    assert len(answer.content) == 2400
    assert answer.headers["cache-control"] == "no-store"
    assert site.engine.count("uncacheable", reason="too-large") == 1
    await site.get()
    assert site.runs == 2


async def test_pieces_beyond_the_limit_reach_the_client_before_the_handler_has_finished() -> None:
    go_on = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"x" * 2000
            await go_on.wait()
            yield b"y"

        return StreamingResponse(pieces())

    site = Site(handler, max_body_bytes=1000)
    sent = await raw_get(site, until_body=True)
    assert [message["type"] for message in sent[:2]] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == b"x" * 2000


async def test_event_streams_are_passed_on_as_they_come() -> None:
    forever = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            reads()
            yield b"data: 1\n\n"
            await forever.wait()

        return StreamingResponse(events(), media_type="text/event-stream")

    site = Site(handler)
    sent = await raw_get(site, until_body=True)
    assert sent[1]["body"] == b"data: 1\n\n"


async def test_a_slow_answer_in_pieces_is_released_instead_of_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quaestor.middleware.held_answer.HOLD_S", 0.01)
    forever = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            reads()
            yield b"first"
            await forever.wait()

        return StreamingResponse(pieces())

    site = Site(handler)
    sent = await raw_get(site, until_body=True)
    assert sent[1]["body"] == b"first"
    assert dict(sent[0]["headers"])[b"cache-control"] == b"no-store"


async def test_background_tasks_run_after_the_answer_and_may_write() -> None:
    engine = HandEngine()
    app = FastAPI()
    done: list[str] = []

    @app.get("/items")
    def items(background: BackgroundTasks) -> dict[str, int]:
        reads()
        background.add_task(lambda: done.append("done"))
        return {"n": 1}

    app.add_middleware(QuaestorMiddleware, quaestor=engine)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x.test") as client:
        first, second = await client.get("/items"), await client.get("/items")
    assert first.json() == second.json() == {"n": 1}
    assert "hit" in status_of(second)
    assert done == ["done"]


async def test_exceptions_reach_the_app_s_own_handlers_and_nothing_is_stored() -> None:
    async def handler(request: Request) -> Response:
        reads()
        raise LookupError("boom")

    site = Site(handler)
    for _ in range(2):
        with pytest.raises(LookupError, match="boom"):
            await site.get()
    assert site.runs == 2
    assert len(site.engine.read_path.coalescing) == 0
