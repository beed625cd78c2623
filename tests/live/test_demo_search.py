"""The demo's search of the stream in a real browser: push and pull of one URL, in pages. `make test-browsers`."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest

from benchmarks.setups.browsers.browser import Browser
from quaestor.demo.children import app_server
from quaestor.demo.flights_app import AppSettings
from quaestor.testing.servers import free_port
from tests.support import becomes


@pytest.mark.browser
def test_a_search_is_pushed_pulled_and_turned(browser: Browser, mongo_url: str, prefix: str, tmp_path: Path) -> None:
    """Push shows a new post by itself, pull only on request; the second page has the older posts."""
    began = datetime.now(UTC)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as mongo:
        posts = mongo[prefix].posts
        posts.insert_many(
            [{"_id": n, "text": f"<b>late</b> {n}", "at": began + timedelta(seconds=n)} for n in range(15)]
        )
        environment = os.environ | AppSettings(mongo_url=mongo_url, database=prefix).to_env()
        environment |= {"MONGO_URL": mongo_url}
        server = app_server(tmp_path, port=free_port(), workers=1, environment=environment)
        server.start()
        try:
            tab = browser.blank()
            tab.open(f"{server.url}/search")

            def first() -> str:
                return str(tab.run("return document.querySelector('#posts li')?.textContent ?? ''"))

            becomes(lambda: first().startswith("<b>late</b> 14"))
            posts.insert_one({"_id": 15, "text": "late 15", "at": began + timedelta(seconds=15)})
            becomes(lambda: first().startswith("late 15"))
            tab.run("document.querySelector('[value=pull]').click()")
            becomes(lambda: "pulled" in tab.run("return document.getElementById('state').textContent"))
            posts.insert_one({"_id": 16, "text": "late 16", "at": began + timedelta(seconds=16)})
            assert first().startswith("late 15")
            becomes(lambda: tab.run("document.getElementById('again').click()") or first().startswith("late 16"))
            tab.run("document.getElementById('older').click()")
            becomes(lambda: first().startswith("<b>late</b> 6"))
            assert tab.run("return document.getElementById('page').textContent") == "page 2"
            tab.close()
        finally:
            server.stop()
            mongo.drop_database(prefix)
