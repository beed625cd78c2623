"""Live queries over a real socket: the protocol of the thesis (appendix D), its semantics by example, and its limits."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bson import ObjectId
from fastapi import HTTPException
from starlette.requests import Request
from websockets.exceptions import ConnectionClosed, InvalidStatus

from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError
from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.principals import Grant
from quaestor.rest.access import ALL, Access, CollectionAccess, Principal, Rule
from tests.live.socket_site import Client, Json, Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_queries") as running:
        yield running


async def test_the_first_message_is_the_result_and_matches_follow(site: Site, items: Any) -> None:
    """P1 to P4: subscribe, result with its data, match with type, operation, index and record."""
    items.insert_many([{"_id": 1, "price": 10}, {"_id": 2, "price": 20}])
    async with client_of(site) as client:
        result = await client.subscribe(query={"price": {"$lt": 100}}, sort={"price": 1}, limit=10)
        assert (result["id"], result["type"]) == ("a", "result")
        assert result["data"] == [{"_id": 1, "price": 10}, {"_id": 2, "price": 20}]
        items.insert_one({"_id": 3, "price": 15})
        message = await client.hear()
        assert {name: message[name] for name in ("id", "type", "matchType", "operation", "index", "data")} == {
            "id": "a", "type": "match", "matchType": "add", "operation": "insert", "index": 1,
            "data": {"_id": 3, "price": 15},
        }  # fmt: skip


async def test_without_initial_the_result_comes_without_data(site: Site, items: Any) -> None:
    """P3: `data` if and only if `initial`; the message tells that the subscription is active."""
    items.insert_one({"_id": 1})
    async with client_of(site) as client:
        result = await client.subscribe(initial=False)
        assert result["type"] == "result"
        assert "data" not in result
        items.insert_one({"_id": 2})
        assert await client.match() == ("add", "insert", None, 2)


async def test_the_semantics_of_the_thesis_by_example(site: Site, items: Any) -> None:
    """Title matches "My Task", ascending by title, limit 3 (section 5.4): the rows of the specification, in their order."""
    titles = {name: f"My Task {name}" for name in ("0", "1", "1b", "2", "3")}
    items.insert_one({"_id": "task1", "title": titles["1"]})
    async with client_of(site) as client:
        result = await client.subscribe(query={"title": {"$regex": "^My Task"}}, sort={"title": 1}, limit=3)
        assert [record["_id"] for record in result["data"]] == ["task1"]
        items.insert_one({"_id": "task2", "title": titles["2"]})
        assert await client.match() == ("add", "insert", 1, "task2")
        items.insert_one({"_id": "task3", "title": titles["3"]})
        assert await client.match() == ("add", "insert", 2, "task3")
        items.update_one({"_id": "task3"}, {"$set": {"title": titles["1b"]}})
        assert await client.match() == ("changeIndex", "update", 1, "task3")
        items.insert_one({"_id": "task0", "title": titles["0"]})
        assert await client.match() == ("remove", "none", None, "task2")
        assert await client.match() == ("add", "insert", 0, "task0")
        items.update_one({"_id": "task3"}, {"$set": {"title": titles["3"]}})
        gone = await client.hear()
        assert (gone["matchType"], gone["operation"], gone["previousIndex"]) == ("remove", "update", 2)
        assert gone["data"] == {"_id": "task3", "title": titles["3"]}
        assert await client.match() == ("add", "none", 2, "task2")
        items.delete_one({"_id": "task3"})  # beyond the limit: no event
        items.delete_one({"_id": "task0"})
        assert await client.match() == ("remove", "delete", None, "task0")


async def test_match_types_and_operations_restrict_events(site: Site, items: Any) -> None:
    """A7: `match` stands for add, change and changeIndex and is sent under this name; operations are named as the write was."""
    items.insert_one({"_id": 1, "n": 1})
    async with client_of(site) as client:
        await client.subscribe("matches", matchTypes=["match"], initial=False)
        await client.subscribe("deletes", operations=["delete"], initial=False)
        items.update_one({"_id": 1}, {"$set": {"n": 2}})
        message = await client.hear()
        assert (message["id"], message["matchType"], message["data"]["n"]) == ("matches", "match", 2)
        items.delete_one({"_id": 1})
        message = await client.hear()
        assert (message["id"], message["matchType"], message["operation"]) == ("deletes", "remove", "delete")


@pytest.mark.parametrize("images", [False, True], ids=["plain", "with images"])
async def test_the_first_insert_into_a_new_collection_is_an_insert(site: Site, images: bool) -> None:
    """The collection comes into being, so the result is read anew; its event has the operation of the write."""
    for number in range(5):
        name = f"new_{images}_{number}"
        async with client_of(site) as client:
            await client.subscribe(bucket=name, operations=["insert"])
            if images:
                site.database.create_collection(name, changeStreamPreAndPostImages={"enabled": True})
            site.database[name].insert_one({"_id": number})
            message = await client.hear()
            while message["type"] in ("delivery", "resynchronized"):
                message = await client.hear()
            assert message["type"] == "match"
            assert (message["matchType"], message["operation"]) == ("add", "insert")


async def test_deltas_and_before_images_on_request(site: Site, items: Any) -> None:
    """P7: `changes` in place of the record, and `before`."""
    items.insert_one({"_id": 1, "n": 1, "old": True, "same": [1]})
    async with client_of(site) as client:
        await client.subscribe("delta", delta=True)
        await client.subscribe("before", beforeImages=True)
        items.update_one({"_id": 1}, {"$set": {"n": 2, "new": None}, "$unset": {"old": 1}})
        messages = {message["id"]: message for message in [await client.hear(), await client.hear()]}
        assert messages["delta"]["changes"] == {"updated": {"n": 2, "new": None}, "removed": ["old"]}
        assert (messages["delta"]["key"], "data" in messages["delta"]) == (1, False)
        assert messages["before"]["before"] == {"_id": 1, "n": 1, "old": True, "same": [1]}
        assert messages["before"]["data"]["n"] == 2


async def test_records_have_the_form_of_the_subprotocol(site: Site, items: Any) -> None:
    """P6: Extended JSON by default, the thesis' form by `orestes.v1`."""
    key = ObjectId("5f5f5f5f5f5f5f5f5f5f5f5f")
    items.insert_one({"_id": key, "name": "Tim"})
    async with client_of(site) as client:
        assert (await client.subscribe())["data"] == [{"_id": {"$oid": str(key)}, "name": "Tim"}]
    async with client_of(site, subprotocols=["orestes.v1"]) as client:
        assert client.connection.subprotocol == "orestes.v1"
        (record,) = (await client.subscribe())["data"]
        assert record["id"] == f"/db/items/{key}"
        assert record["name"] == "Tim"
        assert record["acl"] is None
        assert record["createdAt"] == "2020-09-14T12:17:35Z"


