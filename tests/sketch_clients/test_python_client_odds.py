"""The Python client in unusual conditions: over real HTTP, with real storages of hishel's."""

from __future__ import annotations

import gzip
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path

import httpx
import pytest
from hishel import AsyncSqliteStorage, SqliteStorage
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor import Level, QuaestorSyncTransport, QuaestorTransport, resolve, resolve_sync
from tests.sketch_clients.http_server import Shop
from tests.sketch_clients.shop_client import anyio_backend, client, shop, source, transport, url

pytestmark = pytest.mark.anyio
__all__ = ["anyio_backend", "client", "shop", "transport", "url"]


def test_an_endpoint_that_answers_html_is_logged_once(url: str, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Everything is revalidated, nothing fails, and the log contains the reason."""
    shop.sketch_page = b"<!doctype html><title>Log in</title>"
    transport = QuaestorSyncTransport(url)
    with caplog.at_level(logging.WARNING, "quaestor.client"), httpx.Client(transport=transport, base_url=url) as client:
        for _ in range(3):
            transport.refresh()
            client.get("/a")
    assert len(caplog.messages) == 1
    assert "36 bytes of 'text/html; charset=utf-8' are no sketch" in caplog.text
    assert transport.counts.memory == 0


def test_an_absent_server_fails_requests_and_no_load_of_a_sketch(caplog: pytest.LogCaptureFixture) -> None:
    """Requests raise the network's error; loads of sketches raise nothing."""
    transport = QuaestorSyncTransport("http://127.0.0.1:1")
    transport.refresh()
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.ConnectError):
        client.get("http://127.0.0.1:1/a")
    assert "ConnectError" in caplog.text


def test_cookies_that_a_304_sets_are_set_once(client: httpx.Client, shop: Shop) -> None:
    """An answer with `Set-Cookie` or `no-store` is passed on, and its copy is dropped."""
    client.get("/a")
    shop.fields = {"set-cookie": "seen=1"}
    validated = client.get("/a", extensions={"quaestor": {"delta_s": 0}})
    assert (source(validated), validated.headers["set-cookie"]) == ("validated", "seen=1")
    shop.fields = {}
    again = client.get("/a")
    assert (source(again), "set-cookie" in again.headers) == ("server", False)


@pytest.mark.parametrize("fields", [{"cache-control": "no-store"}, {"etag": ""}, {"vary": "*"}], ids=str)
def test_answers_that_may_not_be_kept_are_not_kept(client: httpx.Client, shop: Shop, fields: dict[str, str]) -> None:
    shop.fields = fields
    assert [source(client.get("/a")) for _ in range(2)] == ["server", "server"]


def test_an_answer_that_a_page_is_gone_counts(client: httpx.Client, shop: Shop) -> None:
    """Its copy is not used after that, though its lifetime is not over."""
    client.get("/a")
    shop.status, shop.fields = 404, {"quaestor-ttl": ""}
    assert client.get("/a", extensions={"quaestor": {"strong": True}}).status_code == 404
    assert client.get("/a").status_code == 404


def test_an_error_of_the_server_is_no_news(client: httpx.Client, shop: Shop) -> None:
    """A copy that the sketch vouches for is used again after it."""
    client.get("/a")
    shop.status, shop.fields = 503, {"quaestor-ttl": ""}
    assert client.get("/a", extensions={"quaestor": {"strong": True}}).status_code == 503
    assert source(client.get("/a")) == "memory"


def test_head_and_bodies_pass(client: httpx.Client, shop: Shop) -> None:
    client.get("/a")
    assert source(client.head("/a")) is None
    assert source(client.request("GET", "/a", content=b"{}")) is None
    assert client.put("/a", content=iter([b"1", b"2"])).status_code == 204


def test_a_write_that_failed_may_have_been_done(client: httpx.Client, shop: Shop) -> None:
    """Everything is revalidated, as after one that did not."""
    client.get("/a")
    shop.broken = True
    assert client.put("/a").status_code == 500
    shop.broken = False
    assert client.get("/a").text == "1 "


def test_redirects_are_followed_to_copies(client: httpx.Client) -> None:
    client.get("/a")
    answer = client.get("/moved?to=/a", follow_redirects=True)
    assert (source(answer), answer.text) == ("memory", "0 ")


def test_encoded_bodies_stay_encoded(client: httpx.Client, shop: Shop) -> None:
    """Bodies are decoded for each reader, from memory as from the network."""
    first, second = client.get("/zipped"), client.get("/zipped")
    assert (source(first), source(second)) == ("server", "memory")
    assert first.text == second.text == "many words " * 100
    with client.stream("GET", "/zipped") as third:
        assert gzip.decompress(b"".join(third.iter_raw())) == first.content


