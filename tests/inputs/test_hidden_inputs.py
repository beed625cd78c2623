"""Hidden inputs: values that a handler puts into a query besides the request are learned from runs, on a real mongod.
The search for parts of the time is off in these tests: only runs that differ tell."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from starlette.requests import Request

from quaestor.testing import VirtualClock
from tests.inputs.app import App, Asynchronous, app
from tests.inputs.verified_site import is_hit, is_stored, verified_site
from tests.support import eventually

pytestmark = pytest.mark.anyio

LONG = {"ttl_min_ms": 600_000, "verification": False}
HIDDEN = "not stored: hidden-input"


@asynccontextmanager
async def shop(
    mongo_url: str, prefix: str, page: Callable[[Asynchronous, Request], Awaitable[Any]], **settings: Any
) -> AsyncIterator[App]:
    """An app with a page at /a and /b, and one that reads a constant."""

    async def constant(items: Asynchronous, _: Request) -> Any:
        return await items.count_documents({"kind": 1})

    async with app(mongo_url, prefix, {"/constant": constant, "/a": page, "/b": page}, **LONG | settings) as made:
        await made.warm("/constant")
        yield made


async def write(made: App, **change: Any) -> None:
    """A write that ends what the pages read with `kind`, and has taken effect."""
    made.items.insert_one({"kind": 1} | change)
    await made.quaestor.settled()


COUNTER = itertools.count()
HIDDEN_VALUES: dict[str, Callable[[VirtualClock], Any]] = {
    "a counter": lambda _: next(COUNTER),
    "chance": lambda _: random.random(),
    "the time in a digest": lambda clock: hashlib.sha256(str(clock() // 10).encode()).hexdigest(),
    "an amount of records": lambda _: {"$gte": -next(COUNTER)},
    "a list of changing length": lambda _: {"$in": list(range(next(COUNTER) % 7))},
}


@pytest.mark.parametrize("name", HIDDEN_VALUES)
async def test_a_value_that_differs_in_each_run_stops_storage_after_two_runs(
    mongo_url: str, prefix: str, name: str
) -> None:
    """Once two runs have shown it, no further answer is stored, and the stored ones are gone."""
    clock = VirtualClock()

    async def page(items: Asynchronous, _: Request) -> Any:
        return await items.count_documents({"kind": 1, "hidden": HIDDEN_VALUES[name](clock)})

    async with shop(mongo_url, prefix, page, clock=clock) as made:
        assert (await made.get("/a"))[1] == "stored"
        clock.advance(timedelta(milliseconds=20))
        await write(made)
        assert HIDDEN in (await made.get("/a"))[1]
        for _ in range(3):
            clock.advance(timedelta(milliseconds=20))
            assert HIDDEN in (await made.get("/a"))[1]


async def test_a_value_that_stays_for_a_while_is_cached_for_as_long_as_it_was_seen_to_stay(
    mongo_url: str, prefix: str
) -> None:
    clock, hidden = VirtualClock(), ["one"]

    async def page(items: Asynchronous, _: Request) -> Any:
        await items.count_documents({"kind": 1, "hidden": hidden[0]})
        return hidden[0]

    async with shop(mongo_url, prefix, page, clock=clock) as made:
        assert (await made.get("/a"))[1] == "stored"
        hidden[0] = "two"
        await write(made)
        assert HIDDEN in (await made.get("/a"))[1]
        clock.advance(timedelta(seconds=60))
        await made.warm("/constant")
        assert (await made.get("/a"))[1] == "stored"
        assert (await made.get("/a"))[1] == "hit"
        hidden[0] = "three"
        clock.advance(timedelta(seconds=63))
        await made.warm("/constant")
        assert HIDDEN in (await made.get("/a"))[1]


async def test_after_an_earlier_read_two_differences_tell_and_end_all_that_is_stored_of_the_route(
    mongo_url: str, prefix: str
) -> None:
    """The earlier read was the same both times, as far as is known. Entries of other URLs end too."""
    value = ["one"]

    async def source(request: Request) -> Any:
        return await site.seen.other.count_documents({"hidden": value[0], "of": request.url.path})

    async with verified_site(mongo_url, prefix, **LONG) as site:
        site.source = source
        site.other[prefix].other.insert_one({})  # a new collection ends what was read of it
        for path in ("/groups/1", "/groups/2"):
            await eventually(lambda path=path: is_hit(site, path))
        for before, after, how in (("one", "two", "stored"), ("two", "three", "hidden-input")):
            site.other[prefix].other.insert_one({"hidden": before, "of": "/groups/1"})
            await site.quaestor.settled()
            assert "; hit" in (await site.get("/groups/2"))[1]
            value[0] = after
            assert how in (await site.get("/groups/1"))[1]

        async def gone() -> bool:
            return "; hit" not in (await site.get("/groups/2"))[1]

        await eventually(gone)


async def test_a_difference_that_a_write_explains_is_no_hidden_input(mongo_url: str, prefix: str) -> None:
    """A query that follows from the record read before it."""

    async def page(items: Asynchronous, _: Request) -> Any:
        favourite = await items.find_one({"_id": "user"}) or {}
        return await items.count_documents({"_id": {"$in": favourite.get("ids", [])}})

    async with shop(mongo_url, prefix, page) as made:
        for ids in ([1], [2], [3, 4], [], [5]):
            made.items.replace_one({"_id": "user"}, {"ids": ids}, upsert=True)
            await made.quaestor.settled()
            assert (await made.get("/a"))[1] == "stored"
            assert (await made.get("/a"))[1] == "hit"


async def test_nor_is_what_the_request_contains(mongo_url: str, prefix: str) -> None:
    async def page(items: Asynchronous, request: Request) -> Any:
        inputs = {"at": request.query_params.get("at"), "by": request.headers.get("x-by")}
        return await items.count_documents({"kind": 1} | inputs)

    async with shop(mongo_url, prefix, page) as made:
        for at in ("1", "2", "3"):
            assert (await made.get(f"/a?at={at}"))[1] == "stored"
            await write(made, at=at)
            assert (await made.get(f"/a?at={at}"))[1] == "stored"
            assert (await made.get(f"/a?at={at}"))[1] == "hit"


async def test_verification_learns_them_and_quarantines_nothing(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """A counter: the first answer is on probation, and the run that verifies it shows the difference."""
    counter = itertools.count()

    async def source(_: Request) -> Any:
        return await site.seen.other.count_documents({"hidden": next(counter)})

    async with verified_site(mongo_url, prefix, **settings) as site:
        site.source = source
        await eventually(lambda: is_stored(site))

        async def learned() -> bool:
            return "hidden-input" in (await site.get())[1]

        await eventually(learned)
        assert not site.quaestor.read_path.probation.quarantines
        assert not site.verified("diverged")
        for _ in range(5):
            assert "hidden-input" in (await site.get())[1]
