"""Cuts in the clients: the streams of one client show the same state of the database, whichever of them is looked at."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from quaestor.client.live.cuts import ClientCuts
from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.streams import EventStream, LiveEvent, LiveGap, LiveStream, ResultStream
from quaestor.client.live.sync_live_client import SyncLiveClient
from tests.live.socket_site import Site, live_site
from tests.live.test_js_live_client import program
from tests.live.transfers import ACCOUNTS, SUM, amounts_in, open_accounts, transfers
from tests.support import eventually

pytestmark = pytest.mark.anyio
SHOWN = 40
"""Results that a test looks at, at least."""


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "client_cuts") as running:
        yield running


async def grows(number: Callable[[], int]) -> None:
    """Wait until a number has grown by `SHOWN`."""
    before = number()
    await eventually(lambda: number() >= before + SHOWN)


class Sums:
    """Sums of both accounts, as two streams of one client show them."""

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self.seen: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def of_results(cls, live: LiveClient) -> Sums:
        sums = cls()
        streams = {name: await live.result_stream("accounts", {"account": name}) for name in ACCOUNTS}

        async def read(stream: ResultStream) -> None:
            async for _ in stream:
                for name, other in streams.items():
                    if rows := other.latest():
                        sums.amounts[name] = rows[0]["amount"]
                sums.add()

        sums.tasks = [asyncio.create_task(read(stream)) for stream in streams.values()]
        return sums

    @classmethod
    async def of_events(cls, live: LiveClient) -> Sums:
        sums = cls()

        async def read(name: str, stream: EventStream) -> None:
            async for item in stream:
                rows = item.documents or [] if isinstance(item, LiveGap) else [item.document]
                sums.amounts[name] = rows[0]["amount"]
                # The reader of the other account wakes in the same turn.
                asyncio.get_running_loop().call_soon(sums.add)

        for name in ACCOUNTS:
            stream = await live.event_stream("accounts", {"account": name})
            sums.tasks.append(asyncio.create_task(read(name, stream)))
        return sums

    def add(self) -> None:
        if len(self.amounts) == len(ACCOUNTS):
            self.seen.append(sum(self.amounts.values()))

    def number(self) -> int:
        return len(self.seen)

    def agree(self, accounts: Any) -> bool:
        """Whether both streams show what the database has."""
        assert not any(task.done() for task in self.tasks)
        return [self.amounts.get(name) for name in ACCOUNTS] == amounts_in(accounts)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("binary", [False, True])
async def test_streams_of_a_client_show_the_same_state(site: Site, accounts: Any, binary: bool) -> None:
    """Results and events, through lost sockets: at each moment the amounts of both accounts are those of one state."""
    open_accounts(accounts)
    async with LiveClient(site.url, binary=binary) as live:
        await live.cut()
        both = [await Sums.of_results(live), await Sums.of_events(live)]
        with transfers(accounts):
            for round_ in range(4):
                for sums in both:
                    await grows(sums.number)
                if round_ < 3:
                    await asyncio.to_thread(site.drop_sockets)
        await eventually(lambda: all(sums.agree(accounts) for sums in both))
        for sums in both:
            assert set(sums.seen) == {SUM}
            await sums.close()


async def test_streams_show_everything_whenever_cuts_begin_and_end(site: Site, accounts: Any) -> None:
    """Cuts are switched while changes are on their way: each change is shown, and after the end each at once."""
    open_accounts(accounts)
    chance = random.Random(5)
    async with LiveClient(site.url) as live:
        streams = [await live.result_stream("accounts", {"account": name}) for name in ACCOUNTS]

        def agree() -> bool:
            return [(stream.latest() or [{}])[0].get("amount") for stream in streams] == amounts_in(accounts)

        for round_ in range(24):
            accounts.update_one({"_id": "a"}, {"$inc": {"amount": 1}})
            await asyncio.sleep(chance.uniform(0, 0.03))
            await live.cut(on=round_ % 2 == 0)
            await eventually(agree)


def test_streams_of_a_program_without_an_event_loop_show_the_same_state(site: Site, accounts: Any) -> None:
    """The synchronous client with cuts; without them each change is shown again."""
    open_accounts(accounts)
    with SyncLiveClient(site.url) as live:
        live.cut()
        streams = [live.result_stream("accounts", {"account": name}) for name in ACCOUNTS]

        def shown() -> list[Any]:
            return [stream._stream.latest() for stream in streams]  # type: ignore[attr-defined]

        portal = live._opened()
        with transfers(accounts):
            for _ in range(SHOWN):
                next(streams[0])
                rows = portal.call(shown)
                if None not in rows:
                    assert sum(row["amount"] for (row,) in rows) == SUM
        live.cut(on=False)
        accounts.update_one({"_id": "b"}, {"$set": {"amount": -1}})
        for rows in streams[1]:
            if rows[0]["amount"] == -1:
                break


async def test_streams_of_a_page_show_the_same_state(site: Site, accounts: Any) -> None:
    """The JavaScript client: `latest()` of both accounts in each callback, and the events behind each turn."""
    open_accounts(accounts)
    async with program(site, "cut_live.test.ts", queries={"rows": {}}, arguments=["accounts", str(SUM)]) as running:
        shown = running.shown

        def agrees() -> bool:
            return shown.get("rows") == shown.get("events") == amounts_in(accounts)

        with transfers(accounts):
            for round_ in range(3):
                await grows(lambda: shown.get("results", 0))
                if round_ < 2:
                    await asyncio.to_thread(site.drop_sockets)
        await eventually(agrees)
        assert "wrong" not in shown
        for line in ("off", "on"):
            running.say(line)
            await eventually(partial(shown.__contains__, line))
            accounts.update_one({"_id": "a"}, {"$inc": {"amount": 1}})
            await eventually(agrees)
        assert "error" not in shown


# By hand


class Streams:
    """Two result streams of one client, and the cuts of the client."""

    def __init__(self) -> None:
        async def ended(stream: LiveStream[Any]) -> None: ...

        self.cuts = ClientCuts()
        self.first, self.second = (ResultStream({}, reconnects=-1, ended=ended) for _ in range(2))
        self.events = EventStream({}, waiting=10, reconnects=-1, ended=ended)

    def begin(self, stream: LiveStream[Any], n: int) -> None:
        self.cuts.take(stream, {"type": "result", "data": [{"_id": 1, "n": n}]})

    def change(self, stream: LiveStream[Any], n: int, *, key: int = 1) -> bool:
        match = {"type": "match", "matchType": "change", "operation": "update", "data": {"_id": key, "n": n}}
        return self.cuts.take(stream, match)

    def shown(self) -> list[int | None]:
        rows = [stream.latest() for stream in (self.first, self.second)]
        return [row[0]["n"] if row else None for row in rows]


@contextmanager
def begun() -> Iterator[Streams]:
    """Streams that show 1, with cuts."""
    streams = Streams()
    streams.cuts.reopen(on=True)
    streams.begin(streams.first, 1)
    streams.begin(streams.second, 1)
    assert streams.shown() == [None, None]
    streams.cuts.cut()
    assert streams.shown() == [1, 1]
    yield streams


def test_changes_wait_for_the_cut_or_the_end_of_cuts() -> None:
    with begun() as streams:
        streams.change(streams.first, 2)
        assert streams.shown() == [1, 1]
        streams.change(streams.second, 2)
        streams.cuts.cut()
        assert streams.shown() == [2, 2]
        streams.change(streams.first, 3)
        streams.cuts.turn(on=False)
        assert streams.shown() == [3, 2]
        streams.change(streams.second, 3)
        assert streams.shown() == [3, 3]


def test_events_of_a_cut_come_together() -> None:
    with begun() as streams:
        streams.begin(streams.events, 1)
        streams.change(streams.events, 2)
        assert streams.events._next() is None
        streams.cuts.cut()
        items = [streams.events._next(), streams.events._next(), streams.events._next()]
        assert [item.document["n"] for item in items if isinstance(item, LiveEvent)] == [1, 2]


@pytest.mark.parametrize("way", ["resumed", "refreshed", "left"])
def test_a_stream_without_its_new_answer_holds_the_cut_up(way: str) -> None:
    """After a lost socket the first cut comes when the server has answered one subscription of two."""
    with begun() as streams:
        streams.cuts.reopen(on=True)
        streams.cuts.ask(streams.first)
        streams.cuts.ask(streams.second)
        streams.cuts.take(streams.first, {"type": "resumed", "missed": 1})
        streams.change(streams.first, 2)
        streams.cuts.cut()
        assert streams.shown() == [1, 1]
        if way == "left":
            streams.cuts.leave(streams.second)
            assert streams.shown() == [2, 1]
            return
        streams.cuts.take(streams.second, {"type": way})
        if way == "resumed":
            streams.change(streams.second, 2)
        else:
            streams.cuts.cut()
            assert streams.shown() == [1, 1]
            streams.begin(streams.second, 2)
        streams.cuts.cut()
        assert streams.shown() == [2, 2]


def test_a_stream_that_never_had_a_result_holds_nothing_up() -> None:
    with begun() as streams:
        streams.cuts.ask(streams.events)
        streams.change(streams.first, 2)
        streams.cuts.cut()
        assert streams.shown() == [2, 1]


@pytest.mark.parametrize("on", [True, False])
def test_nothing_of_a_broken_result_is_shown(on: bool) -> None:
    """A change that does not fit the rows: the rows that were shown stay until the new result."""
    with begun() as streams:
        if not on:
            streams.cuts.turn(on=False)
        assert streams.change(streams.first, 7, key=99)
        streams.cuts.cut()
        streams.cuts.turn(on=on)
        assert streams.shown() == [1, 1]
        streams.change(streams.second, 2)
        streams.cuts.cut()
        assert streams.shown() == [1, 1 if on else 2]
        streams.begin(streams.first, 2)
        streams.cuts.cut()
        assert streams.shown() == [2, 2]