def test_after_an_answer_without_a_lifetime_causal_reads_ask(client: httpx.Client) -> None:
    """An answer without a lifetime may be of any age, so the next causal read asks the server."""
    causal = {"quaestor": Level(causal=True)}
    client.get("/a")
    assert source(client.get("/a")) == "memory"
    client.get("/plain")
    assert source(client.get("/a", extensions=causal)) in ("validated", "server")
    assert source(client.get("/a")) == "memory"


def test_a_partition_without_a_sketch_is_covered_by_the_whole(
    client: httpx.Client, transport: QuaestorSyncTransport, shop: Shop
) -> None:
    shop.missing = {"items"}
    client.get("/a?in=items")
    transport.refresh()
    assert source(client.get("/a?in=items")) == "memory"
    shop.write("/a?in=items")
    transport.refresh()
    assert client.get("/a?in=items").text == "1 "


def test_a_sketch_behind_a_proxy_that_weakens_validators(
    client: httpx.Client, transport: QuaestorSyncTransport, shop: Shop
) -> None:
    """As those do that compress: a 304 with the weak twin of the validator confirms the sketch."""
    client.get("/a")
    shop.weak = True
    for _ in range(3):
        transport.refresh()
    assert transport.counts.refused == 0
    assert source(client.get("/a")) == "memory"


async def test_a_client_made_in_a_lifespan(url: str, shop: Shop) -> None:
    """A service of its own: the client lives as long as the application, and what a request keeps in its context stays there."""
    kept = ContextVar("kept", default="nothing")
    seen: list[str] = []

    class Watching(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if "sketch" in request.url.path:
                seen.append(kept.get())
            return await super().handle_async_request(request)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        transport = QuaestorTransport(url, transport=Watching())
        async with httpx.AsyncClient(transport=transport, base_url=url) as app.state.shop:
            yield

    async def item(request: Request) -> Response:
        kept.set("a request's")
        answer = await request.app.state.shop.get("/a")
        return JSONResponse(source(answer))

    service = Starlette(routes=[Route("/item", item)], lifespan=lifespan)
    user = httpx.AsyncClient(transport=httpx.ASGITransport(service), base_url="http://service")
    async with service.router.lifespan_context(service), user:
        results = ""
        while results != "memory":
            results = (await user.get("/item")).json()
    assert set(seen) == {"nothing"}


async def test_an_error_of_one_member_is_raised(url: str) -> None:
    """By both twins, as a single request raises it."""
    members = ["/a", "http://127.0.0.1:1/b", "/c"]
    async with httpx.AsyncClient(transport=QuaestorTransport(url), base_url=url) as client:
        with pytest.raises(httpx.ConnectError):
            await resolve(client, members, str)
    with httpx.Client(transport=QuaestorSyncTransport(url), base_url=url) as sync, pytest.raises(httpx.ConnectError):
        resolve_sync(sync, members, str)


async def test_a_storage_outlives_the_program(url: str, shop: Shop, tmp_path: Path) -> None:
    """A new client answers from it what the sketch vouches for, asks for what it names, and stores nobody's own pages."""
    ann = {"authorization": "ann"}

    async def read(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        storage = AsyncSqliteStorage(database_path=tmp_path / "answers.db")
        transport = QuaestorTransport(url, storage=storage)
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            await transport.refresh()
            return await client.get(path, headers=headers)

    first = await read("/a")
    await read("/b")
    await read("/me?private", ann)
    asked_before = len(shop.asked)
    again = await read("/a")
    assert (again.text, again.headers["cache-control"], len(shop.asked)) == (first.text, "max-age=0", asked_before)
    shop.write("/a")
    assert (await read("/a")).text == "1 "
    assert (await read("/b")).text == "0 "
    assert [name for name, *_ in shop.asked[asked_before:]] == ["/a"]
    assert (await read("/me?private", {"authorization": "bob"})).text == "0 bob"


def test_a_storage_in_threads(url: str, shop: Shop, tmp_path: Path) -> None:
    """The synchronous twin: memory first, then the storage, then the server; answers without a lifetime are stored by nobody."""

    def reading(paths: list[str]) -> list[object]:
        transport = QuaestorSyncTransport(url, storage=SqliteStorage(database_path=tmp_path / "answers.db"))
        transport.refresh()
        with httpx.Client(transport=transport, base_url=url) as client:
            return [source(client.get(path)) for path in paths]

    assert reading(["/a", "/a", "/plain"]) == ["server", "memory", "passed"]
    asked_before = len(shop.asked)
    assert reading(["/a", "/a", "/plain"]) == ["server", "memory", "passed"]
    assert [name for name, *_ in shop.asked[asked_before:]] == ["/plain"]


def test_a_storage_that_fails_fails_no_request(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "answers.db").write_bytes(b"no database at all, but a file that somebody left here" * 100)
    storage = SqliteStorage(database_path=tmp_path / "answers.db")
    transport = QuaestorSyncTransport(url, storage=storage)
    transport.refresh()
    with httpx.Client(transport=transport, base_url=url) as client:
        assert [source(client.get("/a")) for _ in range(2)] == ["server", "memory"]
