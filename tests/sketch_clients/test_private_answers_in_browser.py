"""Private answers in a real browser, with the middleware's real fields: page, service worker, HTTP cache, app, mongod."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Cookie, FastAPI, Response
from fastapi.responses import HTMLResponse
from pymongo import AsyncMongoClient

from benchmarks.setups.browsers.browser import Browser, Tab
from quaestor import Quaestor
from quaestor.caching import cached, cookie, per_user
from quaestor.middleware import BrowserClient, QuaestorMiddleware
from quaestor.testing.serving import served_by_uvicorn
from tests.support import PATIENT, becomes

pytestmark = pytest.mark.timeout(600)

PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module">
import { Client } from "/quaestor/client.js";
window.client = new Client({ wait: 20_000 });
window.get = async (url, init) => (await client.fetch(url, init)).json();
window.ready = true;
</script>"""
PAGE_WITH_WORKER = """<!doctype html><link rel="icon" href="data:,">
<script type="module" src="/quaestor/register.js?handles=/me"></script><script>
window.get = async (url, init) => (await fetch(url, init)).json();
window.controlled = async () => {
  while (!navigator.serviceWorker.controller) {
    await new Promise((done) => navigator.serviceWorker.addEventListener("controllerchange", done, { once: true }));
  }
};
window.ready = true;
</script>"""
WRITES = 8
Session = Annotated[str, Cookie()]


@pytest.fixture
def site(mongo_url: str, prefix: str) -> Iterator[str]:
    """An application whose answers are for who has the cookie; its URL."""
    quaestor = Quaestor(**PATIENT, ttl_min_ms=600_000, trust_new_sketch=True, read_your_writes_ms=20_000)
    mongo: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    users = mongo[prefix].users

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await mongo.drop_database(prefix)
        await mongo.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor, browser_client=BrowserClient())

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return PAGE

    @app.get("/worker", response_class=HTMLResponse)
    async def page_with_worker() -> str:
        return PAGE_WITH_WORKER

    @app.get("/me")
    @cached(scope=per_user(by=cookie("session")), browser_ttl=300)
    async def me(session: Session = "") -> dict[str, Any]:
        record = await users.find_one({"_id": session}) or {}
        return {"user": session, "value": record.get("value")}

    @app.put("/me/{value}")
    async def put(value: int, session: Session = "") -> int:
        await users.update_one({"_id": session}, {"$set": {"value": value}}, upsert=True)
        return value

    @app.post("/session/{user}")
    async def log_in(user: str, response: Response) -> None:
        response.set_cookie("session", user)

    with served_by_uvicorn(uvicorn.Config(app, port=0, log_level="error", ws="none", loop="asyncio")) as url:
        yield url


def me(tab: Tab) -> object:
    return tab.run("return await get('/me')")


def written(tab: Tab, value: int) -> object:
    """Return the value that the first read after an own write shows."""
    return tab.run(f"await get('/me/{value}', {{ method: 'PUT' }}); return (await get('/me')).value")


def test_a_page_sees_its_own_writes_and_keeps_its_users_answers(browser: Browser, site: str) -> None:
    """Each first read after a write; out of memory later on; and nothing of it after a logout, nor in the next page."""
    tab = browser.tab(site + "/")
    tab.run("await client.fetch('/session/ann', { method: 'POST' }); client.login()")
    assert [written(tab, value) for value in range(WRITES)] == list(range(WRITES))
    becomes(lambda: me(tab) == {"user": "ann", "value": WRITES - 1} and tab.run("return client.counts.memory") > 2)

    tab.run("client.logout(); await client.fetch('/session/bob', { method: 'POST' }); client.login()")
    assert me(tab) == {"user": "bob", "value": None}
    tab.run("await client.fetch('/session/ann', { method: 'POST' })")
    assert me(tab) == {"user": "ann", "value": WRITES - 1}
    becomes(lambda: me(tab) == {"user": "ann", "value": WRITES - 1} and tab.run("return client.counts.memory") > 4)
    tab.run("document.cookie = 'any=1'; await fetch('/session/bob', { method: 'POST' })")
    tab.open(site + "/")
    assert me(tab) == {"user": "bob", "value": None}
    assert tab.run("return client.counts.cache") == 0
    tab.close()


def test_behind_a_service_worker_private_answers_are_asked_for_each_time(browser: Browser, site: str) -> None:
    """Own writes are seen by the first read, and so is another user."""
    tab = browser.tab(site + "/worker")
    tab.run("await controlled()")
    tab.run("document.cookie = 'session=ann'; for (let i = 0; i < 5; i++) await get('/me')")
    assert [written(tab, value) for value in range(WRITES)] == list(range(WRITES))
    tab.run("await fetch('/session/bob', { method: 'POST' })")
    assert me(tab) == {"user": "bob", "value": None}
    tab.close()
