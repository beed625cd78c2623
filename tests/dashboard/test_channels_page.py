"""Channels on the page in a real browser: shown, paused and resumed by keyboard. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks.setups.browsers.browser import Browser
from tests import support
from tests.dashboard.channels_folder import HOSTILE, filled, settings
from tests.dashboard.page import Page, becomes
from tests.dashboard.site import TOKEN, VIEWERS, Site, site

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory, mongo_url: str) -> Iterator[Site]:
    """A site with a folder of each browser's own."""
    folder = tmp_path_factory.mktemp("channels")
    filled(folder)
    with site(mongo_url, "dashboard_channels", settings=settings(folder)) as running:
        yield running


def test_viewers_see_channels_brokers_feeds_and_runs_and_change_nothing(page: Page) -> None:
    """Markup in a statement, an address and an error is shown as text."""
    page.enter(VIEWERS)
    becomes(lambda: HOSTILE in page.text("channel-letters"))
    assert "Local" in page.text("channels-table")
    assert "continuous, high priority" in page.text("channels-table")
    assert "station" in page.text("brokers")
    assert "TweetFeed" in page.text("feeds")
    assert page.text("runs").count("published") == 2
    assert page.run("return [...document.querySelectorAll('#stages th[scope=row]')].map((one) => one.innerText)") == [
        "load", "subscriptions", "execute", "encode", "publish",
    ]  # fmt: skip
    page.focus("#channels summary")
    page.press("Enter")
    becomes(lambda: HOSTILE in page.text("channel-text"))
    assert page.run("return document.querySelectorAll('#channels img').length") == 0
    acts = "['pause', 'resume', 'replay', 'discard']"
    assert page.run(f"return {acts}.map((act) => document.getElementById(`channel-${{act}}`).disabled)") == [True] * 4
    assert page.findings() == []


def test_a_channel_is_paused_and_resumed_by_keyboard(page: Page) -> None:
    """The state follows each change."""
    page.enter(TOKEN)
    for act, state in (("pause", "paused"), ("resume", "ready")):
        becomes(
            lambda wanted=act: not page.run(f"return document.getElementById('channel-{wanted}').disabled")  # type: ignore[misc]
        )
        page.focus(f"#channel-{act}")
        page.press("Enter")
        becomes(lambda done=act: page.text("channel-done") == f"{done}d channel Local.")  # type: ignore[misc]
        becomes(lambda shown=state: shown in page.text("channels-table"))  # type: ignore[misc]
    assert page.findings() == []


HOLD = """
const ask = window.fetch;
window.looks = 0;
window.changes = [];
window.fetch = async (...request) => {
    const looks = String(request[0]).endsWith("channels");
    const number = looks ? ++window.looks : 0, answer = await ask(...request);
    if (number === 1) await new Promise((go) => { window.letGo = go; });
    return answer;
};
const button = document.getElementById("channel-resume");
let was = button.disabled;
new MutationObserver(() => {
    if (button.disabled !== was) window.changes.push(was = button.disabled);
}).observe(button, { attributes: true });
"""


def test_a_state_from_before_a_change_does_not_replace_the_state_after_it(page: Page) -> None:
    """The answer of a look comes late, after a change: the button of the new state is enabled once, and stays enabled."""
    page.enter(TOKEN)
    becomes(lambda: not page.run("return document.getElementById('channel-pause').disabled"))
    page.run(HOLD)
    becomes(lambda: page.run("return Boolean(window.letGo)"))
    page.click("#channel-pause")
    becomes(lambda: page.text("channel-done") == "paused channel Local.")
    with suppress(AssertionError):  # a page that shows the new state at once is right too, if it keeps it
        support.becomes(lambda: page.run("return window.changes.length"), within_s=2)
    page.run("window.letGo()")
    seen = page.run("return window.looks")
    becomes(lambda: page.run("return window.looks") > seen + 2)
    assert page.run("return window.changes") == [False]
    page.click("#channel-resume")
    becomes(lambda: page.text("channel-done") == "resumed channel Local.")
    becomes(lambda: "ready" in page.text("channels-table"))
