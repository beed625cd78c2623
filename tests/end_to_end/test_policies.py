"""Declared policies in front of apps of any kind: rules by path, routes that move, bodies without notice, scopes that fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pymongo
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.caching import Declaration, cached, header, per_user, private, public
from quaestor.errors import ConfigurationError, DatabaseError
from quaestor.invalidation.effects.manual import ManualInvalidation
from quaestor.middleware import QuaestorMiddleware
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.settings import Settings
from quaestor.testing import servers
from tests.hand_driven import HandEngine, TaggingCdn, reads
from tests.raw_asgi import Message, answered
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Site:
    """A plain ASGI app without routes; `asked` is every scope that it was called with."""

    def __init__(self, app: Any = None, *, cdn: bool = False, **options: Any) -> None:
        routes: Mapping[str, Declaration] | None = options.pop("routes", None)
        self.engine = HandEngine(**options)
        self.asked: list[Any] = []
        self.cdn = TaggingCdn()
        self.app = QuaestorMiddleware(
            app or self.page, quaestor=self.engine, routes=routes, cdn=[self.cdn] if cdn else [], tracking=["v", "t_*"]
        )
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://shop.test")

    async def page(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope)
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        reads()
        said = b"%d %s %s" % (len(self.asked), scope["query_string"], body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": said})

    async def get(self, path: str = "/a", **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def raw(self, body: bytes = b"", **more: Any) -> bytes:
        """One request as a server for HTTP/2 might hand it over."""
        scope = {
            "type": "http", "http_version": "2", "method": "GET", "scheme": "http", "path": "/a", "raw_path": b"/a",
            "query_string": b"", "root_path": "", "headers": [(b"host", b"shop.test")], **more,
        }  # fmt: skip
        return (await answered(self.app, scope, body))[1]


def hit(response: httpx.Response) -> bool:
    return "; hit" in response.headers["cache-status"]


# Any framework


async def test_rules_by_path_serve_frameworks_without_routes() -> None:
    rules = {
        "/a": cached(scope=public()),
        "/me": cached(scope=per_user(by=header("cookie"))),
        "/p": cached(scope=private()),
    }
    site = Site(routes=rules)
    await site.get("/a", cookie="a=1")
    assert hit(await site.get("/a", cookie="a=2"))
    await site.get("/me", cookie="a=1")
    assert hit(await site.get("/me", cookie="a=1"))
    assert not hit(await site.get("/me", cookie="a=2"))
    for _ in range(2):
        response = await site.get("/p")
        assert not hit(response)
        assert response.headers["cache-control"] == "private, no-cache"


async def test_a_bypassed_route_keeps_its_own_header_fields() -> None:
    site = Site(routes={"/a": cached(bypass=True)})
    for _ in range(2):
        response = await site.get()
        assert not hit(response)
        assert "cache-control" not in response.headers


async def test_the_list_of_tracking_parameters_is_an_option() -> None:
    site = Site()
    first = await site.get("/a?x=1&v=7&t_1=2")
    assert first.text == "1 x=1 "
    assert (await site.get("/a?x=1")).text == first.text
    assert (await site.get("/a?x=1&utm_source=1")).text != first.text


async def test_the_handler_of_an_answer_that_is_not_stored_sees_everything() -> None:
    site = Site()
    assert (await site.get("/a?v=1", cookie="a=1")).text == "1 v=1 "
    assert (await site.get("/a?v=1", range="bytes=0-")).text == "2 v=1 "


async def test_under_many_urls_one_entry_is_purged_by_all_of_them() -> None:
    site = Site(cdn=True, client_ttl="estimated")
    await site.get("/a?v=1")
    response = await site.get("/a?v=2")
    assert hit(response)
    assert "max-age=0" in response.headers["cache-control"]
    assert "max-age=60" in response.headers["cdn-cache-control"]
    dependents = await site.engine.index.claim(list(site.engine.registry.leases), now_ms=site.engine.clock())
    assert {url for dependent in dependents for url in dependent.urls} == {
        "http://shop.test/a?v=1",
        "http://shop.test/a?v=2",
    }


# Requests for which the policy was not read


async def test_a_path_that_is_rewritten_on_the_way_is_not_stored_by_the_wrong_policy() -> None:
    @cached(scope=private())
    async def secret(request: Request) -> JSONResponse:
        reads()
        return JSONResponse("secret")

    async def harmless(request: Request) -> JSONResponse:
        reads()
        return JSONResponse("harmless")

    class Rewriting:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/open":
                scope["path"] = "/secret"
            await self.app(scope, receive, send)

    routes = [Route("/open", harmless), Route("/secret", secret)]
    site = Site(Starlette(routes=routes, middleware=[Middleware(Rewriting)]))
    for _ in range(3):
        response = await site.get("/open")
        assert response.json() == "secret"
        assert "stored" not in response.headers["cache-status"]
        assert response.headers["cache-control"] == "no-store"


async def test_a_wrapper_of_the_middleware_finds_the_route_in_the_scope() -> None:
    async def page(request: Request) -> JSONResponse:
        reads()
        return JSONResponse(1)

    site = Site(Starlette(routes=[Route("/{name}", page)]))
    scope: dict[str, Any] = {"query_string": b"v=1", "raw_path": b"/a", "path": "/a"}
    seen: list[Any] = []
    inner = site.app

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)
        seen.append((scope["path_params"], scope["query_string"]))

    site.app = outer  # type: ignore[assignment]
    await site.raw(**scope)
    assert seen == [({"name": "a"}, b"v=1")]


async def test_a_body_that_no_field_announced_is_not_part_of_the_key() -> None:
    """HTTP/2 needs no Content-Length: a GET may bring a body that nobody expects."""
    site = Site()
    assert await site.raw(b"evil") == b"1  evil"
    assert await site.raw() == b"2  "
    assert await site.raw() == b"2  "


async def test_a_scope_that_fails_is_answered_by_the_handler() -> None:
    said: list[Any] = ["ann", "ann", None, "", 5, ValueError("no session")]

    def by(scope: Mapping[str, Any]) -> Any:
        answer = said.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    site = Site(routes={"/a": cached(scope=per_user(by=by))})
    assert [hit(await site.get()) for _ in range(6)] == [False, True, False, False, False, False]
    assert len(site.asked) == 5
    assert (await site.get("/b")).status_code == 200


class Somebody:
    def __init__(self, known: bool) -> None:
        self._known = known

    @property
    def is_authenticated(self) -> bool:
        return self._known


class Unsettled:
    @property
    def is_authenticated(self) -> bool:
        raise RuntimeError("ask the database first")


@pytest.mark.parametrize(
    "connection",
    [
        {"user": Somebody(True)}, {"user": Unsettled()}, {"user": "ann"},
        {"extensions": {"tls": {"client_cert_name": "CN=ann"}}}, {"extensions": {"tls": {"client_cert_chain": ["..."]}}},
    ],
)  # fmt: skip
async def test_an_answer_for_a_user_known_to_other_middleware_is_not_shared(connection: dict[str, Any]) -> None:
    """A middleware around ours may know the user although no header field shows it."""
    site = Site(routes={"/shared": cached(scope=public())})
    for run in (b"1  ", b"2  "):
        assert await site.raw(**connection) == run
    assert await site.raw() == b"3  "
    assert await site.raw(user=Somebody(False), extensions={"tls": {}}) == b"3  "
    if "user" in connection:
        assert await site.raw(**connection) == b"4  "
        site.asked.pop()
    for _ in range(2):
        assert await site.raw(path="/shared", raw_path=b"/shared", **connection) == b"4  "


# Bodies


async def test_a_keyed_body_reaches_the_handler_as_it_came() -> None:
    site = Site(routes={"POST /a": cached(keyed_body=True)})

    async def pieces() -> Any:
        for piece in (b"one ", b"two ", b"three"):
            yield piece

    first = await site.client.post("/a", content=pieces())
    assert first.text == "1  one two three"
    assert (await site.client.post("/a", content=b"one two three")).text == first.text
    assert (await site.client.post("/a", content=b"x" * 70_000)).text == "2  " + "x" * 70_000
    assert (await site.client.post("/a", content=b"x" * 70_000)).text == "3  " + "x" * 70_000


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_the_handlers_business() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([(await receive())["type"] for _ in range(2)])

    site = Site(app, routes={"/a": cached(keyed_body=True)})
    messages: list[Message] = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope = {
        "type": "http", "method": "POST", "scheme": "http", "path": "/a", "raw_path": b"/a", "query_string": b"",
        "headers": [],
    }  # fmt: skip
    await site.app(scope, receive, send)
    assert seen == ["http.request", "http.disconnect"]


@pytest.mark.parametrize("field", ["cookie", "authorization", "if-match", "x-http-method-override", "range"])
async def test_a_keyed_post_is_under_the_same_rules_as_a_get(field: str) -> None:
    site = Site(routes={"/a": cached(keyed_body=True)})
    for run in ("1  q", "2  q"):
        assert (await site.client.post("/a", content=b"q", headers={field: "x"})).text == run


async def test_posts_are_not_answered_with_304() -> None:
    site = Site(routes={"/a": cached(keyed_body=True)})
    first = await site.client.post("/a", content=b"q")
    again = await site.client.post("/a", content=b"q", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 200
    assert hit(again)


async def test_a_post_that_nobody_declared_is_none_of_our_business() -> None:
    site = Site(routes={"GET /a": cached(keyed_body=True)})
    for run in ("1  q", "2  q"):
        response = await site.client.post("/a", content=b"q")
        assert response.text == run
        assert response.headers["cache-status"] == "Quaestor; fwd=method"


async def test_a_redirect_does_not_carry_a_strangers_parameters_to_others() -> None:
    async def moved(request: Request) -> RedirectResponse:
        reads()
        return RedirectResponse(f"/new?{request.url.query}", status_code=301)

    site = Site(Starlette(routes=[Route("/a", moved)]))
    assert (await site.get("/a?v=evil")).headers["location"] == "/new?"
    assert (await site.get("/a")).headers["location"] == "/new?"


@pytest.mark.parametrize("fields", [{}, {"cookie": "a=1"}, {"accept_language": "de"}])
async def test_hits_of_declared_routes_need_no_second_look(
    fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(routes={"/a": cached(scope=public(), headers=["accept-language"])})
    for _ in range(2):
        last = await site.get(**fields)
    monkeypatch.setattr("quaestor.middleware.asgi.Exchange", None)
    assert (await site.get(**fields)).text == last.text
    with pytest.raises(TypeError):
        await site.get(if_none_match='"x"', **fields)


# Invalidation by hand


async def test_nothing_can_be_invalidated_before_the_start() -> None:
    with pytest.raises(ConfigurationError, match="before start"):
        await Quaestor().invalidate(tags=["a"])


async def test_a_database_that_cannot_be_written_to_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quaestor.invalidation.effects.manual._TIMEOUT_S", 0.2)
    with pymongo.MongoClient[Any](f"mongodb://127.0.0.1:{servers.free_port()}", connect=False) as client:
        by_hand = ManualInvalidation(
            client, Settings(), collection_changed=lambda namespaces: None, supervisor=Supervisor(Telemetry())
        )
        with pytest.raises(DatabaseError, match=r"quaestor\.control.*call it again"):
            await by_hand.invalidate(tags=["a"])


async def test_a_collection_is_invalidated_at_once_and_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second invalidation covers answers that were being sent during the first."""
    monkeypatch.setattr("quaestor.invalidation.effects.manual.AGAIN_AFTER_S", 0.0)
    tags_seen: list[frozenset[str]] = []
    with pymongo.MongoClient[Any]("mongodb://127.0.0.1:1", connect=False) as client:
        by_hand = ManualInvalidation(
            client, Settings(), collection_changed=tags_seen.append, supervisor=Supervisor(Telemetry())
        )
        await by_hand.invalidate(collections=["shop.items", client.shop.stock])
        await eventually(lambda: len(tags_seen) == 2)
    assert tags_seen == [frozenset({"shop.items", "shop.stock"})] * 2
