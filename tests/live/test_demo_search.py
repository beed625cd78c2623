"""The demo's search of the stream in a real browser: push and pull of one URL, in pages. `make test-browsers`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from benchmarks.setups.browsers.browser import Browser, Tab
from quaestor.demo.children import app_server
from quaestor.demo.flights_app import AppSettings
from quaestor.testing.servers import free_port
from tests.support import becomes

BEGAN = datetime.now(UTC)
HELD = """
const asked = window.fetch;
window.held = {};
window.fetch = async (url) => {
  const posts = await (await asked(url)).json();
  await new Promise((release) => { held[new URL(url, location).searchParams.get("search")] = release; });
  return { json: async () => posts };
};
"""
"""From now on each fetch waits, with its posts, until the test releases it by the searched text."""


@contextmanager
def searched(
    browser: Browser, mongo_url: str, database: str, folder: Path, texts: list[str]
) -> Iterator[tuple[Tab, Collection[dict[str, Any]]]]:
    """A tab with the page, on posts with these texts, and the posts. Of two posts the later one is newer."""
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as mongo:
        posts = mongo[database].posts
        posts.insert_many([post(number, text) for number, text in enumerate(texts)])
        environment = os.environ | AppSettings(mongo_url=mongo_url, database=database).to_env()
        environment |= {"MONGO_URL": mongo_url}
        server = app_server(folder, port=free_port(), workers=1, environment=environment)
        server.start()
        try:
            tab = browser.blank()
            tab.open(f"{server.url}/search")
            yield tab, posts
            tab.close()
        finally:
            server.stop()
            mongo.drop_database(database)


def post(number: int, text: str) -> dict[str, Any]:
    return {"_id": number, "text": text, "at": BEGAN + timedelta(seconds=number)}


@pytest.mark.browser
def test_a_search_is_pushed_pulled_and_turned(browser: Browser, mongo_url: str, prefix: str, tmp_path: Path) -> None:
    """Push shows a new post by itself, pull only on request; the second page has the older posts."""
    with searched(browser, mongo_url, prefix, tmp_path, [f"<b>late</b> {n}" for n in range(15)]) as (tab, posts):

        def first() -> str:
            return str(tab.run("return document.querySelector('#posts li')?.textContent ?? ''"))

        becomes(lambda: first().startswith("<b>late</b> 14"))
        posts.insert_one(post(15, "late 15"))
        becomes(lambda: first().startswith("late 15"))
        tab.run("document.querySelector('[value=pull]').click()")
        becomes(lambda: "pulled" in tab.run("return document.getElementById('state').textContent"))
        posts.insert_one(post(16, "late 16"))
        assert first().startswith("late 15")
        becomes(lambda: tab.run("document.getElementById('again').click()") or first().startswith("late 16"))
        tab.run("document.getElementById('older').click()")
        becomes(lambda: first().startswith("<b>late</b> 6"))
        assert tab.run("return document.getElementById('page').textContent") == "page 2"


@pytest.mark.browser
def test_a_late_answer_replaces_neither_a_newer_search_nor_a_stream(
    browser: Browser, mongo_url: str, prefix: str, tmp_path: Path
) -> None:
    """Answers arrive in the wrong order: the posts and the state stay those of the newest look."""
    with searched(browser, mongo_url, prefix, tmp_path, ["apple", "pear", "plum"]) as (tab, _):

        def search(text: str) -> None:
            tab.run(
                f"const field = document.getElementById('search'); field.value = '{text}';"
                "field.dispatchEvent(new Event('input'))"
            )

        def release(text: str) -> None:
            """Release an answer; at the end the page has handled it."""
            becomes(lambda: bool(tab.run(f"return Boolean(held.{text})")))
            tab.run(f"held.{text}(); await new Promise((passed) => setTimeout(passed))")

        def shown() -> tuple[list[str], str]:
            """First word of each post, and of the state."""
            texts = tab.run(
                "return [...document.querySelectorAll('#posts li, #state')].map((item) => item.textContent)"
            )
            state, *posts = [text.split()[0] for text in texts]
            return posts, state

        becomes(lambda: shown() == (["plum", "pear", "apple"], "pushed"))
        tab.run(HELD + "document.querySelector('[value=pull]').click()")
        search("apple")
        search("pear")
        release("pear")
        assert shown() == (["pear"], "pulled")
        release("apple")
        assert shown() == (["pear"], "pulled")
        search("plum")
        tab.run("document.getElementById('search').value = 'apple'; document.querySelector('[value=push]').click()")
        becomes(lambda: shown() == (["apple"], "pushed"))
        release("plum")
        assert shown() == (["apple"], "pushed")
