"""The dashboard in a real browser, below a stripped prefix: live data, what-if, apply, undo. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.browsers.browser import Browser
from tests.dashboard.page import Page, becomes
from tests.dashboard.site import TOKEN, VIEWERS, Site, bearer, site

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def shop(browser: Browser, mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site of each browser's own, on which something was read and written before anybody looks."""
    with site(mongo_url, "dashboard_page", tmp_path_factory.mktemp("trace") / "trace") as running:
        for turn in range(4):
            for group in range(5):
                for _ in range(3):
                    running.read(group)
            running.write(turn)
            becomes(lambda turn=turn: "hit" not in running.read(turn).headers["cache-status"])  # type: ignore[misc]
        yield running


@pytest.fixture
def page(browser: Browser, shop: Site) -> Iterator[Page]:
    opened = Page(browser, shop.url)
    yield opened
    opened.close()


def test_a_wrong_token_is_one_sentence_and_shows_nothing(page: Page) -> None:
    page.enter("x" * 30)
    becomes(lambda: page.text("problem") == "That is not the token.")
    assert page.run("return document.getElementById('panels').hidden")


def test_live_data_move_and_say_why(page: Page, shop: Site) -> None:
    """Requests are counted while one looks; the heaviest results tell what they depend on, and the numbers of their lifetime."""
    page.enter(TOKEN)
    becomes(lambda: "1 process, serving" in page.text("state"))
    before = page.text("answer-tiles")
    shop.read(0)
    becomes(lambda: page.text("answer-tiles") != before)
    becomes(lambda: page.run("return document.querySelectorAll('.chart canvas').length") == 7)
    becomes(lambda: f"{shop.url.partition('/internal')[0]}/items/" in page.text("results"))
    page.focus("#results summary")
    page.press("Enter")
    becomes(lambda: "depends on find on dashboard_page.items by (group)" in page.text("results"))
    told = page.text("results")
    assert "lifetime now" in told
    assert "learned factor" in told
    assert "dashboard_page.items" in page.run("return document.getElementById('kind').textContent")
    becomes(lambda: "is asked for" in page.text("kind-facts"))


def test_parameters_are_tried_applied_and_undone_by_keyboard(page: Page, shop: Site) -> None:
    """Nothing is applied untried; the trail says who did what; undoing leads back."""
    page.enter(TOKEN)
    becomes(lambda: page.run("return Boolean(document.getElementById('field-quantile'))"))
    trail = page.run("return document.getElementById('trail').children.length")
    page.focus("#field-quantile")
    for _ in range(10):
        page.press("ArrowLeft")
    assert page.text("changes") == "all collections: quantile 50 % → 40 %"
    assert page.run("return document.getElementById('apply').disabled")
    page.focus("#try")
    page.press("Enter")
    becomes(lambda: "Tried on" in page.text("trial"))
    rows = page.run(
        "return [...document.getElementById('points').tBodies[0].rows].map((row) => row.cells[0].innerText)"
    )
    assert [one.lstrip("★ ").split("\n")[0].split(" Take")[0] for one in rows[:3]] == ["now", "chosen", "quantile 0.1"]
    assert any(one.startswith("★") for one in rows)
    page.focus("#by")
    page.keys("<b>ann</b>")
    page.press("Enter")
    becomes(lambda: "counts now" in page.text("applied"))
    becomes(lambda: page.run("return document.getElementById('trail').children.length") == trail + 1)
    assert "<b>ann</b>: all collections: quantile 50 % → 40 % · counts now" in page.text("trail")
    assert page.text("changes") == "nothing"
    becomes(lambda: shop.quaestor.parts.estimator.inner.parameters.default.quantile == 0.4)  # type: ignore[attr-defined]
    page.focus("#trail button")
    page.press("Enter")
    becomes(lambda: "quantile 40 % → 50 %" in page.text("trail"))
    becomes(lambda: shop.quaestor.parts.estimator.inner.parameters.default.quantile == 0.5)  # type: ignore[attr-defined]


def test_who_was_slower_is_told_and_keeps_what_was_entered(page: Page, shop: Site) -> None:
    page.enter(TOKEN)
    becomes(lambda: page.run("return Boolean(document.getElementById('field-quantile'))"))
    here = f"{shop.url}/quaestor/dashboard"
    page.focus("#field-quantile")
    page.press("Home")
    state = httpx.get(f"{here}/parameters", headers=bearer(TOKEN), timeout=60).json()
    by_bob = {"by": "bob", "base": state["number"], "parameters": {"default": {"quantile": 0.6}}}
    assert httpx.post(f"{here}/apply", headers=bearer(TOKEN), json=by_bob, timeout=60).status_code == 200
    becomes(lambda: "bob has applied other parameters meanwhile" in page.text("applied"))
    assert page.text("changes") == "all collections: quantile 60 % → 1 %"
    assert page.run("return document.getElementById('apply').disabled")


def test_viewers_may_try_and_not_apply(page: Page) -> None:
    page.enter(VIEWERS)
    becomes(lambda: "Read-only" in page.text("readonly"))
    assert page.run("return document.getElementById('applying').hidden")
    assert page.run("return document.querySelectorAll('#trail button').length") == 0
    assert not page.run("return document.getElementById('try').disabled")


def test_what_users_have_typed_is_shown_as_text(page: Page, shop: Site) -> None:
    """URLs are outsiders' words."""
    hostile = f"{shop.url}/items/3?q=%3Cimg%20src=x%20onerror=alert(1)%3E&p='\"><script>"
    for _ in range(3):
        httpx.get(hostile, timeout=60)
    page.enter(TOKEN)
    becomes(lambda: "onerror" in page.text("results"))
    assert page.run("return document.querySelectorAll('#results img, #results script').length") == 0


def test_nothing_is_asked_of_others_and_the_token_does_not_outlive_the_tab(page: Page, shop: Site) -> None:
    page.enter(TOKEN)
    becomes(lambda: page.run("return performance.getEntriesByType('resource').length") >= 9)
    asked = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert {url for url in asked if not url.startswith(f"{shop.url}/quaestor/dashboard/")} == set()
    assert page.run("return Object.keys(localStorage).length") == 0
    page.click("#leave")
    assert page.run("return [sessionStorage.length, document.getElementById('panels').hidden]") == [0, True]


@pytest.mark.parametrize(("width", "dark"), [(1_280, False), (1_280, True), (360, False)])
def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(page: Page, width: int, dark: bool) -> None:
    page.look(width=width, dark=dark)
    assert page.findings() == []
    page.enter(TOKEN)
    becomes(
        lambda: "1 process" in page.text("state") and page.run("return !!document.querySelector('#results summary')")
    )
    page.click("#results summary")
    page.click("#try")
    becomes(lambda: "Tried on" in page.text("trial"))
    assert page.findings() == []
    assert page.run("return document.documentElement.scrollWidth") <= width
