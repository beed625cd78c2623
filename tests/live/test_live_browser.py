"""A live page in a real browser: an EventSource on the page's own GET. `make test-browsers`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from benchmarks.setups.browsers.browser import Browser
from quaestor.caching import cached
from quaestor.policy import Live
from tests.hand_driven import reads
from tests.live.live_site import LiveSite
from tests.support import DEADLINE_S, becomes

PAGE = """<!doctype html><script>
window.seen = []; window.ids = []; window.patches = []; window.ended = []; window.opened = 0
const source = new EventSource("/items")
source.onopen = () => { window.opened += 1 }
source.onmessage = event => { window.seen.push(JSON.parse(event.data)); window.ids.push(event.lastEventId) }
source.addEventListener("patch", event => { window.patches.push(JSON.parse(event.data)) })
source.addEventListener("end", event => { window.ended.push(JSON.parse(event.data)); source.close() })
window.source = source
window.ready = true
</script>"""


class Page:
    """A site with a page that follows `/items`, on an event loop of its own thread."""

    def __init__(self, live: Live) -> None:
        async def page(request: Request) -> Response:
            if request.url.path == "/":
                return HTMLResponse(PAGE)
            reads()
            filling = ["x" * 20] * 10
            return JSONResponse({"version": self.site.version, "filling": filling}, status_code=self.status)

        self.status = 200
        self.site = LiveSite(page, declared=cached(live=live), live_reconnect_ms=500)
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()

    def change(self, version: int) -> None:
        asyncio.run_coroutine_threadsafe(self._change(version), self._loop).result(DEADLINE_S)

    async def _change(self, version: int) -> None:
        self.site.change(version)

    def end_streams(self) -> None:
        """End all streams, as a process that stops does."""
        asyncio.run_coroutine_threadsafe(self.site.live().stop(), self._loop).result(DEADLINE_S)

    async def _serve(self, started: threading.Event) -> None:
        async with self.site.served() as client:
            self.url = str(client.base_url)
            started.set()
            await self._stopping.wait()

    @contextmanager
    def served(self) -> Iterator[Page]:
        started = threading.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(started)))
        thread.start()
        assert started.wait(DEADLINE_S)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join(DEADLINE_S)
            self._loop.close()
        assert not thread.is_alive()


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    with Page(getattr(request, "param", Live())).served() as served:
        yield served


def test_a_page_sees_each_change_and_resumes_without_a_repetition(browser: Browser, page: Page) -> None:
    """The browser sends the id of the last event when it connects again."""
    tab = browser.tab(page.url)
    becomes(lambda: tab.run("return seen.map(one => one.version)") == [1])
    page.change(2)
    becomes(lambda: tab.run("return seen.map(one => one.version)") == [1, 2])
    page.end_streams()
    becomes(lambda: tab.run("return opened") == 2)
    page.change(3)
    becomes(lambda: tab.run("return seen.map(one => one.version)") == [1, 2, 3])
    assert tab.run("return new Set(ids).size") == 3
    tab.close()


@pytest.mark.parametrize("page", [Live(patch=True)], indirect=True, ids=["patch"])
def test_a_page_receives_patches_where_its_route_declares_them(browser: Browser, page: Page) -> None:
    tab = browser.tab(page.url)
    becomes(lambda: tab.run("return seen.length") == 1)
    page.change(2)
    becomes(lambda: tab.run("return patches") == [[{"op": "replace", "path": "/version", "value": 2}]])
    tab.close()


def test_a_refused_page_learns_why_and_does_not_come_again(browser: Browser, page: Page) -> None:
    tab = browser.tab(page.url)
    becomes(lambda: tab.run("return seen.length") == 1)
    page.status = 401
    page.change(2)
    becomes(lambda: tab.run("return ended") == [{"reason": "unauthorized", "status": 401}])
    assert tab.run("return source.readyState") == 2
    tab.close()
