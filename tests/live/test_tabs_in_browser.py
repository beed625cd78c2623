"""Tabs of real browsers that share one socket, and survive sleep and a lost network. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.responses import HTMLResponse

from benchmarks.setups.browsers.browser import Browser, Tab
from benchmarks.setups.faults.proxy import Links
from quaestor import SocketLimits
from tests.live.socket_site import Site, live_site
from tests.live.test_live_client import Failing
from tests.support import becomes

SUBSCRIPTIONS = 4

PAGE = """<!doctype html><title>live</title><script type="module">
import { connect } from "/live.js";
const asked = new URLSearchParams(location.search);
globalThis.sockets = 0;
const Real = WebSocket;
globalThis.WebSocket = class extends Real { constructor(...a) { super(...a); globalThis.sockets++; } };
globalThis.events = [];
globalThis.rows = [];
globalThis.db = connect(undefined, {
  ping: 500,
  ...(asked.has("token") && { token: asked.get("token") }),
  ...(asked.has("share") && { share: JSON.parse(asked.get("share")) }),
});
db.items.find().ascending("_id").resultStream((rows) => { globalThis.rows = rows.map((row) => row._id); });
db.items.find().eventStream((item) => events.push(item.gap ?? `${item.matchType} ${item.data._id}`));
globalThis.ready = true;
</script>"""


class Pages:
    """A site, and the tabs that a test opened on its page."""

    def __init__(self, browser: Browser, site: Site) -> None:
        self._browser = browser
        self._tabs: list[Tab] = []
        self._written = 0
        self.site = site
        self.http = site.http

    def open(self, asked: str) -> Tab:
        """Open a tab, and wait until it follows the query."""
        tab = self._browser.tab(f"{self.http}/page?{asked}")
        self._tabs.append(tab)
        becomes(lambda: tab.run("return rows") == list(range(self._written)))
        return tab

    def close(self, tab: Tab) -> None:
        self._tabs.remove(tab)
        tab.close()

    def close_all(self) -> None:
        for tab in list(self._tabs):
            self.close(tab)

    def write(self) -> None:
        self.site.database.items.insert_one({"_id": self._written})
        self._written += 1

    def exact(self, tab: Tab) -> bool:
        """Whether the tab has seen each write once and in order."""
        every = list(range(self._written))
        return tab.run("return [rows, events]") == [every, [f"add {number}" for number in every]]

    def sockets(self) -> int:
        return len(self.site.live._endpoint._sockets)

    def subscriptions(self) -> float:
        return sum(len(socket._subscriptions) for socket in self.site.live._endpoint._sockets)


@contextmanager
def pages_of(browser: Browser, mongo_url: str, prefix: str, **live: Any) -> Iterator[Pages]:
    """A site with the page. Its tabs are closed at the end."""
    with live_site(mongo_url, prefix, limits=SocketLimits(subscriptions=SUBSCRIPTIONS), **live) as site:

        @site.app.get("/page", response_class=HTMLResponse)
        def page() -> str:
            return PAGE

        opened = Pages(browser, site)
        opened.write()
        yield opened
        opened.close_all()


@pytest.fixture
def pages(browser: Browser, mongo_url: str, prefix: str) -> Iterator[Pages]:
    with pages_of(browser, mongo_url, prefix) as opened:
        yield opened


def test_tabs_share_a_socket_if_their_tokens_are_equal(pages: Pages) -> None:
    """Another token, another name, and a page that switches sharing off each have their own socket."""
    first = pages.open("token=a")
    second = pages.open("token=a")
    pages.write()
    for tab in (first, second):
        becomes(lambda tab=tab: pages.exact(tab))
    assert pages.sockets() == 1
    for number, asked in enumerate(("token=b", "token=a&share=false", "token=a&share=%22ann%22", "")):
        pages.open(asked)
        becomes(lambda number=number: pages.sockets() == number + 2)


def test_tabs_without_a_token_share_only_on_request(pages: Pages) -> None:
    """A page cannot compare the credentials in cookies."""
    pages.open("share=true")
    pages.open("share=true")
    assert pages.sockets() == 1
    pages.open("")
    assert pages.sockets() == 2


@pytest.mark.parametrize("leave", ["closed", "frozen", "moved"])
def test_another_tab_takes_over_from_the_leader(pages: Pages, leave: str) -> None:
    """The other tab's streams go on: no event is lost, none comes twice."""
    leader, other = pages.open("token=a"), pages.open("token=a")
    pages.write()
    becomes(lambda: pages.exact(leader) and pages.exact(other))
    go: dict[str, Callable[[], Any]] = {
        "closed": lambda: pages.close(leader),
        "frozen": lambda: leader.freeze(frozen=True),
        "moved": lambda: leader.navigate("about:blank"),
    }
    go[leave]()
    for _ in range(3):
        pages.write()
    becomes(lambda: pages.exact(other))
    becomes(lambda: pages.sockets() == 1 and pages.subscriptions() == 2)
    if leave == "frozen":
        leader.freeze(frozen=False)
        becomes(lambda: pages.exact(leader))
        pages.write()
        becomes(lambda: pages.exact(leader) and pages.exact(other))
        assert pages.sockets() == 1


