"""Lists kept as ids and put together from records: a change of a member costs one record, and nothing stale is put together."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from quaestor.caching import cached
from quaestor.rest import Access, Principal
from tests.end_to_end.rest_site import RestSite, rest_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


def put_together(response: httpx.Response) -> bool:
    return "QuaestorRecords; hit" in response.headers.get("cache-status", "")


async def warm(site: RestSite, path: str) -> Any:
    """Ask until it is put together from memory."""
    answer: Any = None

    async def hit() -> bool:
        nonlocal answer
        response = await site.http.get("/db" + path)
        assert response.status_code == 200, response.text
        answer = response.json()
        return put_together(response)

    await eventually(hit)
    return answer


BY_RANK = '/items?filter={"group":"a"}&sort={"rank":1}'


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
async def test_a_change_of_one_member_reads_that_record_and_not_the_lists(
    mongo_url: str, prefix: str, threads: bool
) -> None:
    async with rest_site(mongo_url, prefix, representation="ids", threads=threads) as site:
        lists = [BY_RANK, '/items?filter={"group":"a","rank":{"$lt":7}}', "/items?limit=5"]
        before = [await warm(site, path) for path in lists]
        site.heard.commands.clear()
        site.other.items.update_one({"_id": 2}, {"$set": {"text": "new"}})

        async def seen() -> bool:
            return all(
                [next(r for r in (await site.http.get("/db" + p)).json() if r["_id"] == 2).get("text") for p in lists]
            )

        await eventually(seen)
        assert site.heard.finds() == [{"_id": {"$in": [2]}}], "one record, once, for all three lists"
        after = [await warm(site, path) for path in lists]
        for old, new in zip(before, after, strict=True):
            assert [r | ({"text": "new"} if r["_id"] == 2 else {}) for r in old] == new


async def test_a_whole_list_and_one_put_together_are_the_same_to_a_client(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, representation="ids") as ids:
        await warm(ids, BY_RANK)
        together = await ids.http.get("/db" + BY_RANK)
        async with rest_site(mongo_url, prefix + "b") as objects:
            whole = await objects.http.get("/db" + BY_RANK)
        assert (together.content, together.headers["etag"]) == (whole.content, whole.headers["etag"])
        assert together.headers["content-type"] == whole.headers["content-type"]
        again = await ids.http.get("/db" + BY_RANK, headers={"if-none-match": together.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert "no-cache" in together.headers["cache-control"]


MOVES: dict[str, Callable[[Any], Any]] = {
    "enters": lambda c: c.insert_one({"_id": 100, "group": "a", "rank": 3}),
    "leaves": lambda c: c.update_one({"_id": 4}, {"$set": {"group": "z"}}),
    "moves": lambda c: c.update_one({"_id": 0}, {"$set": {"rank": 99}}),
    "goes": lambda c: c.delete_one({"_id": 2}),
    "all": lambda c: c.update_many({}, {"$inc": {"rank": 1000}}),
    "replaced": lambda c: c.replace_one({"_id": 6}, {"group": "a", "rank": 6, "x": 1}),
    "drop": lambda c: c.delete_many({}),
}


@pytest.mark.parametrize("kind", MOVES)
async def test_records_that_come_go_or_move_are_seen(mongo_url: str, prefix: str, kind: str) -> None:
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        await warm(site, BY_RANK)
        MOVES[kind](site.other.items)
        truth = list(site.other.items.find({"group": "a"}).sort([("rank", 1), ("_id", 1)]))

        async def new() -> bool:
            return bool((await site.http.get("/db" + BY_RANK)).json() == truth)

        await eventually(new)
        assert await warm(site, BY_RANK) == truth


async def test_rules_of_records_hold_for_assembled_lists(mongo_url: str, prefix: str) -> None:
    """Rules hold also when one principal's list has read the record again and another's has not."""

    def who(request: Any) -> Principal:
        return Principal(user=request.headers.get("x-test-user"))

    async with rest_site(mongo_url, prefix, representation="ids", principal=who, access=Access.public()) as site:

        async def ids(user: str) -> list[Any]:
            response = await site.http.get("/db/items", headers={"x-test-user": user})
            return [record["_id"] for record in response.json()]

        for user in ("ann", "bob"):
            await eventually(lambda user=user: _hit(site, user))
        site.other.items.update_one({"_id": 3}, {"$set": {"_acl": {"read": {"allow": ["user:ann"]}}, "secret": 1}})
        everything = list(range(10))

        async def ann_sees_it() -> bool:
            response = await site.http.get("/db/items", headers={"x-test-user": "ann"})
            other = await site.http.get("/db/items", headers={"x-test-user": "bob"})
            assert b"secret" not in other.content
            return b"secret" in response.content

        await eventually(ann_sees_it)
        await eventually(lambda: _equal(ids("bob"), [i for i in everything if i != 3]))
        assert await ids("ann") == everything


async def _hit(site: RestSite, user: str) -> bool:
    return put_together(await site.http.get("/db/items", headers={"x-test-user": user}))


async def _equal(answer: Any, expected: Any) -> bool:
    return bool(await answer == expected)


async def test_one_reader_asks_for_a_cold_list_and_the_others_wait(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        await warm(site, BY_RANK)
        site.heard.commands.clear()
        path = '/items?filter={"group":"b"}'
        answers: list[httpx.Response] = []

        async def ask() -> None:
            answers.append(await site.http.get("/db" + path))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert len({answer.content for answer in answers}) == 1
        assert len(site.heard.finds()) <= 2


async def test_an_empty_list_is_kept_and_an_unknown_collection_is_not_there(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        empty = '/items?filter={"group":"z"}'
        assert await warm(site, empty) == []
        assert (await site.http.get("/db/nowhere")).status_code == 404
        site.other.items.insert_one({"_id": "z", "group": "z"})
        await eventually(lambda: _equal(_ids(site, empty), ["z"]))


async def _ids(site: RestSite, path: str) -> Any:
    return [record["_id"] for record in (await site.http.get("/db" + path)).json()]


async def test_a_rule_by_path_overrides_the_router_and_a_request_both(mongo_url: str, prefix: str) -> None:
    routes = {"/db/items": cached(representation="ids")}
    async with rest_site(mongo_url, prefix, representation="objects", routes=routes) as site:
        assert await warm(site, BY_RANK)
        whole = BY_RANK + "&representation=objects"
        assert await site.warm(whole) == await warm(site, BY_RANK)
        assert not put_together(await site.http.get("/db" + whole))


async def test_automatic_lists_become_ids_when_their_members_keep_changing(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no more lists can be maintained."""
    monkeypatch.setattr("quaestor.rest.maintained.MOST", 0)
    async with rest_site(mongo_url, prefix) as site:
        site.other.items.insert_many([{"_id": 100 + i, "group": "a", "rank": 100 + i} for i in range(200)])
        path = BY_RANK + "&limit=200"
        assert await site.warm(path), "without writes it is kept whole, by the middleware"
        n = 0

        async def as_ids() -> bool:
            nonlocal n
            n += 1
            site.other.items.update_one({"_id": 2}, {"$set": {"n": n}})
            assert n < 200

            async def seen() -> bool:
                response = await site.http.get("/db" + path)
                return bool(response.json()[1].get("n") == n)

            await eventually(seen)
            return put_together(await site.http.get("/db" + path))

        await eventually(as_ids)


