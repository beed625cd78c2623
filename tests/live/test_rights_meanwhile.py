"""Rights that change while something else is under way: a subscription, another look at the rights, a move."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest
from starlette.requests import Request

from quaestor.live.websocket import endpoint
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.queries import WantedResult
from quaestor.rest.access import ALL, Access, CollectionAccess, Principal, Rule
from tests.live.socket_site import Json, Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
ACCESS = Access(
    collections={"books": CollectionAccess(read=Rule.of(allow=["role:clerk"]))}, otherwise=CollectionAccess(read=ALL)
)


class Members:
    """Application's own knowledge of roles, by user: the token is the user's name.

    gates: answers about these users wait. asked: users that were asked for.
    """

    def __init__(self) -> None:
        self.roles: dict[str, set[str]] = {}
        self.gates: dict[str, threading.Event] = {}
        self.asked: list[str] = []

    async def present(self, request: Request) -> Principal:
        user = request.headers.get("authorization", "").removeprefix("Bearer ")
        roles = frozenset(self.roles.get(user, ()))
        self.asked.append(user)
        while (gate := self.gates.get(user)) is not None and not gate.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)
        return Principal(user=user, roles=roles)


@pytest.fixture
def members() -> Members:
    return Members()


@pytest.fixture
def site(mongo_url: str, prefix: str, members: Members) -> Iterator[Site]:
    with live_site(mongo_url, prefix, principal=members.present, access=ACCESS) as running:
        yield running


class Gate:
    """Gate for subscriptions that look for their group.

    open: lets them go on. reached: whether any has arrived.
    """

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()


@contextmanager
def gated_groups(site: Site) -> Iterator[Gate]:
    """Subscriptions wait for their group until the gate is opened."""
    context = site.live._endpoint._context
    assert context is not None
    groups, find, gate = context.groups, context.groups.of, Gate()

    async def of(wanted: WantedResult) -> QueryGroup:
        group = await find(wanted)
        gate.reached.set()
        while not gate.open.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)
        return group

    groups.of = of  # type: ignore[method-assign]
    try:
        yield gate
    finally:
        gate.open.set()
        groups.of = find  # type: ignore[method-assign]


async def recheck(site: Site) -> None:
    await asyncio.to_thread(site.recheck)


async def test_rights_that_end_during_a_subscription_end_it(site: Site, members: Members) -> None:
    members.roles["ann"] = {"clerk"}
    async with client_of(site) as client:
        await client.subscribe("open", token="ann")
        with gated_groups(site) as gate:
            await client.say(type="subscribe", id="books", bucket="books")
            await eventually(gate.reached.is_set)
            members.roles["ann"] = set()
            await recheck(site)
            gate.open.set()
            while (message := await client.hear())["id"] != "books":
                pass
            assert message["error"]["status"] == 404


async def test_the_newest_token_counts_whatever_is_answered_last(site: Site, members: Members) -> None:
    """The answer about the old token comes after the new one was sent."""
    members.roles["boss"] = {"clerk"}
    async with client_of(site) as client:
        await client.subscribe("books", bucket="books", token="boss")
        members.gates["boss"] = threading.Event()
        before = len(members.asked)
        looking = asyncio.create_task(recheck(site))
        await eventually(lambda: len(members.asked) > before)
        await client.say(type="token", token="user")
        await client.say(type="ping", id="p")
        members.gates["boss"].set()
        await looking
        heard: dict[str | None, Json] = {}
        while {"books", "p"} - heard.keys():
            message = await client.hear()
            heard[message["id"]] = message
        assert heard["books"]["error"]["status"] == 404
        await recheck(site)
        assert (await client.subscribe("again", bucket="books"))["error"]["status"] == 404


async def test_a_slow_answer_about_one_client_does_not_delay_the_others(site: Site, members: Members) -> None:
    members.roles |= {"slow": {"clerk"}, "ann": {"clerk"}}
    async with client_of(site) as slow, AsyncExitStack() as stack:
        await slow.subscribe(bucket="books", token="slow")
        others = [await stack.enter_async_context(client_of(site)) for _ in range(6)]
        for other in others:
            await other.subscribe(bucket="books", token="ann")
        members.gates["slow"] = threading.Event()
        members.roles |= {"slow": set(), "ann": set()}
        looking = asyncio.create_task(recheck(site))
        for other in others:
            assert (await other.hear())["error"]["status"] == 404
        members.gates["slow"].set()
        assert (await slow.hear())["error"]["status"] == 404
        await looking


async def test_the_user_whose_record_was_written_comes_first(
    mongo_url: str, prefix: str, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application answers about nobody else."""
    monkeypatch.setattr(endpoint, "_JUDGED_AT_ONCE", 1)
    others = [f"user{number}" for number in range(6)]
    members.roles |= {user: {"clerk"} for user in ("ann", *others)}
    with live_site(mongo_url, prefix, principal=members.present, access=ACCESS, rights_in=["members"]) as site:
        site.database.members.insert_one({"_id": "ann"})
        async with AsyncExitStack() as stack:
            clients = {user: await stack.enter_async_context(client_of(site)) for user in ("ann", *others)}
            for user, client in clients.items():
                await client.subscribe(bucket="books", token=user)
            await eventually(lambda: site.quaestor.subscriptions.queries >= 2)  # the watch is there
            members.gates |= {user: threading.Event() for user in others}
            members.roles["ann"] = set()
            site.database.members.update_one({"_id": "ann"}, {"$set": {"roles": []}})
            assert (await clients["ann"].hear())["error"]["status"] == 404
            for gate in members.gates.values():
                gate.set()


async def test_nothing_is_shown_by_the_old_rights_while_a_new_result_is_prepared(
    site: Site, members: Members, items: Any
) -> None:
    """A record that the client may not read any more changes while the new group is not there yet."""
    items.insert_one({"_id": 1, "_acl": {"read": {"allow": ["role:clerk"]}}})
    members.roles["ann"] = {"clerk"}
    async with client_of(site) as client, client_of(site) as other:
        assert [record["_id"] for record in (await client.subscribe(token="ann"))["data"]] == [1]
        members.roles["bob"] = {"clerk"}
        await other.subscribe(token="bob")
        with gated_groups(site) as gate:
            members.roles["ann"] = set()
            await recheck(site)
            items.update_one({"_id": 1}, {"$set": {"secret": "s"}})
            assert await other.match() == ("change", "update", None, 1)
            gate.open.set()
            assert (await client.hear())["type"] == "refreshed"
            assert (await client.hear())["data"] == []


async def test_a_subscription_that_was_ended_during_its_move_stays_ended(
    site: Site, members: Members, items: Any
) -> None:
    members.roles["ann"] = {"clerk"}
    async with client_of(site) as client:
        await client.subscribe(token="ann")
        with gated_groups(site) as gate:
            members.roles["ann"] = set()
            await recheck(site)
            await client.say(type="unsubscribe", id="a")
            await client.say(type="ping", id="p")
            assert (await client.hear())["type"] == "pong"
            gate.open.set()
            await client.say(type="ping", id="q")
            assert (await client.hear())["type"] == "pong"
        items.insert_one({"_id": 1})
        assert (await client.subscribe("b", bucket="others"))["id"] == "b"
        assert site.quaestor.telemetry.families.registry.get_sample_value("quaestor_live_subscriptions") == 1
