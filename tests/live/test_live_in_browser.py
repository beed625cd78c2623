"""Live queries in real browsers: a page that imports the client from the endpoint. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi.responses import HTMLResponse

from benchmarks.setups.browsers.browser import Browser, BrowserError, Tab
from tests.live.socket_site import Site, live_site
from tests.support import becomes

PAGE = """<!doctype html><title>live</title><script type="module">
import { connect } from "/live.js";
globalThis.rows = [];
globalThis.errors = [];
globalThis.sockets = 0;
const Real = WebSocket;
globalThis.WebSocket = class extends Real { constructor(...a) { super(...a); globalThis.sockets++; globalThis.newest = this; } };
globalThis.db = connect(undefined, { ping: 500 });
db.items.find({ n: { $gte: 0 } }).descending("n").limit(3).resultStream(
  (rows) => { globalThis.rows = rows.map((row) => row._id); }, (error) => errors.push(error.message));
globalThis.restored = false;
addEventListener("pageshow", ({ persisted }) => { globalThis.restored = persisted; });
globalThis.ready = true;
</script>"""


HTTP_PAGE = """<!doctype html><title>live over http</title><script type="module">
import { connect } from "/live.http.js";
globalThis.rows = [];
globalThis.errors = [];
const db = connect();
db.items.find({ n: { $gte: 0 } }).descending("n").limit(3).resultStream(
  (rows) => { globalThis.rows = rows.map((row) => row._id); }, (error) => errors.push(error.message));
globalThis.restored = false;
addEventListener("pageshow", ({ persisted }) => { globalThis.restored = persisted; });
globalThis.ready = true;
</script>"""


@pytest.fixture
def site(mongo_url: str, prefix: str) -> Iterator[Site]:
    with live_site(mongo_url, prefix) as running:

        @running.app.get("/page", response_class=HTMLResponse)
        def page() -> str:
            return PAGE

        @running.app.get("/http-page", response_class=HTMLResponse)
        def http_page() -> str:
            return HTTP_PAGE

        @running.app.get("/elsewhere", response_class=HTMLResponse)
        def elsewhere() -> str:
            return "<title>elsewhere</title><script>globalThis.ready = true</script>"

        yield running


def shown(tab: Tab) -> Any:
    return tab.run("return rows")


def test_a_page_shows_what_the_database_has(browser: Browser, site: Site) -> None:
    """The result first, then each change of the window; a lost socket is opened again and nothing is missed."""
    items = site.database.items
    items.insert_many([{"_id": number, "n": number} for number in range(5)])
    tab = browser.tab(f"{site.http}/page")
    becomes(lambda: shown(tab) == [4, 3, 2])
    items.update_one({"_id": 0}, {"$set": {"n": 10}})
    becomes(lambda: shown(tab) == [0, 4, 3])
    site.drop_sockets()
    items.delete_one({"_id": 4})
    becomes(lambda: shown(tab) == [0, 3, 2])
    assert tab.run("return sockets") == 2
    assert tab.run("return errors") == []


def test_a_page_of_another_site_opens_no_socket(browser: Browser, site: Site, mongo_url: str, prefix: str) -> None:
    """The browser sends its origin, and the endpoint refuses it: a hostile page cannot read with the user's cookies."""
    with live_site(mongo_url, f"{prefix}2") as other:
        tab = browser.tab(f"{site.http}/page")
        outcome = tab.run(
            f"return await new Promise((resolve) => {{ const socket = new WebSocket({other.url!r});"
            " socket.onopen = () => resolve('open'); socket.onerror = () => resolve('refused'); })"
        )
        assert outcome == "refused"


def test_many_streams_of_a_page_share_one_socket(browser: Browser, site: Site) -> None:
    """An aborted stream and an ended one leave the others alone."""
    site.database.items.insert_one({"_id": 1, "n": 1})
    tab = browser.tab(f"{site.http}/page")
    becomes(lambda: shown(tab) == [1])
    counted = tab.run(
        """const seen = [];
        const first = db.items.find().eventStream((event) => seen.push(event.data._id));
        const list = await db.items.find({ n: 1 }).resultList();
        first.unsubscribe();
        for await (const rows of db.items.find().resultStream()) { seen.push(rows.length); break; }
        return [list.length, seen.at(-1), sockets]"""
    )
    assert counted == [1, 1, 1]
    site.database.items.insert_one({"_id": 2, "n": 2})
    becomes(lambda: shown(tab) == [2, 1])


def test_a_page_follows_over_http(browser: Browser, site: Site) -> None:
    """The module of the endpoint follows by long polls: the result first, then each change of the window."""
    items = site.database.items
    items.insert_many([{"_id": number, "n": number} for number in range(5)])
    tab = browser.tab(f"{site.http}/http-page")
    becomes(lambda: shown(tab) == [4, 3, 2])
    items.update_one({"_id": 0}, {"$set": {"n": 10}})
    becomes(lambda: shown(tab) == [0, 4, 3])
    items.delete_one({"_id": 4})
    becomes(lambda: shown(tab) == [0, 3, 2])
    assert tab.run("return errors") == []


@pytest.mark.parametrize("page", ["page", "http-page"])
def test_a_page_that_the_user_comes_back_to_shows_the_present_result(browser: Browser, site: Site, page: str) -> None:
    """The browser keeps the page for the way back, without a connection: it continues behind its newest change."""
    items = site.database.items
    items.insert_many([{"_id": number, "n": number} for number in range(3)])
    tab = browser.tab(f"{site.http}/{page}")
    becomes(lambda: shown(tab) == [2, 1, 0])
    tab.open(f"{site.http}/elsewhere")
    items.insert_one({"_id": 7, "n": 7})
    items.delete_one({"_id": 1})
    with suppress(BrowserError):  # the page may be gone before it has answered
        tab.run("history.back()")

    def is_present() -> bool:
        with suppress(BrowserError):
            return bool(tab.run("return globalThis.rows") == [7, 2, 0])
        return False

    becomes(is_present)
    if "Chrome" in browser.version:
        assert tab.run("return restored"), "the browser has loaded the page anew"
    items.insert_one({"_id": 8, "n": 8})
    becomes(lambda: shown(tab) == [8, 7, 2])
    assert tab.run("return errors") == []
