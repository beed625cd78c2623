"""The demo's departures in the next hour in a real browser: they change by the clock alone. `make test-browsers`."""

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

CLOCK = "return [Date.now(), [...document.querySelectorAll('#board td:nth-child(2)')].map((cell) => cell.textContent)]"


@pytest.mark.browser
def test_a_departure_leaves_the_page_at_its_instant(
    browser: Browser, mongo_url: str, prefix: str, tmp_path: Path
) -> None:
    """Before its instant the page shows it, afterwards not; another one enters an hour before its own. Nothing is written."""
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as mongo:
        timetable = mongo[prefix].timetable
        environment = os.environ | AppSettings(mongo_url=mongo_url, database=prefix).to_env()
        environment |= {"MONGO_URL": mongo_url, "QUAESTOR_STALENESS_BOUND_MS": "20000"}
        server = app_server(tmp_path, port=free_port(), workers=1, environment=environment)
        server.start()
        try:
            tab = browser.blank()
            leaves = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
            enters = leaves + timedelta(seconds=3)
            departures = {
                "leaves": leaves, "stays": leaves + timedelta(minutes=30), "enters": enters + timedelta(hours=1),
                "hidden <b>": leaves + timedelta(hours=3),
            }  # fmt: skip
            timetable.insert_many(
                [{"_id": name, "origin": "JFK", "dest": "LAX", "departs": at} for name, at in departures.items()]
            )
            tab.open(f"{server.url}/soon?origin=JFK")
            seen: list[tuple[float, list[str]]] = []

            def shows(*names: str) -> bool:
                at_ms, listed = tab.run(CLOCK)
                if not seen or seen[-1][1] != listed:
                    seen.append((at_ms / 1_000, listed))
                return bool(listed == list(names))

            becomes(lambda: shows("leaves", "stays"))
            becomes(lambda: shows("stays", "enters"), within_s=60)
            tab.close()
        finally:
            server.stop()
            mongo.drop_database(prefix)
    times = {tuple(listed): at_s for at_s, listed in seen}
    assert list(times)[-3:] == [("leaves", "stays"), ("stays",), ("stays", "enters")]
    assert times["stays",] >= leaves.timestamp()
    assert times["stays", "enters"] >= enters.timestamp()