LISTS = [
    "/items",
    "/items?limit=3",
    BY_RANK,
    '/items?sort={"rank":-1}&limit=4',
    '/items?sort={"rank":1}&skip=2&limit=3',
    '/items?filter={"rank":{"$gte":3,"$lt":8}}&sort={"group":1,"rank":-1}',
    '/items?filter={"tags":"x"}',
    '/items?filter={"$or":[{"group":"b"},{"tags":{"$exists":true}}]}&sort={"tags":1}&limit=5',
]
SEED = 20_261_121


@pytest.mark.parametrize("images", [False, True], ids=["without images", "with images"])
async def test_lists_either_way_equal_the_database_once_its_writes_arrived(
    mongo_url: str, prefix: str, images: bool
) -> None:
    """Under random writes by another client and constant requests, every list becomes the truth when the writes pause,
    and stays so.

    During the writes no list shows a record in a state it never had, a record twice, or one that its filter excludes.
    """
    print("seed", SEED)
    dice = random.Random(SEED + images)
    async with rest_site(mongo_url, prefix, representation="ids") as ids:
        objects = RestSite(mongo_url, prefix, representation="objects")
        if images:
            ids.other.command("collMod", "items", changeStreamPreAndPostImages={"enabled": True})
        states: dict[Any, set[str]] = {}

        def note() -> None:
            for record in ids.other.items.find():
                states.setdefault(record["_id"], set()).add(json.dumps(record))

        note()
        hits = 0
        try:
            for _ in range(12):
                for _ in range(dice.randrange(1, 6)):
                    _write(dice, ids.other.items)
                    note()
                    path = dice.choice(LISTS)
                    shown = (await ids.http.get("/db" + path)).json()
                    keys = [record["_id"] for record in shown]
                    assert len(keys) == len(set(keys))
                    for record in shown:
                        assert json.dumps(record) in states[record["_id"]]
                        assert '{"group":"a"}' not in path or record["group"] == "a"
                for path in LISTS:
                    truth = (await _truth(ids, path)).json()
                    for site in (ids, objects):
                        await eventually(lambda site=site, path=path, truth=truth: _equal(_json(site, path), truth))
                for path in LISTS:
                    response = await ids.http.get("/db" + path)
                    hits += put_together(response)
                    assert response.json() == (await _truth(ids, path)).json()
        finally:
            await objects.close()
        assert hits > 12 * len(LISTS) // 2, "otherwise nothing was tested"


async def _json(site: RestSite, path: str) -> Any:
    return (await site.http.get("/db" + path)).json()


async def _truth(site: RestSite, path: str) -> httpx.Response:
    """By an app without a cache."""
    from fastapi import FastAPI

    from quaestor.rest import QuaestorRouter

    app = FastAPI()
    app.include_router(QuaestorRouter(site.other, access=Access.public()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
        return await http.get("/db" + path)


def _write(dice: random.Random, items: Any) -> None:
    key = dice.randrange(12)
    match dice.randrange(7):
        case 0:
            items.delete_one({"_id": key})
        case 1:
            items.replace_one({"_id": key}, {"group": dice.choice("ab"), "rank": dice.randrange(10)}, upsert=True)
        case 2:
            items.update_one({"_id": key}, {"$set": {"rank": dice.randrange(10)}})
        case 3:
            items.update_one({"_id": key}, {"$set": {"group": dice.choice("ab")}})
        case 4:
            items.update_one({"_id": key}, {"$set": {"text": dice.random()}})
        case 5:
            items.update_one({"_id": key}, {"$push": {"tags": dice.choice("xyz")}})
        case _:
            items.update_one({"_id": key}, {"$unset": {"tags": 1}})