async def test_offset_and_limit_have_a_bound(site: Site) -> None:
    """A9: offset + limit <= 500; a larger limit is capped, an offset beyond the bound is an error."""
    site.database.many.insert_many([{"_id": number} for number in range(600)])
    async with client_of(site) as client:
        assert len((await client.subscribe("none", "many", sort={"_id": 1}))["data"]) == 500
        assert len((await client.subscribe("large", "many", offset=5, limit=500))["data"]) == 495
        assert len((await client.subscribe("inside", "many", offset=499, limit=500))["data"]) == 1
        refused = await client.subscribe("beyond", "many", offset=500)
        assert refused["error"]["status"] == 400
        assert "499" in refused["error"]["message"]


async def test_a_collection_may_have_a_bound_of_its_own(mongo_url: str, prefix: str) -> None:
    with live_site(mongo_url, prefix, limits=SocketLimits(rows_of={"few": 2})) as site:
        for name in ("few", "items"):
            site.database[name].insert_many([{"_id": number} for number in range(4)])
        async with client_of(site) as client:
            assert len((await client.subscribe("a", "few", sort={"_id": 1}, limit=3))["data"]) == 2
            assert len((await client.subscribe("b", "items", sort={"_id": 1}, limit=3))["data"]) == 3
            assert "at most 1" in (await client.subscribe("c", "few", offset=2))["error"]["message"]
    with pytest.raises(ConfigurationError, match=r"rows_of\['few'\]"):
        SocketLimits(rows_of={"few": 0})


