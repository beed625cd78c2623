"""The service worker in a real browser: pages that know nothing of it, the HTTP cache and a server. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.setups.browsers.browser import Browser, Kind, Tab
from benchmarks.setups.clients.origin import Origin, serving
from tests.support import becomes


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(Origin(delta_s=3600)) as running:
        yield running


@pytest.fixture
def tab(browser: Browser, origin: Origin) -> Iterator[Tab]:
    opened = browser.tab(origin.url + "/worker-page")
    opened.run("await controlled()")
    yield opened
    assert opened.run("return errors") == []
    opened.close()


def get(tab: Tab, path: str) -> object:
    return tab.run(f"return await get({path!r})")


def nobodys(value: int) -> dict[str, object]:
    return {"value": value, "user": None}


def hits(tab: Tab, origin: Origin, path: str) -> bool:
    """Whether a read was answered without the server."""
    request = origin.asked[f"GET {path}"]
    get(tab, path)
    return origin.asked[f"GET {path}"] == request


def test_pages_that_know_nothing_of_it_ask_the_server_once(tab: Tab, origin: Origin, browser: Browser) -> None:
    """After a reload, in another tab, by a page with the client, and after the browser has ended the worker."""
    becomes(lambda: hits(tab, origin, "/data/a"))
    request = origin.asked["GET /data/a"]
    tab.open(origin.url + "/worker-page")
    assert get(tab, "/data/a") == nobodys(0)
    other = browser.tab(origin.url + "/")
    assert get(other, "/data/a") == nobodys(0)
    other.close()
    browser.end_workers()
    assert get(tab, "/data/a") == nobodys(0)
    assert origin.asked["GET /data/a"] == request


def test_writes_of_another_process_are_seen(origin: Origin, browser: Browser) -> None:
    """After Δ at most, also when the worker was ended meanwhile."""
    origin.rules = "handles=/data/&delta=4"
    tab = browser.tab(origin.url + "/worker-page")
    tab.run("await controlled()")
    for value in (1, 2):
        get(tab, "/data/a")
        origin.write("a")
        if value == 2:
            browser.end_workers()
        becomes(lambda value=value: get(tab, "/data/a") == nobodys(value))
    tab.close()


def test_own_writes_are_seen_at_once(tab: Tab, origin: Origin, browser: Browser) -> None:
    """In every tab, and when the worker is ended right after the write."""
    other = browser.tab(origin.url + "/worker-page")
    for value in (1, 2, 3):
        for page in (tab, other):
            get(page, "/data/a")
        assert tab.run("await fetch('/data/a', { method: 'PUT' }); return await get('/data/a')") == nobodys(value)
        if value == 3:
            browser.end_workers()
        assert get(other, "/data/a") == nobodys(value)
    other.close()


def test_after_a_logout_the_next_user_sees_nothing_of_the_user_before(tab: Tab, origin: Origin) -> None:
    """No user sees another's data after any change of session, announced or not."""
    for user in ("A", "B", "A"):
        tab.run(f"await fetch('/session/{user}', {{ method: 'POST' }})")
        for _ in range(2):
            assert get(tab, "/me/a") == {"value": 0, "user": user}


def test_the_kill_switch_reaches_it_without_a_reload(tab: Tab, origin: Origin) -> None:
    """After the switch nothing is reused; the next update removes a worker whose URL serves one that does nothing."""
    becomes(lambda: hits(tab, origin, "/data/a"))
    origin.fault = "off"
    tab.run("await fetch('/data/b', { method: 'PUT' })")
    becomes(lambda: sum(hits(tab, origin, "/data/a") for _ in range(3)) == 0)
    tab.run("await (await navigator.serviceWorker.getRegistration()).update()")
    becomes(lambda: tab.run("return (await navigator.serviceWorker.getRegistrations()).length") == 0)


def test_a_newer_worker_waits_until_it_is_asked_to_take_over(tab: Tab, origin: Origin) -> None:
    """Old and new stand side by side, and the old one goes on answering."""
    becomes(lambda: hits(tab, origin, "/data/a"))
    origin.release = 2
    tab.run("window.took = 0; navigator.serviceWorker.addEventListener('controllerchange', () => window.took++)")
    tab.run("await (await navigator.serviceWorker.getRegistration()).update()")
    becomes(lambda: tab.run("return !!(await navigator.serviceWorker.getRegistration()).waiting"))
    assert hits(tab, origin, "/data/a")
    assert tab.run("return window.took") == 0
    tab.run("(await navigator.serviceWorker.getRegistration()).waiting.postMessage('skip waiting')")
    becomes(lambda: tab.run("return window.took") == 1)
    assert get(tab, "/data/a") == nobodys(0)


def test_while_the_network_fails_old_answers_say_that_they_are(browser: Browser) -> None:
    """If the page wants them; nobody's own, and also by a worker that has to be started again."""
    browser.has_to_keep()
    origin = Origin(delta_s=3600)
    origin.rules = "handles=/data/&handles=/me/&offline"
    with serving(origin):
        tab = browser.tab(origin.url + "/worker-page")
        tab.run("await controlled()")
        get(tab, "/me/a")
        becomes(lambda: hits(tab, origin, "/data/a"))
        origin.write("a")
        tab.run("await fetch('/data/b', { method: 'PUT' })")
    value = "return [answer.headers.get('quaestor-offline'), await answer.json()]"
    failed = "return await fetch({path!r}).then(() => 'answered', (error) => error.name)"
    for _ in range(2):
        assert tab.run(f"const answer = await fetch('/data/a'); {value}") == ["1", nobodys(0)]
        for path in ("/me/a", "/data/never-read"):
            assert tab.run(failed.format(path=path)) == "TypeError"
        browser.end_workers()
    tab.close()


def test_a_browser_that_was_closed_goes_on_with_what_it_kept(
    kind_of_browser: Kind, tmp_path: Path, origin: Origin
) -> None:
    """Its worker, its copies and its sketch; and that its user wrote something right before it was closed."""

    def page(browser: Browser) -> Tab:
        opened = browser.tab(origin.url + "/worker-page")
        opened.run("await controlled()")
        return opened

    with kind_of_browser.running(tmp_path) as browser:
        browser.has_to_keep()
        tab = page(browser)
        becomes(lambda: hits(tab, origin, "/data/a"))
    origin.write("a")
    with kind_of_browser.running(tmp_path) as browser:
        tab = page(browser)
        assert hits(tab, origin, "/data/a")
        tab.run("await fetch('/data/b', { method: 'PUT' })")
    with kind_of_browser.running(tmp_path) as browser:
        assert get(page(browser), "/data/a") == nobodys(1)


def test_requests_outside_its_scope_pass(tab: Tab, origin: Origin) -> None:
    """Parts, answers without a lifetime, and paths that its rules leave out."""
    assert tab.run("return (await fetch('/data/a', { headers: { range: 'bytes=0-1' } })).status") in (200, 206)
    for value in range(3):
        assert get(tab, "/plain/a") == nobodys(value)
        origin.write("a")
