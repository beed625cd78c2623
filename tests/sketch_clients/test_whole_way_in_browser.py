"""The whole way in a real browser: page, service worker, HTTP cache, Varnish, app, mongod. `make test-browsers`."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pymongo
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from pymongo import AsyncMongoClient

from benchmarks.setups.browsers.browser import Browser, Tab
from quaestor import Quaestor
from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.middleware import BrowserClient, QuaestorMiddleware
from quaestor.testing.servers import HOST, Server, free_port, running, varnish_server
from quaestor.testing.serving import served_by_uvicorn
from tests.end_to_end.varnish_site import TOKEN, needs_varnish
from tests.support import PATIENT, becomes

pytestmark = [needs_varnish, pytest.mark.timeout(900)]

PAGE = """<!doctype html><html><head><link rel="icon" href="data:,"><script>
window.errors = [];
window.onerror = (message) => { window.errors.push(String(message)); };
window.get = async (url, init) => (await fetch(url, init)).json();
window.controlled = async () => {
  while (!navigator.serviceWorker.controller) {
    await new Promise((done) => navigator.serviceWorker.addEventListener("controllerchange", done, { once: true }));
  }
};
window.ready = true;
</script></head></html>"""
"""A page that knows nothing of the client: the middleware puts in the line that registers the worker."""


DELTA_S = 20
"""Much longer than fifty reads take on a busy machine: few of them wait for the next sketch."""


class Site:
    """The application on its own port, Varnish before it, and the database as another program writes to it."""

    def __init__(self, varnish: Server, collection: Any) -> None:
        self.url = varnish.url
        self._varnish = varnish
        self._collection = collection

    def write(self, key: str, value: int) -> None:
        self._collection.update_one({"_id": key}, {"$set": {"value": value}}, upsert=True)

    def requests_to_varnish(self) -> int:
        """Return the requests that Varnish has logged; its counters lag as long as a connection stays open."""
        folder = str(Path(self._varnish.folder) / "work")
        command = ["varnishncsa", "-d", "-n", folder, "-F", "%U"]
        output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
        return len(output.splitlines())


@contextlib.contextmanager
def application(mongo_url: str, database: str, varnish_url: str, port: int) -> Iterator[None]:
    """An ordinary FastAPI app with one middleware line, on uvicorn."""
    # A written page is named, and revalidated with each read, until the earlier copies are dead.
    lifetime = {"ttl_min_ms": 60_000, "ttl_max_ms": 60_000}
    quaestor = Quaestor(**PATIENT, **lifetime, sketch_delta_s=DELTA_S, read_your_writes_ms=20_000)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    items = client[database].items
    adapter = VarnishAdapter(varnish_url, token=TOKEN)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await client.close()
        await adapter.aclose()

    app = FastAPI(lifespan=lifespan)
    served = BrowserClient(handles=["/items/"], inject=True)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor, cdn=[adapter], browser_client=served)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return PAGE

    @app.get("/items/{key}")
    @app.get("/revalidated/{key}")
    async def item(key: str) -> dict[str, Any]:
        return await items.find_one({"_id": key}) or {}

    @app.put("/items/{key}/{value}")
    async def put(key: str, value: int) -> int:
        await items.update_one({"_id": key}, {"$set": {"value": value}}, upsert=True)
        return value

    config = uvicorn.Config(app, host=HOST, port=port, log_level="error", ws="none", loop="asyncio")
    with served_by_uvicorn(config):
        yield


@pytest.fixture
def site(mongo_url: str, prefix: str) -> Iterator[Site]:
    port = free_port()
    vcl = varnish_vcl(HOST, port, purge_token=TOKEN)
    with (
        pymongo.MongoClient[dict[str, Any]](mongo_url) as client,
        running(partial(varnish_server, vcl=vcl), "varnish") as varnish,
        application(mongo_url, prefix, varnish.url, port),
    ):
        yield Site(varnish, client[prefix].items)
        client.drop_database(prefix)


def value(tab: Tab, path: str) -> object:
    return tab.run(f"return (await get({path!r})).value")


def opened(browser: Browser, site: Site) -> Tab:
    tab = browser.tab(site.url + "/")
    tab.run("await controlled()")
    return tab


def reads_cost(tab: Tab, site: Site, path: str, count: int) -> int:
    """Return how many requests of any kind reached Varnish while a page read so many times."""
    before = site.requests_to_varnish()
    tab.run(f"for (let i = 0; i < {count}; i++) await get({path!r})")
    return site.requests_to_varnish() - before


def test_a_page_reads_from_its_browser_and_is_never_stale_beyond_the_bound(browser: Browser, site: Site) -> None:
    """First load fills; a reload costs no request for data; another process's write is seen, also by a page that is opened after
    the tab was closed and the worker ended; own writes at once; who has no sketch asks each time."""
    browser.has_to_keep()
    site.write("1", 1)
    tab = opened(browser, site)
    becomes(lambda: value(tab, "/items/1") == 1 and reads_cost(tab, site, "/items/1", 50) < 10, within_s=240)

    tab.open(site.url + "/")
    becomes(lambda: reads_cost(tab, site, "/items/1", 50) < 10, within_s=240)
    assert value(tab, "/items/1") == 1

    site.write("1", 2)
    becomes(lambda: value(tab, "/items/1") == 2, within_s=240)
    assert value(tab, "/items/1") == 2

    for new in (3, 4):
        assert tab.run(f"await get('/items/1/{new}', {{ method: 'PUT' }}); return (await get('/items/1')).value") == new

    assert reads_cost(tab, site, "/revalidated/1", 20) >= 20

    becomes(lambda: reads_cost(tab, site, "/items/1", 50) < 10, within_s=240)
    browser.end_workers()
    tab.close()
    site.write("1", 5)
    tab = opened(browser, site)
    becomes(lambda: value(tab, "/items/1") == 5, within_s=240)
    assert tab.run("return errors") == []
    tab.close()
