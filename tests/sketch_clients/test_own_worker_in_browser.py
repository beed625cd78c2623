"""A site with a service worker of its own, in a real browser: that worker stays, and may import ours. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.setups.browsers.browser import Browser, Tab
from benchmarks.setups.clients.origin import Origin, serving
from tests.support import becomes

OWN = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("push", () => {});
self.addEventListener("fetch", (event) => {
  if (new URL(event.request.url).pathname === "/of-the-site") event.respondWith(new Response('"the site"'));
});
"""
IMPORTING = 'self.quaestor = "handles=/data/"; importScripts("/quaestor/worker.js");'
WORKERS = "return (await navigator.serviceWorker.getRegistrations()).map(({ active }) => active && active.scriptURL)"


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(Origin(delta_s=3600)) as running:
        running.own = OWN
        yield running


def opened(browser: Browser, origin: Origin, query: str = "") -> Tab:
    tab = browser.tab(f"{origin.url}/own-page{query}")
    tab.run("await controlled()")
    return tab


def own(origin: Origin) -> list[str]:
    return [f"{origin.url}/sw.js"]


def workers(tab: Tab) -> object:
    return tab.run(WORKERS)


def of_the_site(tab: Tab) -> object:
    return tab.run("return await fetch('/of-the-site').then((answer) => answer.ok && answer.json())")


def hits(tab: Tab, origin: Origin, path: str) -> bool:
    """Whether a read was answered without the server."""
    request = origin.asked[f"GET {path}"]
    tab.run(f"return await get({path!r})")
    return origin.asked[f"GET {path}"] == request


def updated(tab: Tab) -> object:
    """Return whether the browser has looked for a newer worker.

    Firefox refuses an update while its own update, which follows requests, changes the registration. An update that
    joins a running one may get the earlier script, so a caller that waits for the new script has to ask again.
    """
    update = "(await navigator.serviceWorker.getRegistration()).update()"
    return tab.run(f"return await {update}.then(() => true, () => false)")


def settled(tab: Tab) -> object:
    """Whether no newer worker waits. Chromium lets it wait while the worker before it is busy, so nothing is read meanwhile."""
    return tab.run(
        "const { installing, waiting } = await navigator.serviceWorker.getRegistration(); return !installing && !waiting"
    )


def test_a_worker_of_the_site_stays_and_the_page_receives_the_remedy(browser: Browser, origin: Origin) -> None:
    """The remedy comes at the first visit, when both workers are registered at once, and at each later one."""
    tab = opened(browser, origin, "?register")
    for _ in range(3):
        becomes(lambda: len(tab.run("return refused")) == 1)
        becomes(lambda: workers(tab) == own(origin))
        (refused,) = tab.run("return refused")
        assert refused["worker"] == own(origin)[0]
        assert refused["scope"] == f"{origin.url}/"
        remedy = f'self.quaestor = "{origin.rules}"; importScripts("/quaestor/worker.js");'
        assert refused["remedy"] == remedy
        assert any(remedy in text for text in tab.run("return warnings"))
        assert of_the_site(tab) == "the site"
        tab.open(f"{origin.url}/own-page?register")
        tab.run("await controlled()")
    tab.close()


def test_a_worker_of_the_site_that_has_the_pages_already_is_not_replaced(browser: Browser, origin: Origin) -> None:
    """The site's worker stays also where the page itself does not register it."""
    first = opened(browser, origin, "?register")
    becomes(lambda: len(first.run("return refused")) == 1)
    becomes(lambda: workers(first) == own(origin))
    first.close()
    tab = opened(browser, origin)
    becomes(lambda: len(tab.run("return refused")) == 1)
    assert workers(tab) == own(origin)
    tab.close()


def test_the_sites_worker_imports_ours(browser: Browser, origin: Origin) -> None:
    """Reads below the rules come from copies, own writes are seen, and everything else is the site's."""
    origin.own = IMPORTING + OWN
    tab = opened(browser, origin, "?register")
    becomes(lambda: hits(tab, origin, "/data/a"))
    assert not hits(tab, origin, "/me/a")
    assert of_the_site(tab) == "the site"
    tab.run("await fetch('/data/a', { method: 'PUT' })")
    assert tab.run("return await get('/data/a')") == {"value": 1, "user": None}
    becomes(lambda: hits(tab, origin, "/data/a"))
    tab.run("navigator.serviceWorker.controller.postMessage({ type: 'of the site' })")
    assert hits(tab, origin, "/data/a")
    assert workers(tab) == own(origin)
    tab.close()


def test_an_imported_worker_that_is_switched_off_leaves_the_sites_registered(browser: Browser, origin: Origin) -> None:
    """The kill switch takes away what is ours, not the site's offline pages and push messages."""
    origin.own = IMPORTING + OWN
    tab = opened(browser, origin, "?register")
    becomes(lambda: hits(tab, origin, "/data/a"))
    origin.fault = "off"
    becomes(lambda: updated(tab) and settled(tab) and sum(hits(tab, origin, "/data/a") for _ in range(3)) == 0)
    assert workers(tab) == own(origin)
    assert of_the_site(tab) == "the site"
    tab.close()