async def test_the_order_by_distance_is_followed(site: Site) -> None:
    """The result is read again after writes. The client receives the differences, with places."""
    places = site.database.places
    places.create_index([("at", "2dsphere")])
    places.insert_many([{"_id": n, "at": {"type": "Point", "coordinates": [n, 0]}} for n in (3, 1, 2)])
    query = {"at": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}
    async with client_of(site) as client:
        result = await client.subscribe(bucket="places", query=query, limit=3)
        assert (result["delivery"], [record["_id"] for record in result["data"]]) == ("recomputed", [1, 2, 3])
        places.insert_one({"_id": 0, "at": {"type": "Point", "coordinates": [0, 0]}})
        heard = [await client.match() for _ in range(2)]
        assert sorted(heard, key=str) == [("add", "insert", 0, 0), ("remove", "none", None, 3)]


@pytest.mark.parametrize(
    ("message", "status", "text"),
    [
        ("not json", 400, "Invalid JSON"),
        ("[]", 400, "message"),
        ({"type": "subscribe", "id": "a"}, 400, "bucket"),
        ({"type": "subscribe", "id": "a b", "bucket": "items"}, 400, "id"),
        ({"type": "subscribe", "id": "a", "bucket": "items", "matchType": ["all"]}, 400, "matchType"),
        ({"type": "subscribe", "id": "a", "bucket": "items", "query": '{"$where": "1"}'}, 400, "$where"),
        ({"type": "subscribe", "id": "a", "bucket": "items", "query": '{"a": {"$gtt": 1}}'}, 400, "$gtt"),
        ({"type": "subscribe", "id": "a", "bucket": "system.users"}, 404, "nothing"),
        ({"type": "subscribe", "id": "a", "bucket": "items", "sort": '{"a": 2}'}, 400, "direction"),
        ({"type": "shout", "id": "a"}, 400, "shout"),
    ],
)
async def test_a_bad_message_is_one_clear_error_and_the_socket_goes_on(
    site: Site, items: Any, message: Any, status: int, text: str
) -> None:
    """P5: message, status and reason; other subscriptions are not disturbed."""
    async with client_of(site) as client:
        await client.subscribe("good")
        await client.connection.send(message if isinstance(message, str) else json.dumps(message))
        refused = await client.hear()
        assert refused["type"] == "error"
        assert refused["error"]["status"] == status
        assert text in refused["error"]["message"]
        items.insert_one({"_id": 1})
        assert await client.match() == ("add", "insert", None, 1)


async def test_an_ended_subscription_is_silent(site: Site, items: Any) -> None:
    """P2: after `unsubscribe` its id is free again, and other subscriptions go on."""
    async with client_of(site) as client:
        await client.subscribe("one")
        await client.subscribe("two", query={"n": 1})
        await client.say(type="unsubscribe", id="one")
        items.insert_one({"_id": 1, "n": 1})
        assert (await client.hear())["id"] == "two"
        assert (await client.subscribe("one"))["data"] == [{"_id": 1, "n": 1}]


async def test_ping_is_answered_with_how_fresh_the_results_are(site: Site, items: Any) -> None:
    """P8: silence is not a stall."""
    async with client_of(site) as client:
        await client.subscribe()

        async def fresh() -> bool:
            await client.say(type="ping", id="p")
            pong = await client.hear()
            assert (pong["type"], pong["id"]) == ("pong", "p")
            return "fresh_as_of" in pong

        await eventually(fresh)


