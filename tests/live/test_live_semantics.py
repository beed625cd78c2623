"""The worked examples of events (docs/live_semantics.md) through the clients: in real browsers, and in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.responses import HTMLResponse

from benchmarks.setups.browsers.browser import Browser
from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.streams import EventStream, LiveEvent
from tests.live.semantics import FILTER, FIRST, LAST_STEPS, LIMIT, STEPS, Json
from tests.live.socket_site import Site, live_site
from tests.support import becomes

INITIAL: Json = {"matchType": "add", "operation": "none", "data": FIRST, "initial": True}
PAGE = f"""<!doctype html><title>events</title><script type="module">
import {{ connect }} from "/live.js";
globalThis.db = connect();
globalThis.events = [];
globalThis.errors = [];
db.items.find({json.dumps(FILTER)}).ascending("title").limit({LIMIT}).eventStream(
  (event) => events.push(event), (error) => errors.push(error.message));
globalThis.ready = true;
</script>"""


@pytest.fixture
def site(mongo_url: str, prefix: str) -> Iterator[Site]:
    with live_site(mongo_url, prefix) as running:

        @running.app.get("/events", response_class=HTMLResponse)
        def page() -> str:
            return PAGE

        yield running


def test_each_write_causes_its_events_in_a_browser(browser: Browser, site: Site, items: Any) -> None:
    """Each step adds exactly its events to those before, in their order; the initial record comes first."""
    items.insert_one(FIRST)
    tab = browser.tab(f"{site.http}/events")
    expected = [INITIAL]
    becomes(lambda: tab.run("return events") == expected)
    for step in STEPS + LAST_STEPS:
        expected += [event | {"initial": False} for event in step.perform(items)]
        number = len(expected)
        becomes(lambda number=number: tab.run("return events.length") >= number)  # type: ignore[misc]
        assert tab.run("return events") == expected, step
    assert tab.run("return errors") == []


def test_a_page_computes_from_streams(browser: Browser, site: Site, items: Any) -> None:
    """A count by `add` and `remove`, an average of the present result, and a join of two results in the page."""
    items.insert_many([{"_id": number, "n": number, "of": "ann"} for number in range(3)])
    site.database.people.insert_one({"_id": "ann", "name": "Ann"})
    tab = browser.tab(f"{site.http}/events")
    tab.run(
        """globalThis.seen = { count: 0 };
        db.items.find().eventStream({ matchTypes: ["add", "remove"] },
          ({ matchType }) => { seen.count += matchType === "add" ? 1 : -1; });
        db.items.find().resultStream((rows) => {
          seen.average = rows.reduce((sum, { n }) => sum + n, 0) / rows.length; seen.rows = rows; });
        db.people.find().resultStream((people) => { seen.people = people; });"""
    )

    def shown() -> Any:
        return tab.run(
            """const names = (seen.people ?? []).map(({ _id, name }) => [_id, name]);
            const joined = (seen.rows ?? []).map((row) => [row._id, Object.fromEntries(names)[row.of]]);
            return [seen.count, seen.average, joined.sort()]"""
        )

    becomes(lambda: shown() == [3, 1, [[0, "Ann"], [1, "Ann"], [2, "Ann"]]])
    items.update_one({"_id": 0}, {"$set": {"n": 6}})
    items.delete_one({"_id": 1})
    site.database.people.update_one({"_id": "ann"}, {"$set": {"name": "Anna"}})
    becomes(lambda: shown() == [2, 4, [[0, "Anna"], [2, "Anna"]]])


async def shown(stream: EventStream) -> Json:
    """The next event, as the protocol names its fields."""
    event = await anext(stream)
    assert isinstance(event, LiveEvent), event
    places = {"index": event.index, "previousIndex": event.previous_index}
    return {
        "matchType": event.match_type, "operation": event.operation, "data": event.document, "initial": event.initial,
        **{name: place for name, place in places.items() if place is not None},
    }  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("binary", [False, True])
async def test_each_write_causes_its_events_in_python(site: Site, items: Any, binary: bool) -> None:
    """The next event after each write is the one of its step, so that no step has more events than the table says."""
    items.insert_one(FIRST)
    async with LiveClient(site.url, binary=binary) as live:
        stream = await live.event_stream("items", FILTER, sort=[("title", 1)], limit=LIMIT)
        assert await shown(stream) == INITIAL
        for step in STEPS + LAST_STEPS:
            for expected in step.perform(items):
                assert await shown(stream) == expected | {"initial": False}, step
