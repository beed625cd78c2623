"""The Python client of live queries against a real endpoint: streams outlive sockets and always end at what the database has."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from bson import ObjectId
from starlette.exceptions import HTTPException
from starlette.requests import Request

from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.pauses import spread_pause_s
from quaestor.client.live.streams import EventStream, LiveEvent, LiveGap, ResultStream
from quaestor.client.live.sync_live_client import SyncLiveClient
from quaestor.errors import ConfigurationError, SubscriptionError
from quaestor.live.websocket.limits import SocketLimits
from quaestor.rest.access import Principal
from tests.live.socket_site import Site, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_client") as running:
        yield running


class Failing:
    """`principal` of an endpoint that fails, as one does whose sessions cannot be read.

    status: of its errors.
    times: number of its next errors; beyond them it returns a principal.
    asked: number of calls.
    failures: number of its errors.
    """

    def __init__(self, *, status: int, times: float = math.inf) -> None:
        self._status = status
        self.asked = self.failures = 0
        self.fail(times=times)

    def fail(self, *, times: float) -> None:
        """Fail so many times from now on."""
        self._last = self.failures + times

    def __call__(self, request: Request) -> Principal:
        self.asked += 1
        if self.failures < self._last:
            self.failures += 1
            raise HTTPException(self._status, "no sessions")
        return Principal(user="ann")


Rows = list[dict[str, Any]]


@contextmanager
def redefined_view(database: Any) -> Iterator[tuple[Rows, Callable[[], None], Rows]]:
    """A view `shown` of the collection `items`: its rows, a function that gives it another definition, and its rows then."""
    low, high = {"_id": 1, "n": 1}, {"_id": 2, "n": 9}
    database.items.insert_many([low, high])
    database.create_collection("shown", viewOn="items", pipeline=[{"$match": {"n": {"$lt": 5}}}])

    def redefine() -> None:
        database.command("collMod", "shown", viewOn="items", pipeline=[{"$match": {"n": {"$gt": 5}}}])

    yield [low], redefine, [high]


async def event(stream: EventStream) -> LiveEvent:
    item = await anext(stream)
    assert isinstance(item, LiveEvent), item
    return item


async def test_a_result_stream_gives_whole_results_with_bson_types(site: Site, items: Any) -> None:
    """A2: the whole result each time; only deltas cross the wire."""
    key = ObjectId()
    items.insert_one({"_id": key, "n": 1, "same": "x" * 100})
    async with LiveClient(site.url) as live, await live.result_stream("items", {"n": {"$lt": 5}}) as stream:
        assert await anext(stream) == [{"_id": key, "n": 1, "same": "x" * 100}]
        items.update_one({"_id": key}, {"$set": {"n": 2}})
        assert (await anext(stream))[0]["n"] == 2
        items.update_one({"_id": key}, {"$set": {"n": 9}})
        assert await anext(stream) == []
        assert stream.latest() == []


async def test_an_event_stream_counts_what_comes_and_goes(site: Site, items: Any) -> None:
    """The count of the thesis: `eventStream({matchTypes: ['add', 'remove']})` and a scan."""
    items.insert_many([{"_id": number, "tag": "tea"} for number in range(3)])
    async with LiveClient(site.url) as live:
        stream = await live.event_stream("items", {"tag": "tea"}, match_types=["add", "remove"])
        count = 0
        for _ in range(3):
            first = await event(stream)
            count += {"add": 1, "remove": -1}[first.match_type]
            assert (first.initial, first.operation) == (True, "none")
        items.update_one({"_id": 0}, {"$set": {"other": 1}})  # a change: no event
        items.insert_one({"_id": 3, "tag": "tea"})
        items.delete_one({"_id": 1})
        items.update_one({"_id": 2}, {"$set": {"tag": "milk"}})
        for _ in range(3):
            count += {"add": 1, "remove": -1}[(await event(stream)).match_type]
        assert count == items.count_documents({"tag": "tea"})


async def test_two_streams_are_joined_in_the_client(site: Site, items: Any) -> None:
    """A client-side join of two result streams follows both."""
    items.insert_many([{"_id": "a", "kind": "order", "of": "c"}, {"_id": "c", "kind": "customer", "name": "Ann"}])
    async with LiveClient(site.url) as live:
        orders = await live.result_stream("items", {"kind": "order"})
        customers = await live.result_stream("items", {"kind": "customer"})

        def joined() -> list[tuple[str, str]]:
            names = {customer["_id"]: customer["name"] for customer in customers.latest() or ()}
            return [(order["_id"], names[order["of"]]) for order in orders.latest() or () if order["of"] in names]

        await eventually(lambda: joined() == [("a", "Ann")])
        items.update_one({"_id": "c"}, {"$set": {"name": "Bob"}})
        await eventually(lambda: joined() == [("a", "Bob")])


async def test_a_refused_query_ends_the_stream_with_the_reason(site: Site, items: Any) -> None:
    """A3: an error ends its stream and no other one."""
    async with LiveClient(site.url) as live:
        good = await live.result_stream("items")
        with pytest.raises(SubscriptionError, match=r"\$where"):
            await anext(await live.result_stream("items", {"$where": "1"}))
        assert await anext(good) == []


async def test_streams_subscribe_again_when_their_view_has_another_definition(mongo_url: str, prefix: str) -> None:
    """The subscriptions end with 503: results go on, and a gap stands in the events."""
    with live_site(mongo_url, prefix) as site, redefined_view(site.database) as (before, redefine, after):
        async with LiveClient(site.url) as live:
            results, events = await live.result_stream("shown"), await live.event_stream("shown")
            assert await anext(results) == before
            assert (await event(events)).document == before[0]
            await asyncio.to_thread(redefine)
            assert await anext(results) == after
            gap = await anext(events)
            assert isinstance(gap, LiveGap), gap
            assert gap.documents == after
            site.database.items.insert_one({"_id": 3, "n": 8})
            assert (await event(events)).document == {"_id": 3, "n": 8}
            assert await anext(results) == [*after, {"_id": 3, "n": 8}]


async def test_a_stream_that_the_server_cannot_serve_yet_subscribes_again(mongo_url: str, prefix: str) -> None:
    """503 as the first answer: the stream waits, however often. A stream that leaves meanwhile subscribes no more."""
    who = Failing(status=503, times=4)
    with live_site(mongo_url, prefix, principal=who) as site:
        async with LiveClient(site.url) as live:
            leaving = asyncio.create_task(live.result_stream("items", {"n": 1}))
            await eventually(lambda: who.asked == 1)
            leaving.cancel()
            stream = await live.result_stream("items")
            assert await anext(stream) == []
            assert who.asked == 5
            assert list(live._streams) == [stream.id]


@pytest.mark.parametrize(("failures", "longest_s"), [(1, 0.2), (2, 0.4), (5, 3.2), (7, 10.0), (10_000, 10.0)])
def test_pauses_grow_and_are_spread(failures: int, longest_s: float) -> None:
    """Each failure doubles the longest pause, up to 10 s."""
    pauses = [spread_pause_s(failures) for _ in range(200)]
    assert min(pauses) < longest_s / 2 < max(pauses) <= longest_s


async def test_pauses_of_a_stream_grow_until_the_server_serves_it() -> None:
    """Errors in a row have growing pauses. A result begins the row anew."""

    async def ended(stream: Any) -> None: ...

    error = {"type": "error", "error": {"message": "later", "status": 503, "reason": "Service Unavailable"}}
    streams = [ResultStream({}, reconnects=-1, ended=ended) for _ in range(200)]

    def longest_s() -> float:
        pauses = [stream.pause_before_retry_s(error) for stream in streams]
        return max(pause for pause in pauses if pause is not None)

    assert longest_s() <= 0.2
    assert 0.2 < longest_s() <= 0.4 < longest_s()
    for stream in streams:
        stream.take({"type": "result", "data": []})
    assert longest_s() <= 0.2


@pytest.mark.parametrize("reconnects", [0, 2])
async def test_errors_that_may_pass_count_as_lost_connections(mongo_url: str, prefix: str, reconnects: int) -> None:
    """With `reconnects` used up, the error ends the stream."""
    who = Failing(status=503)
    with live_site(mongo_url, prefix, principal=who) as site:
        async with LiveClient(site.url) as live:
            with pytest.raises(SubscriptionError, match="no sessions") as error:
                await live.result_stream("items", reconnects=reconnects)
            assert error.value.retryable
            assert who.asked == 1 + reconnects


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 429])
async def test_other_errors_end_the_stream_at_once(mongo_url: str, prefix: str, status: int) -> None:
    """The server would refuse the subscription again."""
    who = Failing(status=status)
    with live_site(mongo_url, prefix, principal=who) as site:
        async with LiveClient(site.url) as live:
            with pytest.raises(SubscriptionError, match="no sessions") as error:
                await live.result_stream("items")
            assert not error.value.retryable
            assert who.asked == 1


async def test_too_many_subscriptions_are_final(mongo_url: str, prefix: str) -> None:
    """429 names the limit of the socket: the same subscription would be refused until another one ends."""
    with live_site(mongo_url, prefix, limits=SocketLimits(subscriptions=1)) as site, anyio.fail_after(20):
        async with LiveClient(site.url) as live:
            await live.result_stream("items")
            with pytest.raises(SubscriptionError, match="Too many active subscriptions"):
                await live.result_stream("items")


async def test_a_wrong_address_is_an_error_and_no_endless_attempt(site: Site) -> None:
    """403 and 404 are final; a URL that is no WebSocket's is refused at once."""
    async with LiveClient(site.url + "/nowhere") as live:
        with pytest.raises(SubscriptionError, match="refuses"):
            await anext(await live.result_stream("items"))
    with pytest.raises(ConfigurationError, match="wss://"):
        LiveClient("https://shop.example")
    with pytest.raises(ConfigurationError, match="not open"):
        await LiveClient(site.url).result_stream("items")