async def test_a_client_that_pings_may_be_silent_for_the_bound_and_what_it_announced(site: Site, items: Any) -> None:
    """Hidden pages announce one minute (`within`): the socket is closed after it and the bound, not before."""
    async with client_of(site) as client:
        await client.say(type="ping", within=60_000)
        await client.hear()
        await eventually(lambda: len(site.live._endpoint._sockets) == 1)
        (socket,) = site.live._endpoint._sockets

        def look(after_s: float) -> None:
            site.loops[0].call_soon_threadsafe(lambda: socket.look(socket.heard_at_s + after_s))

        look(89)
        await client.say(type="ping", within=60_000)
        await client.hear()
        look(91)
        with pytest.raises(ConnectionClosed, match="no sign of life"):
            await client.hear()


async def test_a_client_that_comes_back_receives_what_it_missed(site: Site, items: Any) -> None:
    """P8: `resumed`, then exactly the events behind the token; nothing of the result again."""
    items.insert_one({"_id": 0})
    async with client_of(site) as client:
        token = (await client.subscribe())["offset_token"]
        items.insert_one({"_id": 1})
        token = (await client.hear())["offset_token"]
    items.insert_one({"_id": 2})
    items.delete_one({"_id": 0})
    async with client_of(site) as client:
        resumed = await client.subscribe(offset_token=token)
        assert resumed["type"] == "resumed"
        assert await client.match() == ("add", "insert", None, 2)
        assert await client.match() == ("remove", "delete", None, 0)
        items.insert_one({"_id": 3})
        assert await client.match() == ("add", "insert", None, 3)


async def test_a_token_that_is_not_known_means_the_result_anew(site: Site, items: Any) -> None:
    """P8: `refreshed` with the reason, then a new `result`: a gap is an event."""
    items.insert_one({"_id": 0})
    async with client_of(site) as client:
        for token in ("", "x", "x/1", "a/b/c/d", "x/99999999999999999999"):
            refreshed = await client.subscribe(f"t{len(token)}", offset_token=token)
            assert (refreshed["type"], bool(refreshed["reason"])) == ("refreshed", True)
            assert (await client.hear())["data"] == [{"_id": 0}]


async def test_equal_subscriptions_share_one_registration(site: Site, items: Any) -> None:
    """Subscriptions of many sockets to one query are one subscription in the grid."""
    async with client_of(site) as first, client_of(site) as second:
        await first.subscribe("a", query={"shared": 1})
        queries = site.quaestor.subscriptions.queries
        await first.subscribe("b", query={"shared": 1})
        await second.subscribe("c", query={"shared": 1})
        assert site.quaestor.subscriptions.queries == queries


# Limits


async def test_a_socket_has_a_limit_of_subscriptions(mongo_url: str, prefix: str) -> None:
    """P5: the error of the thesis, and the subscriptions before it go on."""
    with live_site(mongo_url, prefix, limits=SocketLimits(subscriptions=2)) as site:
        async with client_of(site) as client:
            await client.subscribe("one")
            await client.subscribe("two")
            refused = (await client.subscribe("three"))["error"]
            assert (refused["status"], refused["reason"]) == (429, "Too Many Requests")
            assert "only 2 allowed" in refused["message"]


async def test_pages_of_other_origins_and_too_many_sockets_are_refused(mongo_url: str, prefix: str) -> None:
    """The handshake is answered with an error before anything is subscribed to."""
    limits = SocketLimits(connections_an_address=1)
    with live_site(mongo_url, prefix, limits=limits, origins=["https://shop.example"]) as site:
        with pytest.raises(InvalidStatus) as refused:
            async with client_of(site, origin="https://evil.example"):
                pass
        assert refused.value.response.status_code == 403
        async with client_of(site, origin="https://shop.example"):
            with pytest.raises(InvalidStatus) as second:
                async with client_of(site):
                    pass
            assert second.value.response.status_code == 429


