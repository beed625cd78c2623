"""The browser client in a real browser: page, HTTP cache and server. `make test-browsers`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from benchmarks.setups.browsers.browser import PLAIN_HOST, Browser, BrowserError, Tab
from benchmarks.setups.clients.origin import Origin, serving
from tests.support import becomes

SKETCH = "GET /quaestor/sketch"


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(Origin(options="{ wait: 20_000 }")) as running:
        yield running


@pytest.fixture
def tab(browser: Browser, origin: Origin) -> Iterator[Tab]:
    opened = browser.tab(origin.url + "/")
    yield opened
    assert opened.run("return errors") == []
    opened.close()


def get(tab: Tab, path: str, init: str = "{}") -> object:
    return tab.run(f"return await get({path!r}, {init})")


def asked_of(tab: Tab, condition: str) -> bool:
    """Whether a condition holds in a tab that may be between two pages."""
    with contextlib.suppress(BrowserError):
        return bool(tab.run(f"return {condition}"))
    return False


def nobodys(value: int) -> dict[str, object]:
    return {"value": value, "user": None}


def test_a_reload_asks_the_server_for_no_data(tab: Tab, origin: Origin, browser: Browser) -> None:
    """The first load fills the browser's cache; of the second one only the sketch is asked for."""
    browser.has_to_keep()
    assert get(tab, "/data/a") == nobodys(0)
    tab.open(origin.url + "/")
    assert get(tab, "/data/a") == nobodys(0)
    assert get(tab, "/data/a") == nobodys(0)
    assert origin.asked["GET /data/a"] == 1
    assert tab.run("return client.counts.memory + client.counts.cache") == 2


def test_without_tls_pages_read_from_the_browsers_cache_too(browser: Browser, origin: Origin) -> None:
    """Where there are no workers, and no storage for them; the line that registers one does no harm."""
    browser.has_to_keep()
    plain = origin.url.replace("127.0.0.1", PLAIN_HOST)
    tab = browser.tab(plain + "/")
    for _ in range(2):
        assert get(tab, "/data/a") == nobodys(0)
        tab.open(plain + "/")
    assert tab.run("return [isSecureContext, errors, warnings]") == [False, [], []]
    assert origin.asked["GET /data/a"] == 1
    tab.open(plain + "/worker-page")
    assert tab.run("return (await fetch('/data/a')).json()") == nobodys(0)
    assert tab.run("return errors") == []
    tab.close()


def test_a_client_without_the_sketch_never_reuses(tab: Tab, origin: Origin) -> None:
    """Every answer carries `max-age=0`, so the page's own `fetch` asks every time."""
    get(tab, "/data/a")
    origin.write("a")
    assert tab.run("return (await fetch('/data/a')).json()") == nobodys(1)
    assert tab.run("return (await fetch('/data/a')).json()") == nobodys(1)
    assert origin.asked["GET /data/a"] == 3


def test_writes_of_another_process_are_seen(tab: Tab, origin: Origin) -> None:
    """By a page that is loaded after it, and by one that stays: as soon as its sketch knows of it."""
    assert get(tab, "/data/a") == nobodys(0)
    origin.write("a")
    tab.open(origin.url + "/")
    # The sketch that the page begins with may be one from before the write: the browser keeps one for a second.
    becomes(lambda: get(tab, "/data/a", "{ level: { delta: 4 } }") == nobodys(1))
    origin.write("a")
    becomes(lambda: get(tab, "/data/a", "{ level: { delta: 4 } }") == nobodys(2))


def test_own_writes_are_seen_at_once_in_every_tab(tab: Tab, origin: Origin, browser: Browser) -> None:
    other = browser.tab(origin.url + "/")
    for page in (tab, other):
        assert get(page, "/data/a") == nobodys(0)
    for value in (1, 2, 3):
        assert tab.run("await client.fetch('/data/a', { method: 'PUT' }); return await get('/data/a')") == nobodys(
            value
        )
    becomes(lambda: get(other, "/data/a") == nobodys(3))
    other.close()