async def test_a_stream_without_reconnects_ends_with_its_socket(mongo_url: str, prefix: str) -> None:
    """A5: `reconnects=0`."""
    with live_site(mongo_url, prefix) as site:
        client = LiveClient(site.url)
        await client.__aenter__()
        stream = await client.result_stream("items", reconnects=0)
        await anext(stream)
        assert client._socket is not None
        client._socket.transport.abort()
        with pytest.raises(SubscriptionError, match="reconnect"):
            await anext(stream)
        await client.__aexit__(None, None, None)


def test_a_program_without_an_event_loop_iterates_too(mongo_url: str, prefix: str) -> None:
    """The synchronous client: the same streams as plain iterators."""
    with live_site(mongo_url, prefix) as site, SyncLiveClient(site.url) as live:
        site.database.items.insert_one({"_id": 1})
        with live.result_stream("items") as results, live.event_stream("items", initial=False) as events:
            assert next(results) == [{"_id": 1}]
            site.database.items.insert_one({"_id": 2})
            assert next(results) == [{"_id": 1}, {"_id": 2}]
            added = next(events)
            assert isinstance(added, LiveEvent)
            assert (added.match_type, added.document) == ("add", {"_id": 2})


# The oracle


class Followers:
    """Streams of many shapes over one client, judged by the same queries on the database."""

    SHAPES: tuple[dict[str, Any], ...] = (
        {},
        {"filter": {"n": {"$lt": 50}}},
        {"filter": {"tag": "a"}, "sort": [("n", 1)]},
        {"sort": [("n", -1)], "limit": 3},
        {"sort": [("tag", 1), ("n", 1)], "skip": 2, "limit": 4},
        {"filter": {"n": {"$gte": 20}}, "sort": [("n", 1)], "limit": 1},
    )

    def __init__(self, results: list[ResultStream], events: list[EventStream]) -> None:
        self.results = results
        self.events = events
        self.shown: list[list[Any]] = [[] for _ in events]
        self.gaps = 0
        self.tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def of(cls, live: LiveClient) -> Followers:
        results = [await live.result_stream("items", **shape) for shape in cls.SHAPES]
        events = [await live.event_stream("items", **shape) for shape in cls.SHAPES]
        followers = cls(results, events)
        followers.tasks = [asyncio.create_task(followers.read(place)) for place in range(len(events))]
        return followers

    async def read(self, place: int) -> None:
        """Keep a list of one's own by the events alone."""
        rows = self.shown[place]
        async for item in self.events[place]:
            if isinstance(item, LiveGap):
                assert item.documents is not None, item
                self.gaps += 1
                rows[:] = item.documents
                continue
            known = [row["_id"] for row in rows]
            key = item.document["_id"]
            assert (key in known) is (item.match_type != "add"), (item, known)
            if item.match_type != "add":
                assert item.previous_index in (None, known.index(key))
                if item.match_type == "remove" or item.index is not None:
                    del rows[known.index(key)]
                else:
                    rows[known.index(key)] = item.document
                    continue
            if item.match_type != "remove":
                rows.insert(len(rows) if item.index is None else item.index, item.document)

    def agree(self, items: Any) -> bool:
        """Whether every stream shows what the database has."""
        for place, shape in enumerate(self.SHAPES):
            sort = [*shape.get("sort", []), ("_id", 1)]
            cursor = (
                items.find(shape.get("filter", {})).sort(sort).skip(shape.get("skip", 0)).limit(shape.get("limit", 0))
            )
            wanted = list(cursor)
            for rows in (self.results[place].latest(), self.shown[place]):
                got = rows if "sort" in shape else sorted(rows or [], key=lambda row: row["_id"])
                if got != (wanted if "sort" in shape else sorted(wanted, key=lambda row: row["_id"])):
                    return False
        return True