def test_subscriptions_of_a_closed_tab_end(pages: Pages) -> None:
    """The leader unsubscribes them, and its own go on."""
    leader, other = pages.open("token=a"), pages.open("token=a")
    becomes(lambda: pages.subscriptions() == 4)
    pages.close(other)
    becomes(lambda: pages.subscriptions() == 2)
    pages.write()
    becomes(lambda: pages.exact(leader))


def test_tabs_come_back_to_one_socket_after_the_server_closed_it(pages: Pages) -> None:
    """Writes in between reach every tab once."""
    tabs = [pages.open("token=a"), pages.open("token=a")]
    for _ in range(3):
        pages.site.drop_sockets()
        pages.write()
        becomes(lambda: all(pages.exact(tab) for tab in tabs))
    becomes(lambda: pages.sockets() == 1)


def test_a_leader_that_does_not_run_is_replaced(pages: Pages) -> None:
    """A tab that is busy for long answers nobody: a new tab takes the lock, and the busy one follows it later."""
    leader = pages.open("token=a")
    leader.run("setTimeout(() => { const end = Date.now() + 9_000; while (Date.now() < end); })")
    other = pages.open("token=a")
    pages.write()
    becomes(lambda: pages.exact(other))
    becomes(lambda: pages.exact(leader))
    becomes(lambda: pages.sockets() == 1 and pages.subscriptions() == 4)


def test_a_renewed_token_moves_the_tab_alone(pages: Pages) -> None:
    """Streams go on over the socket of the new token; the other tab keeps its own."""
    first, second = pages.open("token=a"), pages.open("token=a")
    first.run("db.renewToken('b')")
    becomes(lambda: pages.sockets() == 2)
    pages.write()
    becomes(lambda: pages.exact(first) and pages.exact(second))
    second.run("db.renewToken('b')")
    becomes(lambda: pages.sockets() == 1)
    pages.write()
    becomes(lambda: pages.exact(first) and pages.exact(second))


def test_tabs_with_more_subscriptions_than_a_socket_may_carry_use_several(pages: Pages) -> None:
    """The limit of a socket is no limit of a user's tabs."""
    tabs = [pages.open("token=a") for _ in range(3)]
    becomes(lambda: pages.sockets() == 2)
    pages.write()
    becomes(lambda: all(pages.exact(tab) for tab in tabs))


@pytest.mark.parametrize("asked", ["token=a", "token=a&share=false"])
def test_a_page_goes_on_when_its_network_is_back(pages: Pages, asked: str) -> None:
    """Network off and on: each write of the time between comes once."""
    tab = pages.open(asked)
    tab.offline(off=True)
    pages.site.drop_sockets()
    pages.write()
    pages.write()
    becomes(lambda: pages.sockets() == 0)
    tab.offline(off=False)
    becomes(lambda: pages.exact(tab))


def test_a_tab_in_the_background_follows_on(pages: Pages) -> None:
    """Another tab is in front, and the server closes the socket meanwhile. The server grants hidden pages longer silence."""
    tab, front = pages.open("token=a"), pages.open("token=b")
    front.front()
    becomes(lambda: tab.run("return document.hidden") is True)
    becomes(lambda: sorted(socket._within_s for socket in pages.site.live._endpoint._sockets) == [0, 60])
    pages.site.drop_sockets()
    pages.write()
    becomes(lambda: pages.exact(tab) and pages.exact(front))


def test_a_connection_that_hangs_is_replaced_for_all_tabs(pages: Pages, links: Links) -> None:
    """Nothing comes through and nothing is closed: pings without an answer show it, and the tabs open one new socket."""
    link = links.to(int(pages.site.http.rsplit(":", 1)[1]))
    pages.http = f"http://127.0.0.1:{link.port}"
    tabs = [pages.open("token=a"), pages.open("token=a")]
    pages.write()
    becomes(lambda: all(pages.exact(tab) for tab in tabs))
    link.stall()
    pages.write()
    becomes(lambda: sum(tab.run("return sockets") for tab in tabs) >= 2)
    link.pass_()
    becomes(lambda: all(pages.exact(tab) for tab in tabs))
    becomes(lambda: pages.sockets() == 1 and pages.subscriptions() == 4)


def test_tabs_subscribe_again_on_their_shared_socket(browser: Browser, mongo_url: str, prefix: str) -> None:
    """503 ends subscriptions of both tabs. Each is asked for again, by the tab that holds the socket."""
    who = Failing(status=503, times=5)
    with pages_of(browser, mongo_url, prefix, principal=who) as pages:
        first = pages.open("token=a")
        second = pages.open("token=a")
        becomes(lambda: pages.subscriptions() == 4)
        who.fail(times=5)
        pages.site.recheck()
        becomes(lambda: pages.subscriptions() == 4)
        assert who.failures == 10
        pages.write()
        for tab in (first, second):
            becomes(lambda tab=tab: pages.exact(tab))
        assert pages.sockets() == 1
