"""Maintained lists (update in place): made anew without a query, equal to re-execution after every write, guarded as ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import bson
import httpx
import pytest
from bson import Decimal128, Int64, ObjectId

from quaestor.caching import cached
from quaestor.rest import Access, Principal
from quaestor.rest.etags import list_etag
from tests.end_to_end.rest_site import RestSite, is_hit, rest_site
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

BY_RANK = '/items?filter={"group":"a"}&sort={"rank":1}'
TOP = '/items?filter={"rank":{"$gte":2}}&sort={"rank":-1}&limit=3'
NEXT = '/items?sort={"rank":1}&skip=2&limit=4'


async def followed(site: RestSite, path: str) -> Any:
    """Ask until a write is answered from the maintained result: then it is followed. Leaves the items as they were."""
    await site.warm(path)
    number = 0

    async def without_query() -> bool:
        nonlocal number
        number += 1
        before = (await site.http.get("/db" + path)).content
        site.heard.commands.clear()
        site.other.items.update_many({}, {"$set": {"probe": number}})

        async def new() -> bool:
            return (await site.http.get("/db" + path)).content != before

        await eventually(new)
        return not site.heard.finds()

    await eventually(without_query)
    site.heard.commands.clear()
    return await site.warm(path)


def truth(site: RestSite, path: str) -> list[dict[str, Any]]:
    """Return the database's answer now."""
    items = site.other.items
    if path == BY_RANK:
        return list(items.find({"group": "a"}).sort([("rank", 1), ("_id", 1)]))
    if path == TOP:
        return list(items.find({"rank": {"$gte": 2}}).sort([("rank", -1), ("_id", 1)]).limit(3))
    return list(items.find({}).sort([("rank", 1), ("_id", 1)]).skip(2).limit(4))


async def settled(site: RestSite, path: str) -> httpx.Response:
    """Ask until the answer is a hit that equals re-execution."""
    response = httpx.Response(500)

    async def equal() -> bool:
        nonlocal response
        response = await site.http.get("/db" + path)
        return is_hit(response) and response.json() == truth(site, path)

    await eventually(equal)
    return response


CHANGES: dict[str, Callable[[Any], Any]] = {
    "changes": lambda c: c.update_one({"_id": 2}, {"$set": {"text": "new"}}),
    "enters": lambda c: c.insert_one({"_id": 100, "group": "a", "rank": 3}),
    "leaves": lambda c: c.update_one({"_id": 4}, {"$set": {"group": "z"}}),
    "moves": lambda c: c.update_one({"_id": 0}, {"$set": {"rank": 99}}),
    "goes": lambda c: c.delete_one({"_id": 2}),
    "all": lambda c: c.update_many({}, {"$inc": {"rank": 1000}}),
    "replaced": lambda c: c.replace_one({"_id": 6}, {"group": "a", "rank": 6, "x": 1}),
}


async def test_a_changed_list_is_answered_without_a_query(mongo_url: str, prefix: str) -> None:
    """Each kind of change, one after the other, on a list without bounds: not one find is sent for it any more."""
    async with rest_site(mongo_url, prefix, representation="maintained") as site:
        await followed(site, BY_RANK)
        for name, change in CHANGES.items():
            change(site.other.items)
            await settled(site, BY_RANK)
            assert site.heard.finds() == [], name


@pytest.mark.parametrize("path", [BY_RANK, TOP, NEXT], ids=["all", "top", "offset"])
async def test_a_maintained_list_equals_re_execution_after_every_write(mongo_url: str, prefix: str, path: str) -> None:
    """After each random write by another client, the next hit is the database's answer, with the tag of its bytes."""
    dice = random.Random(path)
    async with rest_site(mongo_url, prefix, representation="maintained") as site:
        await followed(site, path)
        for step in range(40):
            key, items = dice.randrange(14), site.other.items
            match dice.randrange(6):
                case 0:
                    items.replace_one(
                        {"_id": key}, {"group": dice.choice("ab"), "rank": dice.randrange(9)}, upsert=True
                    )
                case 1:
                    items.delete_one({"_id": key})
                case 2:
                    items.update_many({"group": "a"}, {"$inc": {"rank": dice.choice([-1, 1])}})
                case _:
                    items.update_one({"_id": key}, {"$set": {"rank": dice.randrange(9), "step": step}})
            if not truth(site, path):
                continue
            response = await settled(site, path)
            raws = [bson.encode(record) for record in truth(site, path)]
            assert response.headers["etag"] == list_etag("objects", raws)


