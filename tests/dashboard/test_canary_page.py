"""A canary on the page in a real browser: begun, shown, rolled back by itself or by hand, promoted. `make test-browsers`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.setups.browsers.browser import Browser
from quaestor.ttl.canary_counts import Counts
from tests.dashboard.page import Page, becomes
from tests.dashboard.site import TOKEN, VIEWERS, Site, bearer, site

pytestmark = pytest.mark.timeout(1_800)

MOMENT = {"default": {"estimator": "static", "static_ms": 1, "ttl_min_ms": 1}}
SEEN = Counts(requests=2_000, hits=200, lifetimes=1_800, invalidations=180)


@pytest.fixture(scope="module")
def shop(browser: Browser, mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of each browser's own, whose copies live for a millisecond, and a trace of a quiet day: asked for every second,
    nothing changed."""
    folder = tmp_path_factory.mktemp("trace")
    quiet(folder / "trace-quiet")
    with site(mongo_url, "dashboard_canary", folder / "trace-{pid}") as running:
        applied = {"by": "ann", "base": 0, "parameters": MOMENT}
        here = f"{running.url}/quaestor/dashboard"
        assert httpx.post(f"{here}/apply", headers=bearer(TOKEN), json=applied, timeout=60).status_code == 200
        yield running


@pytest.fixture
def page(browser: Browser, shop: Site) -> Iterator[Page]:
    opened = Page(browser, shop.url)
    opened.enter(TOKEN)
    becomes(lambda: bool(opened.run("return Boolean(document.getElementById('field-static_ms'))")))
    yield opened
    opened.close()


def quiet(path: Path, *, results: int = 30, seconds: int = 600) -> None:
    lines = ['{"format":"quaestor trace","version":1,"started_ms":0,"share":1}']
    lines += [json.dumps(["f", 0, f"r{i}", [f"q{i}"], 5_000, None, 0.0, "db.items"]) for i in range(results)]
    for at_ms in range(1_000, seconds * 1_000, 1_000):
        lines += [json.dumps(["s", at_ms, f"r{i}", 1]) for i in range(results)]
    path.write_text("\n".join([*lines, json.dumps(["e", len(lines), False])]) + "\n")


def lifetime(page: Page, seconds: str) -> None:
    """Enter a lifetime for all results, and try it unless it was tried."""
    entered(page, "#field-static_ms", seconds)
    if page.run("return document.getElementById('begin').disabled"):
        page.focus("#try")
        page.press("Enter")
        becomes(lambda: not page.run("return document.getElementById('begin').disabled"))
    assert "Tried on" in page.text("trial")


def entered(page: Page, selector: str, text: str) -> None:
    page.run(f"const field = document.querySelector({selector!r}); field.focus(); field.select()")
    page.keys(text)


def begun(page: Page, *, hold: str = "60") -> None:
    """Begin a canary of half of the results by keyboard, and wait until it is shown."""
    for selector, text in (("#by", "ann"), ("#share", "50"), ("#after", "100"), ("#hold", hold)):
        entered(page, selector, text)
    page.focus("#begin")
    page.press("Enter")
    becomes(lambda: "50 % of the results have other parameters since" in page.text("canary-status"))
    assert "canary of 50 % of the results: all collections: lifetime 1 ms → " in page.text("trail")


def test_a_canary_is_rolled_back_promoted_and_undone_by_keyboard(page: Page, shop: Site) -> None:
    """A canary cannot be promoted before enough requests were seen, and the page shows how many are missing.

    The trail shows each action with its author, and leads back.
    """
    lifetime(page, "0.002")
    begun(page)
    becomes(lambda: "of 100 requests were seen" in page.text("canary-why"))
    assert page.run("return document.getElementById('promote').disabled")
    page.focus("#rollback")
    page.press("Enter")
    becomes(lambda: "canary rolled back · counts now" in page.text("trail"))
    assert page.text("canary-status") == "No canary is running."
    assert page.run("return document.activeElement.id") == "canary-title"
    estimator = shop.quaestor.parts.estimator.inner  # type: ignore[attr-defined]
    becomes(lambda: estimator.canary is None)  # otherwise it might be the ended one that is counted for below
    lifetime(page, "0.002")
    begun(page)
    becomes(lambda: estimator.canary is not None)
    estimator.canary.own.add(SEEN)
    estimator.canary.rest.add(SEEN)
    becomes(lambda: "nothing is worse than predicted" in page.text("canary-status"))
    assert "of 100 requests were seen for its results" in page.text("canary-counted")
    page.focus("#promote")
    page.press("Enter")
    becomes(lambda: "ann: canary promoted: all collections: lifetime 1 ms → 2 ms · counts now" in page.text("trail"))
    becomes(lambda: estimator.parameters.default.static_ms == 2)
    page.focus("#trail button")
    page.press("Enter")
    becomes(lambda: "lifetime 2 ms → 1 ms · counts now" in page.text("trail"))
    becomes(lambda: estimator.parameters.default.static_ms == 1)


def test_a_canary_that_is_worse_than_predicted_is_shown_to_be_rolled_back(
    page: Page, browser: Browser, shop: Site
) -> None:
    """Ten minutes were predicted to be good, because nothing changed that day; today everything changes.

    A viewer sees the canary too, without buttons to act. Its figures can be heard, and fit on a phone.
    """
    lifetime(page, "600")
    entered(page, "#guard-hits", "1")
    begun(page, hold="0")
    becomes(lambda: "requests that a copy could answer" in page.text("canary-figures"))
    assert "0 % → 99" in page.text("canary-figures")
    assert "guard: requests that a copy could answer" in page.text("canary-figures")
    assert "at least 1 %" in page.text("canary-figures")
    viewer = Page(browser, shop.url)
    viewer.look(width=360, dark=True)
    viewer.enter(VIEWERS)
    becomes(lambda: "since" in viewer.text("canary-status"))
    assert viewer.run("return document.getElementById('canary-acting').hidden")
    assert viewer.findings() == []
    assert viewer.run("return document.documentElement.scrollWidth") <= 360
    page.front()
    assert page.findings() == []

    def ended() -> bool:
        for group in range(10):
            shop.read(group)
            shop.write(group)
        return "The last one ended by itself" in page.text("canary-status")

    becomes(ended)
    for each in (page, viewer):
        each.front()
        becomes(lambda each=each: "The last one ended by itself" in each.text("canary-status"))  # type: ignore[misc]
        assert "rolled back: hits: " in each.text("canary-status")
        assert "rolled back: hits: " in each.text("trail")
        assert "worse than the band of" in each.text("trail")
        assert each.run("return document.getElementById('canary-running').hidden")
        assert each.findings() == []
    becomes(lambda: shop.quaestor.parts.estimator.inner.canary is None)  # type: ignore[attr-defined]
    viewer.close()
