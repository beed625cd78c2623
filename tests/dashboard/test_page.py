"""The dashboard in a real browser, below a stripped prefix: live data, what-if, apply, undo. `make test-browsers`."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from benchmarks.setups.browsers.browser import Browser
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


def test_a_wrong_token_is_one_sentence_and_shows_nothing(page: Page) -> None:
    page.enter("x" * 30)
    becomes(lambda: page.text("problem") == "That is not the token.")
    assert page.run("return document.getElementById('panels').hidden")


def test_live_data_move_and_say_why(page: Page, shop: Site) -> None:
    """Requests are counted while one looks; the heaviest results tell what they depend on, and the numbers of their lifetime."""
    page.enter(TOKEN)
    becomes(lambda: "1 process, serving" in page.text("state"))
    before = page.text("figures")
    shop.read(0)
    becomes(lambda: page.text("figures") != before)
    becomes(lambda: page.run("return document.querySelectorAll('.chart canvas').length") == 9)
    becomes(lambda: f"{shop.url.partition('/internal')[0]}/items/" in page.text("results"))
    page.focus("#results summary")
    page.press("Enter")
    becomes(lambda: "depends on find on dashboard_page.items by (group)" in page.text("results"))
    results = page.text("results")
    assert "lifetime now" in results
    assert "learned factor" in results
    assert "dashboard_page.items" in page.run("return document.getElementById('kind').textContent")
    becomes(lambda: "is asked for" in page.text("kind-facts"))


def test_the_state_comes_first_and_figures_of_the_last_minutes_stand_beside_those_since_the_start(page: Page) -> None:
    """Without a CDN nothing of CDNs is shown."""
    page.enter(TOKEN)
    becomes(lambda: page.run("return document.getElementById('verdict').className") in ("good", "warn"))
    findings = page.run("return [...document.querySelectorAll('#findings li')].map((item) => item.innerText)")
    assert (page.text("verdict") == "All is well: nothing is beyond its threshold.") == (findings == [])
    assert page.run("return document.querySelector('#panels > section').id") == "health"
    heads = page.run("return [...document.querySelectorAll('#figures thead th')].map((head) => head.innerText)")
    assert heads == ["figure", "last minute", "5 minutes", "60 minutes", "since the start", "threshold"]
    hits = page.run("return [...document.querySelector('#figures tbody tr').cells].map((cell) => cell.innerText)")
    assert hits[0] == "hit rate"
    assert all(value.endswith("%") for value in hits[3:5])
    assert "CDN" not in page.run("return document.getElementById('invalidation').innerText")
    assert "purge" not in page.run("return document.getElementById('tuning').innerText").lower()


def test_hit_rates_by_route_and_collection_are_searched_sorted_and_explained(page: Page) -> None:
    page.enter(TOKEN)
    becomes(lambda: "dashboard_page.items" in page.text("routes-table"))
    assert "items" in page.text("routes-table")
    page.run(
        "const by = document.getElementById('routes-by'); by.value = 'collection'; by.dispatchEvent(new Event('change'))"
    )
    assert page.run("return document.querySelector('#routes-table tbody th').innerText") == "dashboard_page.items"
    page.focus("#sort-rate")
    page.press("Enter")
    assert page.run("return document.querySelector('#routes-table th[aria-sort=descending]').innerText") == "hit rate ▼"
    assert page.run("return document.activeElement.id") == "sort-rate"
    page.press("Enter")
    assert page.run("return document.querySelector('#routes-table th[aria-sort=ascending]').innerText") == "hit rate ▲"
    page.focus("#routes-search")
    page.keys("nothing is called so")
    becomes(lambda: "no route is called so" in page.text("routes-table"))
    page.run(
        "const field = document.getElementById('routes-search'); field.value = ''; field.dispatchEvent(new Event('input'))"
    )
    reason = page.run("return document.querySelector('#routes-table a').getAttribute('href')")
    answer = httpx.get(f"{page.url}/quaestor/dashboard/{reason.partition('#')[0]}", timeout=60)
    assert f'id="{reason.partition("#")[2]}"' in answer.text


def test_values_are_shown_at_the_pointer_and_a_server_that_is_gone_in_the_header(page: Page, shop: Site) -> None:
    page.enter(TOKEN)
    becomes(lambda: page.run("return Boolean(document.querySelector('#chart-answers .u-over'))"))
    becomes(
        lambda: page.run(
            "const over = document.querySelector('#chart-answers .u-over'), box = over.getBoundingClientRect();"
            "over.dispatchEvent(new MouseEvent('mousemove', "
            "{ clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true }));"
            "return document.querySelector('#chart-answers ~ .hover').innerText.includes('memory ')"
        )
    )
    page.run("window.asked = fetch; window.fetch = () => Promise.reject(new TypeError('away'))")
    becomes(lambda: "server gone since" in page.text("state"))
    assert page.run("return document.getElementById('state').className") == "bad"
    page.run("window.fetch = asked")
    becomes(lambda: "1 process, serving" in page.text("state"))
    assert page.run("return document.getElementById('state').className") == ""


def test_a_server_that_hangs_is_gone_in_the_header(page: Page) -> None:
    """Its connections stay open, and no answer comes. The page's patience passes faster here."""
    page.enter(TOKEN)
    becomes(lambda: "1 process, serving" in page.text("state"))
    page.run(
        "window.asked = fetch; const timeout = AbortSignal.timeout.bind(AbortSignal);"
        "AbortSignal.timeout = (ms) => timeout(ms / 100);"
        "window.fetch = (path, { signal }) => new Promise((_, reject) => "
        "signal?.addEventListener('abort', () => reject(signal.reason)))"
    )
    becomes(lambda: "server gone since" in page.text("state"))
    page.run("AbortSignal.timeout = () => new AbortController().signal; window.fetch = asked")
    becomes(lambda: "1 process, serving" in page.text("state"))


