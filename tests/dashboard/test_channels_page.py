"""Channels on the page in a real browser: shown, paused and resumed by keyboard. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.setups.browsers.browser import Browser
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


@pytest.fixture
def page(browser: Browser, shop: Site) -> Iterator[Page]:
    opened = Page(browser, shop.url)
    yield opened
    opened.close()


def test_viewers_see_channels_brokers_feeds_and_runs_and_change_nothing(page: Page) -> None:
    """Markup in a statement, an address and an error is shown as text."""
    page.enter(VIEWERS)
    becomes(lambda: HOSTILE in page.text("channel-letters"))
    assert "Local" in page.text("channels-table")
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
