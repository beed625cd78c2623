"""The cache in hostile surroundings (servers, proxies, other middleware, clients): no client gets another's answer or
has to wait.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from quaestor.caching import cached, private, public
from quaestor.middleware import QuaestorMiddleware
from quaestor.read_path.forwarded_fields import CLAIMS, shown
from quaestor.store.memory import MemoryStore
from quaestor.store.two_level import TwoLevelStore
from tests.end_to_end.site import Site, until_waiting
from tests.hand_driven import HandEngine, reads

pytestmark = pytest.mark.anyio


class Answered:
    """One request at ASGI level, and what came back."""

    def __init__(self, app: Any, path: str, **more: Any) -> None:
        self.messages: list[Any] = []
        self._app = app
        headers = [(b"host", b"shop.test"), *more.pop("headers", ())]
        self._scope = {
            "type": "http", "asgi": {"version": "3.0"}, "method": "GET", "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers, **more,
        }  # fmt: skip

    async def get(self) -> Answered:
        requested = False

        async def receive() -> Any:
            nonlocal requested
            if requested:
                await asyncio.Event().wait()
            requested = True
            return {"type": "http.request", "body": b"", "more_body": False}

        await self._app(self._scope, receive, self.send)
        return self

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def status(self) -> str:
        value: bytes = dict(self.messages[0]["headers"])[b"cache-status"]
        return value.decode()


async def echo(request: Request) -> Response:
    reads()
    certificate = ((request.scope.get("extensions") or {}).get("tls") or {}).get("client_cert_name")
    return JSONResponse({"path": request.scope["path"], "certificate": certificate})


async def test_a_client_with_a_certificate_is_not_given_the_stored_answers_of_strangers() -> None:
    site = Site(echo)
    for _ in range(3):
        stranger = await Answered(site.app, "/items").get()
    assert "hit" in stranger.status
    known = await Answered(site.app, "/items", extensions={"tls": {"client_cert_name": "CN=ann"}}).get()
    assert "detail=credentials" in known.status
    assert b"CN=ann" in known.body


async def test_a_path_that_an_outer_middleware_has_rewritten_is_another_page() -> None:
    """Such a middleware may know who asks; the path as it was sent is the same for all of them."""
    site = Site(echo)
    for _ in range(3):
        await Answered(site.app, "/home").get()
    for _ in range(2):
        for tenant in ("/tenant-a/home", "/tenant-b/home"):
            seen = await Answered(site.app, tenant, raw_path=b"/home").get()
            assert tenant.encode() in seen.body
    assert "hit" in seen.status, "each of them is cached all the same"
    assert b'"/home"' in (await Answered(site.app, "/home").get()).body


@pytest.mark.parametrize(
    ("sent", "usual"),
    [
        ((b"/s", b"q=<script>"), (b"/s", b"q=%3Cscript%3E")),
        ((b"/s/<script>", b""), (b"/s/%3Cscript%3E", b"")),
        ((b"/s/%61", b""), (b"/s/a", b"")),
        ((b"/s", b"q=%3cb%3e"), (b"/s", b"q=%3Cb%3E")),
        ((b"/s", b"q=%"), (b"/s", b"q=%25")),
        ((b"/s", b"q=1&&r=2"), (b"/s", b"q=1&r=2")),
        ((b"/s", b"&" * 4000), (b"/s", b"")),
    ],
)
async def test_the_effect_of_one_spelling_of_a_url_is_limited_to_that_spelling(
    sent: tuple[bytes, bytes], usual: tuple[bytes, bytes]
) -> None:
    """A handler that writes the target down as it was sent is harmless for browsers, which escape it."""

    async def reflecting(request: Request) -> Response:
        reads()
        return Response(request.scope["raw_path"] + b"?" + request.scope["query_string"])

    site = Site(reflecting)
    for _ in range(2):
        for path, query in (sent, usual):
            seen = await Answered(site.app, unquote(path.decode()), raw_path=path, query_string=query).get()
            assert seen.body == path + b"?" + query
    assert "hit" in seen.status
    assert len(site.engine.sketch.reads) <= 1, "to browsers they are one resource"


@pytest.mark.parametrize("raw_path", [b"/caf%C3%A9/x", b"/mounted/caf%C3%A9/x"])
async def test_a_mounted_or_escaped_path_is_one_page(raw_path: bytes) -> None:
    site = Site(echo)
    for _ in range(2):
        seen = await Answered(site.app, "/café/x", raw_path=raw_path, root_path="/mounted").get()
    assert "hit" in seen.status
    resident = site.engine.read_path.lookup.servable(
        "http://shop.test" + raw_path.decode(), site.engine.read_path.clock()
    )
    assert resident is not None, "and has the plain key, by which it is purged"


async def test_thousands_of_forwarding_fields_are_not_gathered_before_they_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the way to a hit they are copied together one by one, which takes 20 s for 100,000 of them."""
    looked_at = 0

    def counting(name: bytes, value: bytes) -> bytes:
        nonlocal looked_at
        looked_at += 1
        return shown(name, value)

    monkeypatch.setattr("quaestor.middleware.asgi.shown", counting)
    site = Site(echo)
    seen = await Answered(site.app, "/items", headers=[(b"x-host", b"a")] * 4_000).get()
    assert "detail=unkeyed" in seen.status
    assert looked_at <= len(CLAIMS)


async def test_a_declaration_does_not_count_where_a_middleware_rewrites_a_copy_of_the_scope() -> None:
    """The router then notes what it calls where nobody sees it."""
    engine = HandEngine()
    app = FastAPI()

    @app.get("/front/{name}")
    @cached(scope=public())
    async def front(name: str) -> Any:
        reads()
        return {"page": name}

    @app.get("/me")
    @cached(scope=private())
    async def me(request: Request) -> Any:
        reads()
        return {"who": request.headers.get("authorization")}

    class Rewriting:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            path = "/me" if scope.get("path") == "/front/me" else scope.get("path")
            await self._inner({**scope, "path": path}, receive, send)

    app.add_middleware(Rewriting)
    around = QuaestorMiddleware(app, quaestor=engine)
    for name in (b"ann", b"bob"):
        seen = await Answered(around, "/front/me", headers=[(b"authorization", name)]).get()
        assert name in seen.body
        assert "detail=rerouted" in seen.status


async def test_a_client_that_does_not_read_keeps_nobody_waiting() -> None:
    """The first reader of an entry in the shared store receives it at its own pace; a later reader does not wait for
    it.
    """
    local, shared = MemoryStore(budget_bytes=1 << 20), MemoryStore(budget_bytes=1 << 20)
    site = Site(echo, store=TwoLevelStore(local, shared))
    await Answered(site.app, "/items").get()
    store: Any = site.engine.store
    resident = site.engine.read_path.lookup.servable("http://shop.test/items", site.engine.read_path.clock())
    assert resident is not None
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def get(key: str) -> Any:
        looking.set()
        await go_on.wait()
        return resident.response

    store.get, store.resident = get, lambda key: None
    slow, quick = Answered(site.app, "/items"), Answered(site.app, "/items")
    reading = asyncio.Event()

    async def stuck(message: Any) -> None:
        slow.messages.append(message)
        await reading.wait()

    slow.send = stuck  # type: ignore[method-assign]
    first = asyncio.create_task(slow.get())
    await looking.wait()
    second = asyncio.create_task(quick.get())
    await until_waiting([second])
    go_on.set()
    async with asyncio.timeout(20):
        await second
    assert b"/items" in quick.body
    assert not first.done()
    reading.set()
    await first