async def test_a_message_that_is_too_long_ends_the_socket(mongo_url: str, prefix: str) -> None:
    """Close code 1009; the bound is the endpoint's own."""
    with live_site(mongo_url, prefix, limits=SocketLimits(message_bytes=1_000)) as site:
        async with client_of(site) as client:
            await client.connection.send("x" * 1_001)
            with pytest.raises(ConnectionClosed) as closed:
                await client.hear()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009


async def test_a_result_without_an_order_has_a_limit(mongo_url: str, prefix: str) -> None:
    """413, with the remedy, at the beginning and when it grows."""
    with live_site(mongo_url, prefix, limits=SocketLimits(unordered_rows=2)) as site:
        site.database.items.insert_many([{"_id": 1}, {"_id": 2}])
        async with client_of(site) as client:
            await client.subscribe()
            site.database.items.insert_one({"_id": 3})
            while (message := await client.hear())["type"] == "match":
                pass
            assert message["error"]["status"] == 413
            assert (await client.subscribe("b"))["error"]["status"] == 413
            assert len((await client.subscribe("c", limit=3))["data"]) == 3


# Access control


def who(request: Request) -> Principal | Grant:
    """`Bearer ann:role,role` is ann with these roles; `Bearer refused` is refused."""
    given = request.headers.get("authorization", "")
    if not given:
        return Principal()
    name, _, roles = given.removeprefix("Bearer ").partition(":")
    if name == "refused":
        raise HTTPException(401, "no such token")
    return Principal(user=name, roles=frozenset(filter(None, roles.split(","))))


@pytest.fixture(scope="module")
def guarded(mongo_url: str) -> Iterator[Site]:
    access = Access(
        collections={"items": CollectionAccess(read=ALL), "books": CollectionAccess(read=Rule.of(allow=["role:clerk"]))}
    )
    with live_site(mongo_url, "live_guarded", access=access, principal=who) as running:
        yield running


def acl(*names: str) -> Json:
    return {"read": {"allow": list(names)}}


async def test_a_record_is_shown_to_those_that_it_allows(guarded: Site) -> None:
    """C1: rights are part of the query, so a record that is taken away from a reader leaves the result."""
    items = guarded.database.items
    items.insert_many([{"_id": 1, "_acl": acl("user:ann")}, {"_id": 2, "_acl": acl("user:bob")}, {"_id": 3}])
    async with client_of(guarded) as client:
        result = await client.subscribe(token="ann")
        assert sorted(record["_id"] for record in result["data"]) == [1, 3]
        items.update_one({"_id": 1}, {"$set": {"_acl": acl("user:bob"), "secret": "for bob"}})
        gone = await client.hear()
        assert (gone["matchType"], gone["data"]["_id"]) == ("remove", 1)
        assert "secret" not in json.dumps(gone)
        items.update_one({"_id": 2}, {"$set": {"_acl": acl("role:all", "user:ann")}})
        assert await client.match() == ("add", "update", None, 2)
    items.delete_many({})


async def test_a_collection_that_the_client_may_not_read_does_not_exist(guarded: Site) -> None:
    """404 for a stranger, the result for a clerk; a refused token is 401."""
    async with client_of(guarded) as client:
        assert (await client.subscribe(bucket="books"))["error"]["status"] == 404
        assert (await client.subscribe(bucket="books", token="refused"))["error"]["status"] == 401
    async with client_of(guarded) as client:
        assert (await client.subscribe(bucket="books", token="ann:clerk"))["type"] == "result"


async def test_new_credentials_resend_nothing_and_lost_rights_end_a_subscription(guarded: Site) -> None:
    """P8, C3: a renewed token of the same principal is silent; one without the right ends the subscription at once."""
    items = guarded.database.items
    async with client_of(guarded) as client:
        await client.subscribe("open", token="ann:clerk")
        await client.subscribe("books", bucket="books")
        await client.say(type="token", token="ann:clerk")
        items.insert_one({"_id": 10})
        assert (await client.hear())["matchType"] == "add"
        await client.say(type="token", token="ann")
        messages = [await client.hear() for _ in range(3)]
        kinds = {(message["id"], message["type"]) for message in messages}
        assert kinds == {("open", "refreshed"), ("open", "result"), ("books", "error")}
    items.delete_many({})


