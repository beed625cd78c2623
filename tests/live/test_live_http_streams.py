"""Live queries as server-sent events: one query on a connection, resumed by the id of the last event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from quaestor.clock import system_clock
from quaestor.live.websocket.principals import Grant
from quaestor.rest.access import Principal
from tests.live.socket_site import Json, Site, live_site

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_http_streams", settings={"live_heartbeat_ms": 50}) as running:
        yield running


class Events:
    """The events of one stream: name, id and data."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> tuple[str, str, Json]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith((":", "retry:")):
                continue
            if not line and "data" in fields:
                return fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"])
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def stream_of(site: Site, **headers: str) -> AsyncIterator[Events]:
    fields = {"accept": "text/event-stream"} | {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web,
        web.stream("GET", "/items", params={"sort": '{"_id": 1}'}, headers=fields) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "no-store" in answer.headers["cache-control"]
        yield Events(answer.aiter_lines())


async def test_a_stream_begins_with_the_result_and_goes_on_with_matches(site: Site, items: Any) -> None:
    """`result`, then `match` for each change, each with its position as id, even if a record has a field of that name."""
    items.insert_one({"_id": 1, "offset_token": "no position"})
    async with stream_of(site) as events:
        name, position, result = await events.next()
        assert (name, position) == ("result", result["offset_token"])
        assert result["data"] == [{"_id": 1, "offset_token": "no position"}]
        items.insert_one({"_id": 2, "offset_token": "neither"})
        name, position, match = await events.next()
        assert (name, position, match["data"]["_id"]) == ("match", match["offset_token"], 2)


async def test_the_id_of_the_last_event_resumes_the_stream(site: Site, items: Any) -> None:
    """A browser that connects again receives exactly the events that it missed."""
    async with stream_of(site) as events:
        items.insert_one({"_id": 1})
        await events.next()
        _, last, _ = await events.next()
    items.insert_one({"_id": 2})
    async with stream_of(site, last_event_id=last) as events:
        name, _, resumed = await events.next()
        assert (name, resumed["missed"] in (0, 1)) == ("resumed", True)  # the event may come while the stream begins
        name, _, match = await events.next()
        assert (name, match["data"]["_id"]) == ("match", 2)


async def test_an_unknown_position_is_refreshed_with_a_new_result(site: Site, items: Any) -> None:
    """Never a gap without a word: `refreshed`, then the whole result."""
    items.insert_one({"_id": 1})
    async with stream_of(site, last_event_id="x" * 400) as events:
        assert (await events.next())[0] == "refreshed"
        name, _, result = await events.next()
        assert (name, result["data"]) == ("result", [{"_id": 1}])


@pytest.mark.parametrize(
    ("url", "status"), [("/items?query=nonsense", 400), ("/items?filter=1", 400), ("/system.users", 404)]
)
async def test_an_answer_that_cannot_be_followed_is_refused_before_the_stream(
    site: Site, items: Any, url: str, status: int
) -> None:
    """An EventSource stops at an answer with an error's status."""
    async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
        refused = await web.get(url, headers={"accept": "text/event-stream"})
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")


async def test_a_stream_ends_with_its_credentials(mongo_url: str) -> None:
    """`error` with 401 is the last event, and the answer ends."""
    expires_at_ms: list[int | None] = [None]

    def who(request: Any) -> Grant:
        return Grant(principal=Principal(user="tim"), expires_at_ms=expires_at_ms[0])

    with live_site(mongo_url, "live_http_expiry", principal=who) as site:
        site.database.items.insert_one({"_id": 1})
        async with stream_of(site) as events:
            assert (await events.next())[0] == "result"
        expires_at_ms[0] = system_clock() + 2_000
        async with stream_of(site) as events:
            assert (await events.next())[0] == "result"
            name, _, error = await events.next()
            assert (name, error["error"]["status"]) == ("error", 401)
            with pytest.raises(AssertionError, match="ended"):
                await events.next()
