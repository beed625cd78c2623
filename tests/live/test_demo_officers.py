"""The demo's officers on a map in a real browser: they move, and alerts arrive by an EventSource. `make test-browsers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.setups.browsers.browser import Browser
from quaestor.demo.children import officers_server
from quaestor.demo.officers.check import OfficersCheck
from quaestor.demo.officers.city import FOLLOWERS, OFFICERS, City, Tweet, alerts
from quaestor.demo.steps import Steps
from quaestor.testing.servers import free_port
from tests.support import becomes

PATIENCE_S = 180.0
HOSTILE = "<img src=x onerror=alert(1)>"
TEXTS = "return [...document.querySelectorAll('#alerts li')].map((alert) => alert.textContent.slice(9))"
PLACE = "const made = document.querySelector('[data-oid=\"3\"]'); return [made?.getAttribute('cx'), made?.getAttribute('cy')]"


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_alerts_of_the_chosen_officer_appear_on_the_map(browser: Browser, tmp_path: Path) -> None:
    """Only a hateful tweet near the officer is an alert. Markup in its text is shown as text."""
    server = officers_server(tmp_path, port=free_port(), moves=False)
    server.start(PATIENCE_S)
    tab = browser.blank()
    try:
        tab.open(f"{server.url}/")

        def shown(condition: str) -> None:
            becomes(lambda: bool(tab.run(f"return {condition}")), within_s=PATIENCE_S)

        def post(feed: str, record: dict[str, Any]) -> None:
            def is_taken() -> bool:
                return httpx.post(f"{server.url}/feeds/{feed}", content=json.dumps(record)).status_code == 200

            becomes(is_taken, within_s=PATIENCE_S)

        shown(f"document.querySelectorAll('.officer').length === {OFFICERS}")
        post("PositionFeed", {"oid": 3, "location": [400, 600]})
        becomes(lambda: tab.run(PLACE) == ["400", "600"], within_s=PATIENCE_S)
        tab.run("const choice = document.getElementById('officer'); choice.value = '3'; choice.onchange();")
        shown("document.getElementById('following').textContent.startsWith('followed since run')")
        shown("document.querySelector('.followed')?.dataset.oid === '3'")
        tweets = [
            {"tid": 1, "text": "nice day", "hateful": False, "location": [410, 600]},
            {"tid": 2, "text": "far away", "hateful": True, "location": [400, 999]},
            {"tid": 3, "text": HOSTILE, "hateful": True, "location": [400, 700]},
        ]
        for tweet in tweets:
            post("TweetFeed", tweet)
        becomes(lambda: tab.run(TEXTS) == [f"officer 3: {HOSTILE}"], within_s=PATIENCE_S)
        shown("document.querySelectorAll('.tweet').length === 3")
        shown("document.querySelectorAll('.hateful').length === 2")
        shown("document.querySelector('[data-alert]')?.dataset.alert === '3'")
        shown("document.getElementById('groups').textContent.includes('stand for')")
        shown(
            f"[...document.querySelectorAll('#runs tr')].some((row) => Number(row.children[1].textContent) >= 1"
            f" && Number(row.children[2].textContent) === {FOLLOWERS} * Number(row.children[1].textContent)"
            " && Number(row.children[4].textContent) > 0)"
        )
        assert tab.run("return document.querySelectorAll('img').length") == 0
        post("PositionFeed", {"oid": 3, "location": [450, 650]})
        becomes(lambda: tab.run(PLACE) == ["450", "650"], within_s=PATIENCE_S)
        assert tab.run(TEXTS) == [f"officer 3: {HOSTILE}"]
    finally:
        tab.close()
        server.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_step_of_the_check_holds_on_a_real_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Delivered alerts are those of a direct computation.."""
    server = officers_server(tmp_path, port=free_port(), moves=False)
    server.start(PATIENCE_S)
    try:
        steps = Steps()
        OfficersCheck(server.url, steps).run()
    finally:
        server.stop()
    assert steps.held
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert lines[0]["observed"]["expected"] == lines[0]["observed"]["delivered"] > 10


def test_alerts_are_the_hateful_tweets_within_the_radius() -> None:
    """The bound belongs to the radius."""
    tweets = [Tweet(1, "a", True, (0, 150)), Tweet(2, "b", True, (0, 150.1)), Tweet(3, "c", False, (0, 0))]
    assert alerts(tweets, {5: (0, 0), 6: (0, 300)}) == [(5, 1), (6, 1), (6, 2)]


def test_a_city_of_the_same_seed_is_the_same_city() -> None:
    first, second = City(3), City(3)
    assert [first.move(), first.tweets(5), first.places] == [second.move(), second.tweets(5), second.places]