async def test_credentials_that_expire_end_the_subscriptions(mongo_url: str, prefix: str) -> None:
    """401 at the end of the credentials. Credentials that have ended already begin no subscription."""
    ends_ms = [0]

    def short(request: Request) -> Grant:
        return Grant(principal=Principal(user="ann"), expires_at_ms=ends_ms[0])

    with live_site(mongo_url, prefix, principal=short) as site:
        async with client_of(site) as client:
            assert (await client.subscribe())["error"]["status"] == 401
            ends_ms[0] = system_clock() + 2_000
            assert (await client.subscribe())["type"] == "result"
            assert (await client.hear())["error"]["status"] == 401


async def test_a_change_of_roles_is_looked_at_on_request(mongo_url: str, prefix: str) -> None:
    """C3: `LiveQueries.recheck()` ends what a client may not read any more."""
    roles = {"clerk"}

    def present(request: Request) -> Principal:
        return Principal(user="ann", roles=frozenset(roles))

    access = Access(collections={"books": CollectionAccess(read=Rule.of(allow=["role:clerk"]))})
    with live_site(mongo_url, prefix, principal=present, access=access) as site:
        async with client_of(site) as client:
            await client.subscribe(bucket="books")
            roles.clear()
            site.recheck()
            assert (await client.hear())["error"]["status"] == 404


async def test_nothing_is_left_of_sockets_that_went(site: Site, items: Any) -> None:
    """Subscriptions and sockets that break off are forgotten: the gauges return to 0."""

    def gauge(name: str) -> float:
        value = site.quaestor.telemetry.families.registry.get_sample_value(f"quaestor_{name}")
        assert value is not None
        return value

    async def come_and_go() -> None:
        async with client_of(site) as client:
            await Client.subscribe(client, "a")
            client.connection.transport.abort()

    await asyncio.gather(*(come_and_go() for _ in range(20)), return_exceptions=True)
    await eventually(lambda: gauge("live_connections") == 0 and gauge("live_subscriptions") == 0)


# Together


async def test_collapsed_updates_arrive_as_the_newest_state(site: Site, items: Any) -> None:
    """A6: within the interval only the newest version of a record is sent, and positions stay right."""
    items.insert_many([{"_id": number, "n": number} for number in range(3)])
    async with client_of(site) as client:
        await client.subscribe("quick", sort={"n": 1})
        await client.subscribe("slow", sort={"n": 1}, collapse=300)
        for n in range(20):
            items.update_one({"_id": 1}, {"$set": {"n": 100 + n}})
        items.delete_one({"_id": 0})
        rows = [0, 1, 2]
        heard = 0
        while rows != [2, 1]:
            message = await client.hear()
            if message["id"] == "slow":
                heard += 1
                if message["matchType"] != "add":
                    assert rows.pop(message["previousIndex"]) == message["data"]["_id"]
                if message["matchType"] != "remove":
                    rows.insert(message["index"], message["data"]["_id"])
        assert heard < 15


async def test_a_collapsed_subscription_misses_nothing_after_a_break(site: Site, items: Any) -> None:
    """One interval brings three events; the socket breaks behind the first of them."""
    items.insert_many([{"_id": number, "n": 0} for number in range(3)])
    async with client_of(site) as client:
        await client.subscribe(collapse=300)
        items.update_one({"_id": 0}, {"$set": {"n": 1}})
        await client.hear()  # the interval begins
        for number in range(3):
            items.update_one({"_id": number}, {"$set": {"n": 2}})
        first = await client.hear()
        rest = [await client.hear() for _ in range(2)]
    async with client_of(site) as client:
        assert (await client.subscribe(offset_token=first["offset_token"]))["type"] == "refreshed"
        assert [record["n"] for record in (await client.hear())["data"]] == [2, 2, 2]
    async with client_of(site) as client:
        assert (await client.subscribe(offset_token=rest[-1]["offset_token"])) == {
            "type": "resumed", "id": "a", "missed": 0, "offset_token": rest[-1]["offset_token"],
        }  # fmt: skip


