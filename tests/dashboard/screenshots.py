"""Pictures of the dashboard for the documents: `python -m tests.dashboard.screenshots`.

A site with readers and a writer, looked at after a while.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.setups.browsers.chromium import CHROMIUM
from quaestor.testing import servers
from tests.dashboard.page import Page, becomes
from tests.dashboard.site import TOKEN, Site, site

FOLDER = Path(__file__).parents[2] / "docs" / "images"
WATCHED_S = 60


def traffic(shop: Site, stop: threading.Event) -> None:
    """Reads by the dozen, most of the first groups, and a write now and then."""
    dice = random.Random(1)
    while not stop.wait(0.05):
        for _ in range(8):
            shop.read(min(int(dice.expovariate(0.4)), 9))
        if dice.random() < 0.25:
            shop.write(min(int(dice.expovariate(0.4)), 9))


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.mongo_url() as mongo_url,
        site(mongo_url, "shop", Path(folder) / "trace") as shop,
        CHROMIUM.running(Path(folder) / "profile") as browser,
    ):
        stop = threading.Event()
        reader = threading.Thread(target=traffic, args=(shop, stop), daemon=True)
        reader.start()
        page = Page(browser, shop.url)
        page.look(width=1_280)
        page.enter(TOKEN)
        time.sleep(WATCHED_S)
        page.focus("#field-quantile")
        for _ in range(15):
            page.press("ArrowLeft")
        page.click("#try")
        becomes(lambda: "Tried on" in page.text("trial"))
        stop.set()
        reader.join(60)
        page.focus("#by")
        for name, width, dark in (("light", 1_280, False), ("dark", 1_280, True), ("phone", 390, False)):
            page.look(width=width, dark=dark)
            time.sleep(3)
            page.picture(FOLDER / f"dashboard-{name}.png", width=width, height=1_750)
        page.look(width=1_280)
        time.sleep(2)
        page.picture(FOLDER / "dashboard-tuning.png", width=1_280, height=1_400, selector="#tuning")
        page.close()


if __name__ == "__main__":
    main()
