"""Continuous queries on the page in a real browser: shown, paused, resumed, replayed by keyboard. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.setups.browsers.browser import Browser
from tests.dashboard.page import Page, becomes
from tests.dashboard.queries import HOSTILE, delivered, filled, settings
from tests.dashboard.site import TOKEN, VIEWERS, Site, site

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def folder(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each browser's own."""
    return tmp_path_factory.mktemp("continuous")


@pytest.fixture(scope="module")
def shop(folder: Path, mongo_url: str) -> Iterator[Site]:
    filled(folder)
    with site(mongo_url, "dashboard_continuous", settings=settings(folder)) as running:
        yield running


def test_viewers_look_and_change_nothing(page: Page) -> None:
    """The buttons are disabled; the reason of a dead letter is shown as text."""
    page.enter(VIEWERS)
    becomes(lambda: HOSTILE in page.text("letters"))
    assert page.run("return document.querySelectorAll('#continuous img').length") == 0
    assert page.run(
        "return ['pause', 'resume', 'replay'].map((act) => document.getElementById(`query-${act}`).disabled)"
    ) == [True, True, True]
    assert page.findings() == []


def test_a_query_is_paused_resumed_and_replayed_by_keyboard(page: Page, folder: Path) -> None:
    """State, next run and dead letters follow each change."""
    page.enter(TOKEN)
    becomes(
        lambda: (
            "large" in page.text("queries") and not page.run("return document.getElementById('query-pause').disabled")
        )
    )
    page.focus("#query-texts summary")
    page.press("Enter")
    becomes(lambda: "tau" in page.text("query-incremental"))
    for act, state, sentence in (("pause", "paused", "large is paused."), ("resume", "active", "large is active.")):
        page.focus(f"#query-{act}")
        page.press("Enter")
        becomes(lambda said=sentence: page.text("query-done") == said)  # type: ignore[misc]
        becomes(lambda shown=state: shown in page.text("queries"))  # type: ignore[misc]
    becomes(lambda: not page.run("return document.getElementById('query-replay').disabled"))
    page.focus("#query-replay")
    page.press("Enter")
    becomes(lambda: page.text("query-done") == "large: 1 batches delivered, 0 failed.")
    becomes(lambda: "nothing yet" in page.text("letters"))
    assert "large/1/0" in delivered(folder)
    assert page.findings() == []