async def test_subscriptions_of_a_socket_advance_together(site: Site, accounts: Any) -> None:
    """P8 `cut`: transfers between two accounts, each followed by a query of its own; at each cut the two sums add up."""
    accounts.insert_many([{"_id": name, "amount": 500, "account": name} for name in "ab"])
    mongo, enough = accounts.database.client, threading.Event()

    def transfers() -> None:
        while not enough.is_set():
            with mongo.start_session() as session, session.start_transaction():
                accounts.update_one({"_id": "a"}, {"$inc": {"amount": -1}}, session=session)
                accounts.update_one({"_id": "b"}, {"$inc": {"amount": 1}}, session=session)

    async with client_of(site) as client:
        await client.say(type="cut")
        await client.say(type="subscribe", id="a", bucket="accounts", query='{"account": "a"}')
        await client.say(type="subscribe", id="b", bucket="accounts", query='{"account": "b"}')
        writing = asyncio.create_task(asyncio.to_thread(transfers))
        amounts: dict[str, int] = {}

        async def cut() -> bool:
            """Take the next message; whether it is a cut of both accounts."""
            message = await client.hear()
            if message["type"] == "cut":
                assert len(amounts) < 2 or sum(amounts.values()) == 1_000
                return len(amounts) == 2
            shown = message["data"][0] if message["type"] == "result" else message["data"]
            amounts[message["id"]] = shown["amount"]
            return False

        try:
            for _ in range(5):
                while not await cut():
                    pass
        finally:
            enough.set()
            await writing
        while amounts != {account["_id"]: account["amount"] for account in accounts.find()}:
            await cut()
        await client.say(type="cut", on=False)
        accounts.update_one({"_id": "a"}, {"$set": {"amount": 0}})
        while (message := await client.hear())["type"] != "match":
            pass
        assert message["data"]["amount"] == 0


async def test_a_cut_refuses_records_that_are_looked_up_after_their_updates(site: Site, items: Any) -> None:
    """Whether the cut or the subscription came first; without a cut the subscription is possible."""
    items.insert_one({"_id": 1})
    async with client_of(site) as client:
        await client.subscribe()
        await client.say(type="cut")
        ended = await client.hear()
        assert (ended["type"], ended["error"]["status"]) == ("error", 422)
        assert "changeStreamPreAndPostImages" in ended["error"]["message"]
        await client.say(type="subscribe", id="b", bucket="items")
        assert (await client.hear())["error"] == ended["error"]
        await client.say(type="cut", on=False)
        await client.subscribe("c")


async def test_the_first_result_names_the_version_that_was_read(site: Site, items: Any) -> None:
    items.insert_one({"_id": 1})
    async with client_of(site) as client:
        assert int((await client.subscribe())["version"]) > 0


async def test_a_slow_reader_receives_the_result_anew_and_disturbs_nobody(mongo_url: str, prefix: str) -> None:
    """More events than a subscription may leave unsent: `refreshed` and the result; the other client gets every event."""
    with live_site(mongo_url, prefix, limits=SocketLimits(waiting=10)) as site:
        items = site.database.items
        items.insert_one({"_id": 0, "n": 0})
        async with client_of(site, max_queue=1) as slow, client_of(site) as quick:
            await slow.subscribe()
            await quick.subscribe()
            text = secrets.token_hex(250_000)  # which no compression makes small
            for n in range(1, 61):
                items.update_one({"_id": 0}, {"$set": {"n": n, "text": text}})
                while (await quick.hear())["data"]["n"] != n:
                    pass
            kinds = []
            message: Json = {}
            while message.get("type") != "refreshed":
                message = await slow.hear()
                kinds.append(message["type"])
            assert message["reason"] == "slow"
            assert (await slow.hear())["data"][0]["n"] == 60
            assert len(kinds) < 60
