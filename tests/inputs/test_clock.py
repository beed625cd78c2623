"""The clock as an input: for any use of the time, a cached answer is the one that the handler would give now."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from pymongo import AsyncMongoClient
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from benchmarks.setups.soaked_inputs.clock_forms import FLOORED, RELATIVE, TOKYO
from quaestor.capture import Capture
from tests.end_to_end.site import Site, status_of
from tests.end_to_end.test_distributed import grid
from tests.inputs.app import App, Asynchronous, Page, app

pytestmark = [pytest.mark.anyio, pytest.mark.clock_parts]

NOW = datetime(2026, 11, 22, 9, 31, 17, 250_000, tzinfo=UTC)
DAY_MS = 86_400_000

STEPS = [
    timedelta(seconds=seconds)
    for seconds in (1, 29, 31, 61, 240, 400, 900, 1801, 3599, 7200, 18_000, 36_000, 86_399, 86_401)
]


class Shop:
    """A page whose query holds a value that it computes from the clock, on a real mongod; its grid never kills anything.

    The answer shows the value as well, so it tells whether it is the one of now.
    """

    def __init__(self, mongo_url: str, database: str, value: Callable[[datetime], Any], **settings: Any) -> None:
        self.value = value
        self.now = NOW
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[Capture()])
        self.items = self.client[database].items
        self.site = Site(self._page, **{"ttl_max_ms": 40 * DAY_MS} | settings)
        self.site.engine.estimator.ttl_ms = 40 * DAY_MS

    async def _page(self, request: Request) -> Response:
        value = self.value(self.now)
        count = await self.items.count_documents({"at": {"$gte": value}})
        fields = {"cache-control": "stale-while-revalidate=864000, stale-if-error=864000"}
        return JSONResponse({"value": str(value), "found": count}, headers=fields)

    async def get(self, now: datetime, path: str = "/items") -> tuple[str, str]:
        """The value that the answer was made with, and how it came."""
        self.now = now
        self.site.engine.clock.now_ms = round(now.timestamp() * 1000)
        response = await self.site.get(path)
        return response.json()["value"], status_of(response)


@asynccontextmanager
async def shop(mongo_url: str, database: str, value: Callable[[datetime], Any], **settings: Any) -> AsyncIterator[Shop]:
    made = Shop(mongo_url, database, value, **settings)
    try:
        yield made
    finally:
        await made.site.client.aclose()
        await made.client.close()


@pytest.mark.parametrize("name", RELATIVE)
async def test_answers_that_move_with_the_clock_are_never_cached(mongo_url: str, prefix: str, name: str) -> None:
    async with shop(mongo_url, prefix, RELATIVE[name]) as made:
        now = NOW
        for step in STEPS:
            value, how = await made.get(now)
            assert "hit" not in how
            assert value == str(RELATIVE[name](now))
            now += step


@pytest.mark.parametrize("name", FLOORED)
async def test_an_answer_with_a_floored_time_is_cached_until_the_unit_ends(
    mongo_url: str, prefix: str, name: str
) -> None:
    """The end of the unit counts even if the handler or its route allows stale answers."""
    async with shop(mongo_url, prefix, FLOORED[name]) as made:
        assert "stored" in (await made.get(NOW))[1]
        assert "hit" in (await made.get(NOW + timedelta(seconds=1)))[1]
        now = NOW
        for step in STEPS * 3:
            now += step
            assert (await made.get(now))[0] == str(FLOORED[name](now)), now


@pytest.mark.parametrize("seconds", [5, 10, 15, 20, 30, 45, 90, 150])
async def test_some_seconds_ago_is_not_taken_for_a_minute_where_it_is_one_by_chance(
    mongo_url: str, prefix: str, seconds: int
) -> None:
    """At 9:31:30 the time of 30 seconds ago is 9:31:00."""
    amount = timedelta(seconds=seconds)
    async with shop(mongo_url, prefix, lambda now: bson.ObjectId.from_datetime(now - amount).generation_time) as made:
        now = NOW.replace(second=0) + amount
        assert (await made.get(now))[0].endswith(":00+00:00")
        value, how = await made.get(now + timedelta(seconds=1))
        assert value.endswith(":01+00:00")
        assert "hit" not in how


async def test_clients_may_not_keep_it_longer_either(mongo_url: str, prefix: str) -> None:
    async with shop(mongo_url, prefix, FLOORED["HH:MM"], client_ttl="estimated") as made:
        await made.get(NOW)
        response = await made.site.get("/items")
        (seconds,) = re.findall(r"max-age=(\d+)", response.headers["cache-control"])
        assert 30 < int(seconds) <= 43


async def test_constants_are_cached_for_as_long_as_ever(mongo_url: str, prefix: str) -> None:
    for value in (
        datetime(2013, 1, 1),
        datetime(2026, 3, 4, 5, 6, 7, 891_000),
        1_772_600_768,
        "2013-01-01",
        bson.ObjectId(),
    ):
        async with shop(mongo_url, prefix, lambda _, value=value: value) as made:  # type: ignore[misc]
            assert "stored" in (await made.get(NOW))[1]
            assert "hit" in (await made.get(NOW + timedelta(days=20)))[1], value


async def test_a_time_that_the_request_names_is_keyed_and_no_clock(mongo_url: str, prefix: str) -> None:
    wanted = datetime(2026, 11, 20, tzinfo=UTC)
    async with shop(mongo_url, prefix, lambda _: wanted) as made:
        assert "stored" in (await made.get(NOW, "/items?date=2026-11-20"))[1]
        assert "hit" in (await made.get(NOW + timedelta(days=20), "/items?date=2026-11-20"))[1]
        assert "stored" in (await made.get(NOW, "/items?page=1"))[1]
        assert "hit" not in (await made.get(NOW + timedelta(days=20), "/items?page=1"))[1]


PARTS: dict[str, Callable[[datetime], Any]] = {
    "a bucket of 40 s": lambda now: int(now.timestamp()) // 40,
    "the minute in a string": lambda now: f"board-{now:%M}-departures",
    "compact digits in Tokyo": lambda now: f"{now.astimezone(TOKYO):%Y%m%d%H%M}",
    "hex": lambda now: f"{int(now.timestamp()) // 30:x}",
    "parts": lambda now: [now.day, now.hour, now.minute],
    "the hour": lambda now: now.hour,
}


@pytest.mark.parametrize("name", PARTS)
async def test_parts_of_the_time_in_any_layout_end_with_their_unit(mongo_url: str, prefix: str, name: str) -> None:
    async with shop(mongo_url, prefix, PARTS[name]) as made:
        assert "stored" in (await made.get(NOW))[1]
        assert "hit" in (await made.get(NOW + timedelta(milliseconds=100)))[1]
        now = NOW
        for step in STEPS * 3:
            now += step
            assert (await made.get(now))[0] == str(PARTS[name](now)), now


async def test_a_literal_that_was_taken_for_the_minute_costs_one_short_life(mongo_url: str, prefix: str) -> None:
    async with shop(mongo_url, prefix, lambda _: 31) as made:
        assert "stored" in (await made.get(NOW))[1]
        assert "stored" in (await made.get(NOW + timedelta(minutes=1)))[1]
        assert "hit" in (await made.get(NOW + timedelta(days=20)))[1]


async def test_without_the_search_a_literal_that_equals_the_minute_lives_on(mongo_url: str, prefix: str) -> None:
    async with shop(mongo_url, prefix, lambda _: 31, clock_parts=False) as made:
        assert "stored" in (await made.get(NOW))[1]
        assert "hit" in (await made.get(NOW + timedelta(minutes=1)))[1]


# Real cells, and the real clock


def now_page(value: Callable[[datetime], Any]) -> Page:
    """A page that shows the value it asked with."""

    async def page(items: Asynchronous, request: Request) -> Any:
        moment = value(datetime.now(UTC))
        return [str(moment), await items.count_documents({"at": {"$gte": moment}})]

    return page


def pages_of(values: dict[str, Callable[[datetime], Any]]) -> dict[str, Page]:
    return {f"/{number}": now_page(value) for number, value in enumerate(values.values())}


@pytest.mark.usefixtures("patient_redis")
async def test_an_answer_that_moves_with_the_clock_is_never_stored(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """Neither engine stores it, nor does the store that processes share."""
    constant = now_page(lambda _: 1)
    async with app(mongo_url, prefix, {"/constant": constant} | pages_of(RELATIVE), **settings) as cached:
        await cached.warm("/constant")
        for path, name in zip(pages_of(RELATIVE), RELATIVE, strict=True):
            for _ in range(3):
                assert "not stored: clock" in (await cached.get(path))[1], name


@pytest.mark.usefixtures("patient_redis")
async def test_an_answer_of_a_floored_time_ends_with_its_unit_in_either_engine(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """At the last moment at which an entry may be used the value still is the one that the answer was made with."""
    long = {"ttl_min_ms": 40 * DAY_MS, "ttl_max_ms": 40 * DAY_MS}
    async with app(mongo_url, prefix, pages_of(FLOORED), **long, **settings) as cached:
        for path, value in zip(pages_of(FLOORED), FLOORED.values(), strict=True):
            answer, _ = await cached.warm(path)
            for end_ms in ends_ms(cached, path):
                assert str(value(datetime.fromtimestamp((end_ms - 1) / 1000, UTC))) == answer


@pytest.mark.usefixtures("patient_redis")
async def test_another_process_knows_when_the_unit_ends(mongo_url: str, redis_url: str, prefix: str) -> None:
    """A process uses an entry from the shared store no longer than the process that made it."""
    settings = {
        "redis_url": redis_url,
        "deployment": prefix,
        "ttl_min_ms": 40 * DAY_MS,
        "ttl_max_ms": 40 * DAY_MS,
    }
    pages = {"/today": now_page(FLOORED["today"])}
    with grid(mongo_url, redis_url, prefix):
        async with (
            app(mongo_url, prefix, pages, **settings) as first,
            app(mongo_url, prefix, pages, **settings) as second,
        ):
            await first.warm("/today")
            await second.warm("/today")
            (end_ms,) = ends_ms(first, "/today")
            assert ends_ms(second, "/today") == [end_ms]
            assert end_ms < datetime.now(UTC).timestamp() * 1000 + DAY_MS


def ends_ms(cached: App, path: str) -> list[int]:
    """When the entries of a page are of no use for anything any more."""
    responses = [entry.response for entry in cached.quaestor.parts.storage.memory._entries.values()]
    return [
        max(dependent.fresh_until_ms, dependent.stale_until_ms) for dependent in responses if dependent.resource == path
    ]
