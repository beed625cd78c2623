"""The browser client in Chromium: look-ups in the sketch, the page's memory, a worker's hit beside a worker that does nothing.

Chromium without a window on this machine; a server on the loopback interface, which is asked for none of what is timed. Clocks in
browsers are rounded to 0.1 ms, so runs of reads are timed, one after the other within each; medians of the runs, interleaved.

Look-ups: names that were never put in, of about 30 characters, among 20,000 that were. Aim: a million per second, without
WebAssembly.
Page: `client.fetch` of an answer in its memory, alone and with its JSON read. Aim: at most 0.1 ms.
Worker: `fetch` and its text, by two pages. Under the first page's service worker, the answer is in the worker's memory. The
other worker hands every request to the browser, and the answer is in the HTTP cache. Aim: at most 1.15 times as long.
Result: benchmarks/results/browser_client.json. Run: python -m benchmarks.browser_client (half a minute; needs Chromium)
"""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from benchmarks import harness
from benchmarks.setups.browsers.browser import Browser
from benchmarks.setups.browsers.chromium import CHROMIUM
from benchmarks.setups.clients.origin import Origin, serving
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.sizing import DEFAULT
from quaestor.cache_sketch.wire_format import digest, encode
from quaestor.errors import ConfigurationError

ROUNDS: Final = 15
READS: Final = 200
LOOKUPS: Final = 200_000
ENTRIES: Final = 20_000
BARE_WORKER: Final = 'addEventListener("fetch", (event) => event.respondWith(fetch(event.request)));'
BARE_PAGE: Final = """<!doctype html><link rel="icon" href="data:,"><script>
window.controlled = async () => {
  await navigator.serviceWorker.register("/bare/worker.js");
  while (!(await navigator.serviceWorker.ready).active) {}
};
window.ready = true;
</script>"""
_LOOK_UP: Final = """
    const { readSketch } = await import("/src/sketch.ts");
    const sketch = readSketch(Uint8Array.from(atob("BODY"), (one) => one.charCodeAt(0)).buffer);
    const names = Array.from({ length: LOOKUPS }, (_, i) => `/items/${i}?page=1&sort=price`);
    let named = 0;
    const begun = performance.now();
    for (const name of names) if (sketch.names(name)) named++;
    return [names.length / (performance.now() - begun) * 1000, named / names.length];
"""
_TIMED: Final = """
    const begun = performance.now();
    for (let i = 0; i < READS; i++) READ;
    return (performance.now() - begun) / READS;
"""


class Site(Origin):
    """The application of the tests, and a worker that does nothing."""

    def app(self) -> Starlette:
        async def page(request: Request) -> Response:
            return HTMLResponse(BARE_PAGE)

        async def worker(request: Request) -> Response:
            return Response(BARE_WORKER, media_type="text/javascript")

        async def data(request: Request) -> Response:
            body = json.dumps({"value": 0, "user": None})
            return Response(body, media_type="application/json", headers={"cache-control": "max-age=3600"})

        bare = [Route("/bare/page", page), Route("/bare/worker.js", worker), Route("/bare/data", data)]
        return Starlette(routes=[*bare, *super().app().routes])


def lookups(browser: Browser, url: str) -> dict[str, Any]:
    """Look-ups per second, and how many of them were false positives."""
    filled = CountingFilter(DEFAULT)
    for number in range(ENTRIES):
        filled.add(digest(f"/stale/{number}"))
    body = base64.b64encode(encode(DEFAULT, keys=filled.keys, bits=filled.bits)).decode()
    tab = browser.tab(url + "/")
    script = _LOOK_UP.replace("BODY", body).replace("LOOKUPS", str(LOOKUPS))
    runs = [tab.run(script) for _ in range(ROUNDS)]
    tab.close()
    rates = [rate for rate, _ in runs]
    return {"per_s": round(median(rates)), "best_per_s": round(max(rates)), "false_positives": round(runs[0][1], 4)}


def reads(browser: Browser, site: Site) -> dict[str, Any]:
    """Milliseconds of a read by each way."""
    page, controlled, bare = (browser.tab(site.url + path) for path in ("/", "/worker-page", "/bare/page"))
    for tab in (controlled, bare):
        tab.run("await controlled()")
    bare.open(site.url + "/bare/page")
    ways = {
        "page, fetch": (page, "await client.fetch('/data/a')"),
        "page, fetch and JSON": (page, "await (await client.fetch('/data/a')).json()"),
        "worker": (controlled, "await (await fetch('/data/a')).text()"),
        "worker that does nothing": (bare, "await (await fetch('/bare/data')).text()"),
    }
    assert bare.run("return navigator.serviceWorker.controller.scriptURL").endswith("/bare/worker.js")
    timed: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        if turn == 1:
            requests = site.asked["GET /data/a"]
        for name, (tab, read) in ways.items():
            spent = tab.run(_TIMED.replace("READS", str(READS)).replace("READ;", f"{read};"))
            if turn:
                timed[name].append(spent)
    assert site.asked["GET /data/a"] == requests, "what was timed were no hits"
    milliseconds = {name: round(median(spent), 4) for name, spent in timed.items()}
    ratios = [ours / bare for ours, bare in zip(timed["worker"], timed["worker that does nothing"], strict=True)]
    return {
        "ms": milliseconds,
        "worker_over_a_worker_that_does_nothing": round(median(ratios), 3),
        "aim": "page, fetch: at most 0.1 ms; the ratio: at most 1.15",
    }


def main() -> None:
    """Measure everything and keep the result."""
    given = harness.arguments(__doc__)
    if CHROMIUM.path is None:
        raise ConfigurationError("no Chromium here: `make chromium` installs it")
    with (
        tempfile.TemporaryDirectory() as profile,
        serving(Site(delta_s=3600)) as site,
        CHROMIUM.running(Path(profile)) as browser,
    ):
        result = {
            "browser": browser.version,
            "lookups": lookups(browser, site.url) | {"aim": "1,000,000 per second"},
            "reads": reads(browser, site),
        }
    harness.report("browser_client", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