def test_own_writes_are_seen_by_a_page_that_is_loaded_after_them(tab: Tab, origin: Origin, browser: Browser) -> None:
    """In this tab, gone back to, and in a new one; what was written along with them too. A cache has the sketch from before."""
    origin.sketch_kept_s = 20
    tab.open(origin.url + "/?one")
    tab.open(origin.url + "/?two")
    assert get(tab, "/data/a") == nobodys(0)
    origin.write("a")
    tab.run("await client.fetch('/data/b', { method: 'PUT' })")
    tab.open(origin.url + "/?three")
    assert get(tab, "/data/a") == nobodys(1)
    origin.write("a")
    tab.run("await client.fetch('/data/b', { method: 'PUT' })")
    tab.run("window.ready = false; setTimeout(() => history.go(-2))")
    becomes(lambda: asked_of(tab, "location.search === '?one' && window.ready === true"))
    assert get(tab, "/data/a") == nobodys(2)
    origin.write("a")
    tab.run("await client.fetch('/data/b', { method: 'PUT' })")
    other = browser.tab(origin.url + "/")
    assert get(other, "/data/a") == nobodys(3)
    other.close()


def test_after_a_logout_the_next_user_sees_nothing_of_the_user_before(
    tab: Tab, origin: Origin, browser: Browser
) -> None:
    """A logs out, B logs in, on one browser: in the tab where that happens, in one that was open, and in a new page."""
    log_in = "await client.fetch('/session/{user}', {{ method: 'POST' }}); client.login()"
    tab.run(log_in.format(user="A"))
    other = browser.tab(origin.url + "/")
    for page in (tab, other, tab, other):
        assert get(page, "/me/a") == {"value": 0, "user": "A"}
    tab.run("client.logout();" + log_in.format(user="B"))
    assert get(tab, "/me/a") == {"value": 0, "user": "B"}
    becomes(lambda: get(other, "/me/a") == {"value": 0, "user": "B"})
    tab.open(origin.url + "/")
    assert get(tab, "/me/a") == {"value": 0, "user": "B"}
    other.close()


def test_the_kill_switch_reaches_a_tab_without_a_reload(tab: Tab, origin: Origin) -> None:
    get(tab, "/data/a")
    origin.fault = "off"
    becomes(
        lambda: (tab.run("await client.refresh()"), get(tab, "/data/a"), tab.run("return client.counts.passed"))[2] > 0
    )
    request, sketches = origin.asked["GET /data/a"], origin.asked[SKETCH]
    for _ in range(3):
        get(tab, "/data/a")
    assert origin.asked["GET /data/a"] == request + 3
    assert origin.asked[SKETCH] == sketches


@pytest.mark.parametrize("fault", ["html", "unavailable", "fieldless"])
def test_without_a_sketch_to_rely_on_everything_is_revalidated(browser: Browser, origin: Origin, fault: str) -> None:
    """Nothing stale, nothing thrown into the page, and the reason said once."""
    origin.fault = fault
    tab = browser.tab(origin.url + "/")
    for value in range(3):
        assert get(tab, "/data/a") == nobodys(value)
        origin.write("a")
    assert tab.run("return [errors, warnings.length]") == [[], 1]
    tab.close()


def test_an_old_sketch_is_not_believed(browser: Browser, origin: Origin) -> None:
    """A cache that always answers with a sketch made long ago does not make the client reuse copies."""
    origin.keep_sketch(made_ms_ago=120_000)
    origin.fault = "replayed"
    tab = browser.tab(origin.url + "/")
    for value in range(3):
        assert get(tab, "/data/a") == nobodys(value)
        origin.write("a")
    assert tab.run("return [errors, client.counts.memory + client.counts.cache]") == [[], 0]
    tab.close()


def test_answers_without_a_lifetime_are_left_to_the_browser(tab: Tab, origin: Origin) -> None:
    for value in range(3):
        assert get(tab, "/plain/a") == nobodys(value)
        origin.write("a")