def test_charts_over_time_are_marked_where_parameters_were_applied(page: Page, shop: Site) -> None:
    page.run(
        "window.written = {}; const write = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {"
        "(written[this.canvas.closest('.chart')?.id] ??= []).push(text); return write.call(this, text, ...place); }"
    )
    page.enter(TOKEN)
    here = f"{shop.url}/quaestor/dashboard"
    state = httpx.get(f"{here}/parameters", headers=bearer(TOKEN), timeout=60).json()
    by_ann = {"by": "ann", "base": state["number"], "parameters": {"default": {"quantile": 0.7}}}
    applied = httpx.post(f"{here}/apply", headers=bearer(TOKEN), json=by_ann, timeout=60).json()
    marked = f"return Object.keys(written).filter((id) => written[id].includes('applied {applied['number']}')).sort()"
    over_time = ["answers", "deliveries", "invalidations", "lag", "live-lag", "sketch"]
    becomes(lambda: page.run(marked) == [f"chart-{name}" for name in over_time])


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
    assert [row.lstrip("★ ").split("\n")[0].split(" Take")[0] for row in rows[:3]] == ["now", "chosen", "quantile 0.1"]
    assert any(row.startswith("★") for row in rows)
    assert page.text("recommendation").startswith(("Keep what counts now", "Take ", "Nothing that was tried keeps"))
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


def test_the_slower_operator_is_informed_and_keeps_the_entered_values(page: Page, shop: Site) -> None:
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


def test_typed_text_is_shown_as_text(page: Page, shop: Site) -> None:
    """URLs are outsiders' words."""
    hostile = f"{shop.url}/items/3?q=%3Cimg%20src=x%20onerror=alert(1)%3E&p='\"><script>"
    for _ in range(3):
        httpx.get(hostile, timeout=60)
    page.enter(TOKEN)
    becomes(lambda: "onerror" in page.text("results"))
    assert page.run("return document.querySelectorAll('#results img, #results script').length") == 0


def test_live_clients_and_their_ends_are_shown_as_text(page: Page) -> None:
    """A reason comes from another process's report, and may be any text."""
    page.enter(TOKEN)
    becomes(lambda: "Slow readers now" in page.text("live-tiles"))
    page.run(
        "const hostile = { '<img src=x onerror=alert(1)>': 3 }; window.shown = false;"
        "const sums = { live_ended: hostile, live_http: hostile, live_rejected: hostile };"
        "const now = { sums, highest: {}, windows: { 300: {} } };"
        "const chart = { draw() {} };"
        "import('./live.js').then(({ showLive }) => {"
        "showLive(now, () => [], { deliveries: chart, liveLag: chart });"
        "const texts = ['live-ended', 'live-http', 'live-refused'].map((id) => document.getElementById(id).innerText);"
        "shown = [texts, document.querySelectorAll('#live img').length]; })"
    )
    becomes(lambda: bool(page.run("return shown")))
    texts, images = page.run("return shown")
    assert ["onerror" in text for text in texts] == [True, True, True]
    assert images == 0


def test_nothing_is_asked_of_others_and_the_token_does_not_outlive_the_tab(page: Page, shop: Site) -> None:
    page.enter(TOKEN)
    becomes(lambda: page.run("return performance.getEntriesByType('resource').length") >= 9)
    addresses = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert {url for url in addresses if not url.startswith(f"{shop.url}/quaestor/dashboard/")} == set()
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