async def test_an_own_write_is_read_by_the_next_request(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that wrote through the app reads its write at once, from the maintained result or not."""
    async with rest_site(mongo_url, prefix, representation="maintained") as site:
        monkeypatch.setattr(site.quaestor.read_path.own_writes, "_bound_s", PATIENCE_S)
        await followed(site, BY_RANK)
        for number in range(30):
            written = await site.ask(
                "PATCH", "/items/2", {"number": number}, content_type="application/merge-patch+json"
            )
            assert written.status_code == 200, written.text
            listed = (await site.http.get("/db" + BY_RANK)).json()
            assert next(record for record in listed if record["_id"] == 2)["number"] == number


async def test_values_of_all_types_are_the_same_bytes(mongo_url: str, prefix: str) -> None:
    """An answer from the maintained result has the bytes and the tag of one from the database."""
    values = {
        "int": 1, "long": Int64(1), "double": 1.0, "decimal": Decimal128("1.50"), "date": datetime(2024, 1, 1, tzinfo=UTC),
        "id": ObjectId("0" * 24), "bytes": b"\x00\x01", "null": None, "nested": {"b": 1, "a": [1, {"z": Int64(2)}]},
        "regex": bson.Regex("a", "i"), "far": bson.DatetimeMS(253402300800001), "uuid": bson.Binary(b"0" * 16, 4),
    }  # fmt: skip
    async with (
        rest_site(mongo_url, prefix, representation="maintained") as site,
        rest_site(mongo_url, prefix + "b", representation="objects") as other,
    ):
        await followed(site, BY_RANK)
        site.other.items.delete_many({})
        other.other.items.delete_many({})
        for client in (site, other):
            client.other.items.insert_one({"_id": 1, "group": "a", "rank": 1, **values})

        async def both() -> list[httpx.Response]:
            return [await client.http.get("/db" + BY_RANK) for client in (site, other)]

        async def there() -> bool:
            return all(b"decimal" in answer.content for answer in await both())

        await eventually(there)
        maintained, whole = await both()
        assert (maintained.content, maintained.headers["etag"]) == (whole.content, whole.headers["etag"])


async def test_rules_of_records_hold_in_maintained_lists(mongo_url: str, prefix: str) -> None:
    """A record that is closed to a user leaves that user's list, in every representation."""

    def who(request: Any) -> Principal:
        return Principal(user=request.headers.get("x-test-user"))

    async with rest_site(mongo_url, prefix, representation="maintained", principal=who, access=Access.public()) as site:

        async def ids(user: str) -> list[Any]:
            return [
                record["_id"] for record in (await site.http.get("/db/items", headers={"x-test-user": user})).json()
            ]

        for _ in range(3):
            assert await ids("ann") == await ids("bob") == list(range(10))
        site.other.items.update_one({"_id": 3}, {"$set": {"_acl": {"read": {"allow": ["user:ann"]}}}})

        async def closed() -> bool:
            return await ids("bob") == [i for i in range(10) if i != 3]

        await eventually(closed)
        assert await ids("ann") == list(range(10))


async def test_an_empty_list_is_asked_of_the_database(mongo_url: str, prefix: str) -> None:
    """Only it knows whether the collection still exists."""
    async with rest_site(mongo_url, prefix, representation="maintained") as site:
        await followed(site, BY_RANK)
        site.other.items.drop()

        async def unknown() -> bool:
            return (await site.http.get("/db" + BY_RANK)).status_code == 404

        await eventually(unknown)


async def test_a_route_may_ask_for_it(mongo_url: str, prefix: str) -> None:
    """`cached(representation="maintained")` counts for the routes that it names."""
    routes = {"/db/items": cached(representation="maintained")}
    async with rest_site(mongo_url, prefix, routes=routes, representation="objects") as site:
        await followed(site, BY_RANK)


async def test_automatic_lists_are_maintained_when_their_records_keep_moving(mongo_url: str, prefix: str) -> None:
    """A maintained list's writes make no query any more; the reasons of the choice are logged."""
    async with rest_site(mongo_url, prefix) as site:
        site.other.items.insert_many([{"_id": 100 + i, "group": "a", "rank": 100 + i} for i in range(200)])
        path = BY_RANK + "&limit=200"
        assert await site.warm(path), "without writes it is kept whole"
        number = 0

        async def without_query() -> bool:
            nonlocal number
            number += 1
            site.heard.commands.clear()
            site.other.items.update_one({"_id": 2}, {"$set": {"rank": 50 * (number % 2), "n": number}})

            async def seen() -> bool:
                return f'"n":{number}' in (await site.http.get("/db" + path)).text.replace(" ", "")

            await eventually(seen)
            return not site.heard.finds()

        await eventually(without_query)
