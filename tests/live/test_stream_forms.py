"""Bodies in the events of a stream, through the middlewares that applications put around and inside the cache."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import jsonpatch
import pytest
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from quaestor.caching import cached
from quaestor.policy import Live
from tests.hand_driven import reads
from tests.live.live_site import LiveSite
from tests.live.streamed import Client, following

pytestmark = pytest.mark.anyio


def rows(version: int) -> list[dict[str, object]]:
    return [{"id": i, "name": f"item {i}", "price": version if i == 3 else 0} for i in range(40)]


async def data(stream: Client) -> str:
    event = await stream.event()
    assert event is not None
    return event.data


@pytest.mark.parametrize("declared", [True, False])
async def test_a_patch_makes_the_answer_before_it_the_new_one(declared: bool) -> None:
    """Patches come to routes that declare them, and to clients that ask for them."""

    async def page(request: Request) -> Response:
        reads()
        return JSONResponse(rows(site.version))

    site = LiveSite(page, declared=cached(live=Live(patch=declared)))
    accept = "text/event-stream" if declared else "text/event-stream; patch=json"
    async with site.served() as client, following(client, "/items", accept=accept) as stream:
        shown = json.loads(await data(stream))
        for version in (2, 3):
            site.change(version)
            event = await stream.event()
            assert event is not None
            assert event.name == "patch"
            assert len(event.data) < 100
            shown = jsonpatch.apply_patch(shown, event.data)
            assert shown == rows(version)
            assert event.id == (await client.get("/items")).headers["etag"]


async def test_a_patch_longer_than_the_answer_is_not_sent() -> None:
    async def page(request: Request) -> Response:
        reads()
        return JSONResponse([f"{site.version} {i}" for i in range(40)])

    site = LiveSite(page, declared=cached(live=Live(patch=True)))
    async with site.served() as client, following(client, "/items") as stream:
        await stream.event()
        site.change(2)
        event = await stream.event()
        assert event is not None
        assert (event.name, json.loads(event.data)[0]) == ("message", "2 0")


@pytest.mark.parametrize(
    ("body", "media_type", "name"),
    [
        ("line 1\nline 2\n\nünd", "text/plain", "message"),
        ("a,b\r\n1,2\r\n", "text/csv", "base64"),
        (b"\xff\xfe\x00\n\r\n", "image/png", "base64"),
        ('{"a":\r\n "b"}', "application/json", "message"),
        ("data: x\n\nevent: forged\n\n", "text/plain", "message"),
        ("", "text/plain", "message"),
    ],
)
async def test_each_body_arrives_as_it_is(body: str | bytes, media_type: str, name: str) -> None:
    async def page(request: Request) -> Response:
        reads()
        return Response(body, media_type=media_type)

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        event = await stream.event()
        assert event is not None
        assert event.name == name
        if name == "base64":
            assert base64.b64decode(event.data) == (body if isinstance(body, bytes) else body.encode())
        elif media_type == "application/json":
            assert json.loads(event.data) == json.loads(body)
        else:
            assert event.data == body


async def test_another_status_is_an_event_of_its_own() -> None:
    async def page(request: Request) -> Response:
        reads()
        return JSONResponse({"a": 1}) if site.version != 2 else JSONResponse({"gone": True}, status_code=404)

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        assert json.loads(await data(stream)) == {"a": 1}
        site.change(2)
        event = await stream.event()
        assert event is not None
        assert (event.name, json.loads(event.data)) == ("status", {"status": 404, "body": '{"gone":true}'})
        site.change(3)
        assert json.loads(await data(stream)) == {"a": 1}


@pytest.mark.parametrize("place", ["outer", "inner"])
async def test_a_compressing_middleware_holds_no_event_back(place: str) -> None:
    """Around the cache it leaves streams alone; inside of it, it is not asked to compress."""

    async def page(request: Request) -> Response:
        reads()
        return JSONResponse({"version": site.version, "filling": "x" * 1000})

    site = LiveSite(page, **{place: [Middleware(GZipMiddleware, minimum_size=10)]})
    async with site.served() as client, following(client, "/items", accept_encoding="gzip") as stream:
        for version in (1, 2):
            if version == 2:
                site.change(2)
            assert json.loads(await data(stream))["version"] == version


async def test_a_handler_that_streams_its_answer_can_be_followed() -> None:
    async def pieces() -> AsyncIterator[str]:
        for piece in ("a", "b", str(site.version)):
            yield piece

    async def page(request: Request) -> Response:
        reads()
        return StreamingResponse(pieces(), media_type="text/plain")

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        assert await data(stream) == "ab1"
        site.change(2)
        assert await data(stream) == "ab2"


async def test_a_handler_that_streams_events_of_its_own_ends_the_stream_with_the_reason() -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "data: 1\n\n"
        await asyncio.Event().wait()

    async def page(request: Request) -> Response:
        return StreamingResponse(pieces(), media_type="text/event-stream")

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        event = await stream.event()
        assert event is not None
        assert (event.name, json.loads(event.data)) == ("end", {"reason": "stream"})


async def test_an_answer_is_sent_before_its_background_task_has_ended() -> None:
    go_on = asyncio.Event()

    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("x", background=BackgroundTask(go_on.wait))

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        assert await data(stream) == "x"
        go_on.set()