def write(items: Any, chance: random.Random) -> None:
    """One random write: inserts and moves at the boundaries of the windows are frequent."""
    key, n, tag = chance.randrange(12), chance.randrange(100), chance.choice("ab")
    kind = chance.randrange(5)
    if kind == 0:
        items.delete_one({"_id": key})
    elif kind == 1:
        items.replace_one({"_id": key}, {"n": n, "tag": tag}, upsert=True)
    elif kind == 2:
        items.update_one({"_id": key}, {"$inc": {"n": chance.choice((-1, 1))}})
    else:
        items.update_one({"_id": key}, {"$set": {"n": n, "tag": tag}}, upsert=True)


@pytest.mark.parametrize(("seed", "binary"), [(0, False), (1, False), (2, False), (3, True), (4, True)])
async def test_streams_end_at_the_database_s_result_after_any_lost_sockets(
    site: Site, items: Any, seed: int, binary: bool
) -> None:
    """Random writes and lost sockets: events alone, and results,
    always lead to the result of the query on the database.
    """
    chance = random.Random(seed)
    async with LiveClient(site.url, ping_s=0.5, binary=binary) as live:
        followers = await Followers.of(live)
        for _ in range(12):
            for _ in range(chance.randrange(1, 25)):
                await asyncio.to_thread(write, items, chance)
            if chance.random() < 0.5 and live._socket is not None:
                live._socket.transport.abort()
            elif chance.random() < 0.5:
                await eventually(lambda: followers.agree(items))
        await eventually(lambda: followers.agree(items))
        assert not any(task.done() for task in followers.tasks)
        assert followers.gaps == 0  # one process that goes on: everything that was missed is resumed
        for task in followers.tasks:
            task.cancel()


async def test_with_a_history_that_is_too_short_a_gap_stands_in_the_events(mongo_url: str, prefix: str) -> None:
    """A gap is an event, and the result behind it is right."""
    with live_site(mongo_url, prefix, limits=SocketLimits(resume_events=2)) as site:
        async with LiveClient(site.url) as live:
            stream = await live.event_stream("items", initial=True)
            site.database.items.insert_one({"_id": 0})
            assert (await event(stream)).document == {"_id": 0}
            assert live._socket is not None
            live._socket.transport.abort()
            site.database.items.insert_many([{"_id": number} for number in range(1, 6)])
            item = await anext(stream)
            assert isinstance(item, LiveGap)
            assert sorted(document["_id"] for document in item.documents or ()) == [0, 1, 2, 3, 4, 5]
